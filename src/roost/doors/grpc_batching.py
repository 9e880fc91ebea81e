"""Lets messages that come close together begin together.

gRPC's library gives the event loop one call at a time. HTTP's come many in one turn of it, share its wake-ups and
commit in one group; so do these. What that saves is in docs/adr/0015-grpc.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from roost.doors.sdk import SdkCall

Operation = Callable[[SdkCall, Any], Awaitable[bytes]]

A_TURN_S = 0.005
FEW = 4
"""Fewer calls than these gain nothing by waiting for each other."""


class BatchedStarts:
    """The first goes at once; those that come within `A_TURN_S` go when it is over, and the next turn begins."""

    def __init__(self) -> None:
        self.running = False
        self.waiting: list[asyncio.Future[None]] = []
        self.under_way = 0
        self.most = 0
        """Under way at the same time, in this turn."""
        self.crowd = 0
        """In the turn before."""

    def taken_by(self, operation: Operation) -> Operation:
        async def begun(call: SdkCall, params: Any) -> bytes:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await self._turn()
                return await operation(call, params)
            finally:
                self.under_way -= 1

        return begun

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.running:
            self.running = True
            loop.call_later(A_TURN_S, self._over)
        elif max(self.crowd, self.most) > FEW:
            turn: asyncio.Future[None] = loop.create_future()
            self.waiting.append(turn)
            await turn

    def _over(self) -> None:
        begun, self.waiting = self.waiting, []
        self.crowd, self.most = self.most, self.under_way
        self.running = bool(begun)
        if begun:
            asyncio.get_running_loop().call_later(A_TURN_S, self._over)
        for turn in begun:
            if not turn.done():
                turn.set_result(None)
