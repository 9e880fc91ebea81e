"""Loads an agent's file as a Python module: in the host, and in the process of an Agent(process=True)."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType


class LoadError(Exception):
    """An agent could not be loaded; the message says which file and what to do."""


def load_module(path: Path) -> ModuleType:
    """Load the file once, under its own name where that is free, so that its neighbours may import it."""
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


def _where(error: BaseException, path: Path) -> str:
    """Describe the error, with the line of the author's file that it came from."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {error}"
