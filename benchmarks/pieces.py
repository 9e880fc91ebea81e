"""The work that every server of the benchmark does for a message.

The text of the message is "N", "N RATE" or "N RATE DELAY": the agent emits N pieces, RATE of them per second (with 0 as
fast as they are taken), and the first one after DELAY seconds. A piece is the time at which it was emitted, in
nanoseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

DEFAULTS = ["1", "0", "0"]


async def pieces(text: str) -> AsyncIterator[str]:
    words = text.split()
    count, rate, delay = (float(word) for word in words + DEFAULTS[len(words) :])
    if delay:
        await asyncio.sleep(delay)
    start = time.monotonic()
    for number in range(int(count)):
        if rate:
            await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
        yield str(time.time_ns())
