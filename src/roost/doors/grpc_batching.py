"""Lets messages that arrive close together begin together.

gRPC's library passes the event loop one call at a time. HTTP requests arrive many in one turn of the loop, share its
wake-ups and commit in one group, and so do these: docs/adr/0015-grpc.md says what that saves.
"""

from __future__ import annotations

import asyncio
from typing import Any

from roost.doors.admission import Call
from roost.doors.operations import Unary
from roost.engine.responses import SendResult

WINDOW_S = 0.005
FEW = 4
"""The number of calls below which waiting for each other gains nothing."""


class BatchedStarts:
    """The first call begins at once. Those that come within WINDOW_S begin at its end, and the next window opens."""

    def __init__(self) -> None:
        self.running = False
        self.waiting: list[asyncio.Future[None]] = []
        self.under_way = 0
        self.peak = 0
        """The most calls in progress at the same time in this window."""
        self.last_peak = 0

    async def begin(self, operation: Unary, call: Call, request: Any) -> SendResult | bytes:
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        try:
            await self._wait()
            return await operation(call, request)
        finally:
            self.under_way -= 1

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.running:
            self.running = True
            loop.call_later(WINDOW_S, self._close_window)
        elif max(self.last_peak, self.peak) > FEW:
            start: asyncio.Future[None] = loop.create_future()
            self.waiting.append(start)
            await start

    def _close_window(self) -> None:
        begun, self.waiting = self.waiting, []
        self.last_peak, self.peak = self.peak, self.under_way
        self.running = bool(begun)
        if begun:
            asyncio.get_running_loop().call_later(WINDOW_S, self._close_window)
        for start in begun:
            if not start.done():
                start.set_result(None)
