"""A2A 0.3, for clients that ask for no version or for 0.3, by a2a-sdk's compatibility layer on top of our operations.

door.py      which requests are 0.3's, and its paths
requests.py  bodies and protobuf messages as requests of 1.0, or an error that names the field
bridge.py    carries out an operation of 1.0 for a request of 0.3, converts the card, and corrects what the layer gets
             wrong
jsonrpc.py, rest.py, grpc.py   the three bindings
errors.py    how REST and gRPC of 0.3 write errors

The SDK takes a second to load, so the modules that need it are loaded with the first request that needs them.
"""

from __future__ import annotations

import asyncio
import importlib
from types import ModuleType

_loaded: dict[str, ModuleType] = {}


async def load(name: str) -> ModuleType:
    """Load a module of this package without holding up the event loop."""
    if name not in _loaded:
        _loaded[name] = await asyncio.to_thread(importlib.import_module, f"roost.doors.a2a_03.{name}")
    return _loaded[name]
