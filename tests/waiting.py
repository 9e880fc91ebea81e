"""How tests wait: for a condition, never for a time.

found = eventually(lambda: rest.get(task))       blocks the thread
found = await until(lambda: noted)               lets the event loop go on; the look itself may be awaited

"Nothing happens" cannot be waited for: a test shows it by an event that must come afterwards.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""Seconds after which a test gives up. It bounds a failure and says nothing about how long anything may take."""
LOOK_S = 0.005
"""Seconds between two looks."""


def eventually(look: Callable[[], T | None], what: str = "the condition") -> T:
    """Return what `look` finds, once it finds something."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what} never came true"
        time.sleep(LOOK_S)
    return found


async def until(look: Callable[[], T | Awaitable[T | None] | None], what: str = "the condition") -> T:
    """Return what `look` finds, once it finds something, while the event loop goes on."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = look()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(LOOK_S)
    except TimeoutError as error:
        raise AssertionError(f"{what} never came true") from error
