"""Lets only so many followers through in one turn of the event loop: a burst to a thousand must not hold it up."""

from __future__ import annotations

import asyncio
from collections import deque

A_TURN = 32


class WakeThrottle:
    def __init__(self) -> None:
        self.admitted = 0
        self.queue: deque[asyncio.Future[bool]] = deque()

    def admit(self, waiter: asyncio.Future[bool]) -> None:
        """Set the waiter's result, False, now or in one of the next turns."""
        if self.admitted == 0:
            asyncio.get_running_loop().call_soon(self._turn)
        if self.admitted < A_TURN:
            self._let_in(waiter)
        else:
            self.queue.append(waiter)

    def _turn(self) -> None:
        self.admitted = 0
        while self.queue and self.admitted < A_TURN:
            self._let_in(self.queue.popleft())
        if self.admitted:
            asyncio.get_running_loop().call_soon(self._turn)

    def _let_in(self, waiter: asyncio.Future[bool]) -> None:
        self.admitted += 1
        if not waiter.done():
            waiter.set_result(False)
