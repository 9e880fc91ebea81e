"""The SDK takes a second to load, so it is loaded with the first request that needs it, beside the loop."""

from __future__ import annotations

import asyncio
import importlib
from types import ModuleType

_loaded: dict[str, ModuleType] = {}


async def load(name: str) -> ModuleType:
    """A module of this package."""
    if name not in _loaded:
        _loaded[name] = await asyncio.to_thread(importlib.import_module, f"roost.doors.a2a_03.{name}")
    return _loaded[name]
