"""Runs conversions of large values in a thread, one at a time, so that others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

LARGE = 8 * 1024
"""Bytes. A megabyte of small numbers takes seconds."""

_worker = ThreadPoolExecutor(1, "a2a-0.3")


async def offload(size: int, work: Callable[[], T]) -> T:
    """Do the work on the event loop if its input has few bytes, otherwise in the thread."""
    return work() if size <= LARGE else await asyncio.get_running_loop().run_in_executor(_worker, work)
