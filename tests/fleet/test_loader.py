"""Loading agents from the arguments of `roost serve`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.agents.modules import LoadError
from roost.fleet.loader import is_single_file, load

AGENT = """
from roost import Agent

{name} = Agent({id!r})

@{name}.on_message
async def answer(task):
    return "hi"
"""


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Loading changes sys.path and sys.modules."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, id: str = "", text: str = "", name: str = "agent") -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text or AGENT.format(id=id or path.stem, name=name))
    return str(path)


def ids(*sources: str) -> list[str]:
    return [agent.id for agent in load(sources)]


def test_a_file_a_folder_and_an_attribute_are_loaded_in_order(tmp_path: Path) -> None:
    file = write(tmp_path / "single_one.py")
    write(tmp_path / "folder" / "beta_one.py")
    write(tmp_path / "folder" / "alpha_one.py")
    write(tmp_path / "folder" / "_private.py", text="raise RuntimeError")
    write(tmp_path / "by_name.py", "named")
    assert ids(file, str(tmp_path / "folder"), "by_name:agent") == ["single_one", "alpha_one", "beta_one", "named"]


def test_one_python_file_is_a_single_file(tmp_path: Path) -> None:
    assert is_single_file(["a.py"])
    assert not is_single_file(["a.py", "b.py"])
    assert not is_single_file(["folder"])


def test_a_file_may_import_its_neighbours_agent_and_both_are_served_once(tmp_path: Path) -> None:
    write(tmp_path / "f" / "near_one.py")
    write(
        tmp_path / "f" / "near_two.py", text="from near_one import agent as other\n" + AGENT.format(id="two", name="a")
    )
    assert sorted(ids(str(tmp_path / "f"))) == ["near_one", "two"]


def test_a_file_named_twice_is_one(tmp_path: Path) -> None:
    file = write(tmp_path / "twice.py")
    assert ids(file, file) == ["twice"]


def test_a_file_that_is_called_like_a_module_of_python_leaves_that_module_alone(tmp_path: Path) -> None:
    import json

    assert ids(write(tmp_path / "json.py", "mine"), write(tmp_path / "json.py", "mine")) == ["mine"]
    assert sys.modules["json"] is json


def test_two_files_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    one, two = write(tmp_path / "x" / "same_name.py", "one"), write(tmp_path / "y" / "same_name.py", "two")
    assert ids(one, two) == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nsys.exit(0)", "line 2: SystemExit"),
        ("x = 1\nx.nothing", "line 2: AttributeError"),
        ("def broken(:\n  pass", "line 1: "),
        ("x = 1", "this file defines no agent"),
        ("from roost import Agent\na = Agent('silent')", "has no function yet"),
        ("from roost import Agent\na = Agent('no spaces')", "cannot be an agent's id"),
        (AGENT.format(id="x", name="a") + AGENT.format(id="x", name="b"), "two agents are called 'x'"),
    ],
)
def test_a_file_that_cannot_be_served_is_named_with_the_reason(tmp_path: Path, text: str, says: str) -> None:
    file = write(tmp_path / "wrong_file.py", text=text)
    with pytest.raises(LoadError, match=re.escape(says)) as refusal:
        load([file])
    assert "wrong_file.py" in str(refusal.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("missing.py", "there is no such file"),
        ("missing", "give a .py file"),
        ("no_module_of_this_name:agent", "No module named"),
        ("json:no_attribute", "no attribute"),
        ("json:dumps", "is a function, not an Agent"),
        ("roost:Agent", "not an Agent"),
    ],
)
def test_a_source_that_is_none_is_named_with_the_reason(source: str, says: str) -> None:
    with pytest.raises(LoadError, match=re.escape(says)) as refusal:
        load([source])
    assert source in str(refusal.value)


def test_a_helper_in_a_folder_need_not_hold_an_agent(tmp_path: Path) -> None:
    write(tmp_path / "h" / "helper_only.py", text="VALUE = 1")
    write(
        tmp_path / "h" / "with_agent.py", text="from helper_only import VALUE\n" + AGENT.format(id="helped", name="a")
    )
    assert ids(str(tmp_path / "h")) == ["helped"]


def test_a_folder_of_helpers_only_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "h" / "helper_alone.py", text="VALUE = 1")
    with pytest.raises(LoadError, match="the files in this folder define no agent"):
        load([str(tmp_path / "h")])


def test_a_module_that_cannot_be_imported_is_named_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "broken_module.py", text="x = (")
    with pytest.raises(LoadError, match="broken_module:agent: SyntaxError"):
        load(["broken_module:agent"])


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(LoadError, match=r"this folder has no \.py file"):
        load([str(tmp_path / "empty")])
