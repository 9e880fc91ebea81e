"""`roost` is these names and nothing else: what is added or taken away is a decision, made here too."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import roost

NAMES = [
    "Agent",
    "AgentDefinitionError",
    "AgentExtension",
    "AgentProvider",
    "AgentSkill",
    "AgentTask",
    "Answer",
    "Artifact",
    "Caller",
    "ExtendedCard",
    "Message",
    "Part",
    "SDKAgent",
    "asgi",
]


def test_the_public_names_are_exactly_these():
    assert roost.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_public_name_can_be_imported_and_knows_what_it_is(name):
    found = getattr(roost, name)
    assert found.__name__ == name
    assert found.__module__.startswith("roost.")


def test_a_star_import_brings_them_all():
    space: dict[str, object] = {}
    exec("from roost import *", space)
    assert sorted(set(space) - {"__builtins__"}) == NAMES


def test_what_is_public_by_accident_is_a_module_or_private():
    strays = [
        name
        for name, value in vars(roost).items()
        if not name.startswith("_") and name not in NAMES and not isinstance(value, types.ModuleType)
    ]
    allowed = {"TYPE_CHECKING", "Any", "VERSION", "annotations", "import_module"}
    assert set(strays) <= allowed


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Agents'"):
        _ = roost.Agents


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert roost.__version__ == version("roost")


def test_an_agent_does_not_load_the_sdk():
    """It takes a second, and only SDKAgent needs it."""
    code = "import sys, roost; roost.Agent('a'); roost.asgi; sys.exit('a2a' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
