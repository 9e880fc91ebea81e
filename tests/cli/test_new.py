"""`roost new` and `roost config`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from roost.cli.errors import CommandFailed
from roost.cli.new import TemplateKind, new
from roost.settings import SETTINGS
from tests.processes import ROOT, roost, running


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_new_says_what_to_do_next(tmp_path: Path) -> None:
    done = roost("new", "mine", "--kind", "ask", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "roost serve mine.py" in done.stdout
    assert "task.ask" in (tmp_path / "mine.py").read_text()


def test_new_agents_pass_ruff_and_work(folder: Path) -> None:
    for kind in TemplateKind:
        new(f"my-{kind}", kind)
    for check in (["check", "--config", str(ROOT / "pyproject.toml")], ["format", "--check", "--line-length", "120"]):
        ruff = [sys.executable, "-m", "ruff", *check, "--no-cache", str(folder)]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    with running(folder, cwd=folder) as server:
        assert roost("send", "my-hello", "world", url=server.url).stdout == "Hello, world!\n"
        streamed = roost("send", "my-stream", "one two", url=server.url)
        assert (streamed.stdout, streamed.stderr.splitlines()[0]) == ("one two \n", "Reading")
        asked = roost("send", "my-ask", "hi", url=server.url)
        assert asked.returncode == 3
        assert "Which city?" in asked.stderr
        task = asked.stderr.rpartition("--task ")[2].split()[0]
        answered = roost("send", "my-ask", "Ghent", "--task", task, url=server.url)
        assert answered.stdout == "- Ghent by foot\n- Ghent by boat\n- Ghent from above\n"


def test_new_never_overwrites(folder: Path) -> None:
    (folder / "mine.py").write_text("precious")
    with pytest.raises(CommandFailed, match=r"mine\.py exists already"):
        new("mine.py")
    assert (folder / "mine.py").read_text() == "precious"


@pytest.mark.parametrize("name", ["../up", "a b", "", "-x", "json", "roost"])
def test_new_refuses_a_name_that_would_not_work(folder: Path, name: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        new(name)
    assert caught.value.code == 2
    assert list(folder.iterdir()) == []


def test_config_says_where_each_value_came_from(tmp_path: Path) -> None:
    (tmp_path / "roost.toml").write_text('port = 9000\nlog_level = "debug"\n')
    env = {"ROOST_PORT": "9001", "ROOST_MEMORY": "1"}
    found = json.loads(roost("config", "--json", cwd=tmp_path, env=env).stdout)
    assert {name: item["doc"] for name, item in found.items()} == {
        name: setting.sentence for name, setting in SETTINGS.items()
    }
    assert {
        name: (found[name]["value"], found[name]["source"]) for name in ("port", "log_level", "memory", "host")
    } == {
        "port": (9001, "ROOST_PORT"),
        "log_level": ("debug", "roost.toml"),
        "memory": (True, "ROOST_MEMORY"),
        "host": ("127.0.0.1", "default"),
    }


def test_config_for_people_has_every_setting_on_a_line(tmp_path: Path) -> None:
    lines = roost("config", cwd=tmp_path).stdout.splitlines()
    assert len(lines) == len(SETTINGS) + 1
    for line, setting in zip(lines[1:], SETTINGS.values(), strict=True):
        assert line.startswith(setting.name)
        assert setting.sentence in line


def test_config_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "roost.toml").write_text("prot = 9000\n")
    done = roost("config", cwd=tmp_path)
    assert done.returncode == 1
    assert "unknown setting prot" in done.stderr
