"""The last committed frames of a task, which all its followers share, and the throttle that wakes the followers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from roost.protocol.types import TaskState

RING_ENTRIES = 1024
RING_BYTES = 1024 * 1024
WAKES_PER_ITERATION = 32
"""Followers that are woken in one iteration of the event loop: a burst to a thousand must not hold it up."""


class StreamFrame(NamedTuple):
    """A committed wire entry, as followers see it."""

    seq: int
    data: bytes
    state: TaskState | None
    """The state that a status update brings; None for an artifact update."""


class Ring:
    """Keeps frames only while there are followers; whoever comes later, or falls behind, reads from the store."""

    def __init__(self) -> None:
        self.frames: list[StreamFrame] = []
        self._size = 0
        self._wakes: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        """Say whether anyone follows."""
        return bool(self._wakes)

    def join(self, wake: Callable[[], None]) -> None:
        """Call `wake` when there are new frames, or when the stream is about to end."""
        self._wakes.append(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        self._wakes.remove(wake)
        if not self._wakes:
            self.frames.clear()
            self._size = 0

    def show(self, frames: list[StreamFrame]) -> None:
        self.frames += frames
        self._size += sum([len(frame.data) for frame in frames])
        while self.frames and (len(self.frames) > RING_ENTRIES or self._size > RING_BYTES):
            cut = len(self.frames) // 2 or 1
            self._size -= sum(len(frame.data) for frame in self.frames[:cut])
            del self.frames[:cut]
        self.wake()

    def wake(self) -> None:
        for wake in list(self._wakes):
            wake()


class WakeThrottle:
    """Lets a limited number of followers continue in each iteration of the event loop."""

    def __init__(self) -> None:
        self.admitted = 0
        self.queue: deque[asyncio.Future[bool]] = deque()

    def admit(self, waiter: asyncio.Future[bool]) -> None:
        """Set the waiter's result to False, now or in one of the next iterations."""
        if self.admitted == 0:
            asyncio.get_running_loop().call_soon(self._next)
        if self.admitted < WAKES_PER_ITERATION:
            self._let_in(waiter)
        else:
            self.queue.append(waiter)

    def _next(self) -> None:
        self.admitted = 0
        while self.queue and self.admitted < WAKES_PER_ITERATION:
            self._let_in(self.queue.popleft())
        if self.admitted:
            asyncio.get_running_loop().call_soon(self._next)

    def _let_in(self, waiter: asyncio.Future[bool]) -> None:
        self.admitted += 1
        if not waiter.done():
            waiter.set_result(False)
