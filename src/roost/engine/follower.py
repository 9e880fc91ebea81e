"""One reader of one task's stream, at its own pace: from the shared ring, or from the store if it fell behind."""

from __future__ import annotations

import asyncio

from roost.engine.live import LiveTask, StreamFrame
from roost.engine.ports import Journal
from roost.engine.stats import Stats
from roost.engine.wake_throttle import WakeThrottle
from roost.identity.quotas import QuotaSlot
from roost.protocol import entries as kinds
from roost.protocol.codec import decoder
from roost.protocol.states import TERMINAL
from roost.protocol.types import StreamResponse, TaskState

BATCH = 64
PAGE = 256

SEND_ENDS = TERMINAL | {TaskState.INPUT_REQUIRED}
"""A stream that a send began ends where the caller has to act."""
SUBSCRIBE_ENDS = TERMINAL


class Follower:
    """`position` is the seq of the last frame that the reader has."""

    def __init__(
        self,
        live: LiveTask,
        journal: Journal,
        stats: Stats,
        throttle: WakeThrottle,
        position: int,
        ends: frozenset[TaskState],
    ) -> None:
        self.live = live
        self.journal = journal
        self.stats = stats
        self.throttle = throttle
        self.hurried = False
        """The last batch was not waited for: others come first."""
        self.position = position
        self.ends = ends
        self.over = False
        self.waiter: asyncio.Future[bool] | None = None
        self.open = True
        self.place: QuotaSlot | None = None
        """Among the streams that may be open at the same time."""
        live.followers.append(self.wake)
        stats.streams += 1

    async def batch(self) -> list[StreamFrame] | None:
        """The next frames, [] when nudged for a sign of life, None at the end."""
        while not self.over and self.open:
            if self.position < self.live.shown_seq:
                if self.hurried:
                    await self._turn()
                self.hurried = True
                return await self._read()
            self.hurried = False
            if self.live.lost or self.live.draining or (self.live.state in TERMINAL and self.position >= self.live.seq):
                return None
            self.waiter = asyncio.get_running_loop().create_future()
            nudged = await self.waiter
            self.waiter = None
            if nudged and self.position >= self.live.shown_seq and self.open:
                return []
        return None

    async def _turn(self) -> None:
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.throttle.admit(waiter)
        await waiter

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.throttle.admit(self.waiter)

    def nudge(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(True)

    def close(self) -> None:
        if self.open:
            self.open = False
            self.stats.streams -= 1
            self.live.followers.remove(self.wake)
            if not self.live.followers:
                self.live.ring.clear()
                self.live.ring_bytes = 0
            self.wake()

    async def _read(self) -> list[StreamFrame]:
        ring = self.live.ring
        if ring and ring[0].seq <= self.position + 1:
            start = self.position + 1 - ring[0].seq
            frames = ring[start : start + BATCH]
        else:
            stored = await self.journal.read_entries(self.live.new.id, self.position, PAGE, wire=True)
            frames = [
                StreamFrame(entry.seq, entry.data, _state(entry.data) if entry.kind == kinds.STATUS else None)
                for entry in stored
            ]
        for index, frame in enumerate(frames):
            if frame.state in self.ends:
                self.over = True
                frames = frames[: index + 1]
                break
        self.position = frames[-1].seq
        return frames


def _state(data: bytes) -> TaskState | None:
    event = decoder(StreamResponse)(data).status_update
    return None if event is None else event.status.state
