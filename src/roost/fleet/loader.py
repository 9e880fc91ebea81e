"""Loads agents from the arguments of `roost serve`: a .py file, module:attr, or a folder of .py files."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from roost.agents.agent import AgentDefinitionError, Hostable
from roost.agents.modules import LoadError, load_module


def load(sources: Sequence[str]) -> list[Hostable]:
    """Load every agent of every source, in order. It is an error if two have the same id."""
    found: dict[str, tuple[Hostable, str]] = {}
    for source in sources:
        for agent, origin in _load_source(source):
            if agent.id in found and found[agent.id][0] is not agent:
                raise LoadError(f"two agents are called {agent.id!r}: in {found[agent.id][1]} and in {origin}")
            found[agent.id] = (agent, origin)
    for agent, origin in found.values():
        try:
            agent.hosted()
        except AgentDefinitionError as error:
            raise LoadError(f"{origin}: {error}") from error
    return [agent for agent, _ in found.values()]


def is_single_file(sources: Sequence[str]) -> bool:
    return len(sources) == 1 and sources[0].endswith(".py")


def _load_source(source: str) -> Iterable[tuple[Hostable, str]]:
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.glob("*.py") if not file.name.startswith("_"))
        if not files:
            raise LoadError(f"{source}: this folder has no .py file")
        found = [(agent, str(file)) for file in files for agent in _agents_of(load_module(file))]
        if not found:
            raise LoadError(f"{source}: the files in this folder define no agent")
        return found
    if source.endswith(".py"):
        if not path.is_file():
            raise LoadError(f"{source}: there is no such file")
        return _from_file(path)
    name, colon, attribute = source.partition(":")
    if colon:
        return [(_from_attribute(name, attribute, source), source)]
    raise LoadError(f"{source}: give a .py file, a folder of them, or module:attribute")


def _from_file(path: Path) -> list[tuple[Hostable, str]]:
    module = load_module(path)
    agents = _agents_of(module)
    if not agents:
        raise LoadError(f"{path}: this file defines no agent. Add one: agent = Agent({path.stem!r}); see `roost new`")
    return [(agent, str(path)) for agent in agents]


def _from_attribute(name: str, attribute: str, source: str) -> Hostable:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        value: Any = importlib.import_module(name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise LoadError(f"{source}: {error}") from error
    except (Exception, SystemExit) as error:
        raise LoadError(f"{source}: {type(error).__name__}: {error}") from error
    if not isinstance(value, Hostable):
        raise LoadError(f"{source} is a {type(value).__name__}, not an Agent")
    return value


def _agents_of(module: ModuleType) -> list[Hostable]:
    found: list[Hostable] = []
    for value in vars(module).values():
        if _is_agent(value) and value not in found:
            found.append(value)
    return found


def _is_agent(value: Any) -> bool:
    return isinstance(value, Hostable) and not isinstance(value, type)
