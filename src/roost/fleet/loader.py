"""From what `roost serve` is given to agents: a .py file, module:attr, or a folder of .py files."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from roost.agents.agent import AgentDefinitionError, Hostable


class LoadError(Exception):
    """An agent could not be loaded; the message says which file and what to do."""


def load(sources: Sequence[str]) -> list[Hostable]:
    """Every agent of every source, in order. Two with one id are an error."""
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
            raise LoadError(f"{source}: no .py file is in this folder")
        found = [(agent, str(file)) for file in files for agent in _agents_of(_module_of(file))]
        if not found:
            raise LoadError(f"{source}: no agent is in the files of this folder")
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
    module = _module_of(path)
    agents = _agents_of(module)
    if not agents:
        raise LoadError(f"{path}: no agent is in this file. Make one: agent = Agent({path.stem!r}); see `roost new`")
    return [(agent, str(path)) for agent in agents]


def _module_of(path: Path) -> ModuleType:
    """The file as a module, once, and under its own name where that is free: its neighbours may import it."""
    file, folder, name = path.resolve(), str(path.resolve().parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if known is not None or name in sys.stdlib_module_names:
        name = f"roost_agents_{name}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
        if name in sys.modules:
            return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path}: Python cannot load this file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise LoadError(f"{path}: {_where(error, file)}") from error
    return module


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


def _where(error: BaseException, path: Path) -> str:
    """The error, and the line of the author's file that it came from."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {error}"
