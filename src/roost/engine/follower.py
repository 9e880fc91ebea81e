"""One reader of one task's stream, at its own pace: from the shared ring, or from the store if it fell behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from roost.engine.bodies import BATCH_BYTES, BodyReader, Made
from roost.engine.extension import ReaderView
from roost.engine.live import LiveTask
from roost.engine.ports import JournalReader
from roost.engine.ring import StreamFrame, WakeThrottle
from roost.engine.stats import Stats
from roost.protocol import entries as kinds
from roost.protocol.raw import raw_decoder
from roost.protocol.states import TERMINAL
from roost.protocol.types import StreamResponse, TaskState

BATCH = 64
PAGE = 256

SEND_ENDS = TERMINAL | {TaskState.INPUT_REQUIRED}
"""A stream that a send began ends where the caller has to act."""
SUBSCRIBE_ENDS = TERMINAL


class Follower:
    """Reads the frames after `position`, until one brings a state of `ends`.

    position: the seq of the last frame that the reader has.
    view: what the reader's extensions add to each frame.
    reader: the client that large frames are for; None if nobody waits for a client to read them.
    released: called when the reader does not need the task any more.
    """

    def __init__(
        self,
        live: LiveTask,
        journal: JournalReader,
        stats: Stats,
        throttle: WakeThrottle,
        position: int,
        ends: frozenset[TaskState],
        view: ReaderView | None = None,
        reader: BodyReader | None = None,
        released: Callable[[LiveTask], None] = lambda live: None,
    ) -> None:
        self.live = live
        self.journal = journal
        self.stats = stats
        self.throttle = throttle
        self.position = position
        self.ends = ends
        self.view = view
        self.reader = reader
        self.released = released
        self.hurried = False
        """The last batch was ready at once, so others come first."""
        self.over = False
        """The reader has the last frame."""
        self.open = True
        self.waiter: asyncio.Future[bool] | None = None
        self.ring = live.follow(self.wake)
        stats.streams += 1

    async def batch(self) -> list[StreamFrame] | None:
        """Wait for the next frames. [] means that it is time for a sign of life, None that the stream is over."""
        live = self.live
        if self.reader is not None:
            self.reader.release()
        while not self.over and self.open:
            if self.position < live.shown_seq:
                if self.hurried:
                    await self._let_others()
                self.hurried = True
                return await self._read()
            self.hurried = False
            if live.lost or live.draining or (live.state in TERMINAL and self.position >= live.seq):
                return None
            self.waiter = asyncio.get_running_loop().create_future()
            nudged = await self.waiter
            self.waiter = None
            if nudged and self.position >= live.shown_seq and self.open:
                return []
        return None

    async def _let_others(self) -> None:
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.throttle.admit(waiter)
        await waiter

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.throttle.admit(self.waiter)

    def nudge(self) -> None:
        """Let `batch` return [], so that the door sends a sign of life."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(True)

    def close(self) -> None:
        """End the stream: `batch` returns None from now on."""
        if self.open:
            self.open = False
            self.stats.streams -= 1
            self.ring.leave(self.wake)
            self.wake()

    def release(self) -> None:
        """End the stream, and let the task go."""
        self.close()
        self.released(self.live)

    async def _read(self) -> list[StreamFrame]:
        frames = await self._frames()
        for index, frame in enumerate(frames):
            if frame.state in self.ends:
                self.over = True
                frames = frames[: index + 1]
                break
        self.position = frames[-1].seq
        if self.reader is not None and len(frames[0].data) > BATCH_BYTES:
            return [await self._large(frames, self.reader)]
        if self.view is not None:
            frames = [frame._replace(data=self.view.event(frame.data)) for frame in frames]
        return frames

    async def _frames(self) -> list[StreamFrame]:
        """Return the next frames, as many as make a batch."""
        ring = self.ring.frames
        if ring and ring[0].seq <= self.position + 1:
            start = self.position + 1 - ring[0].seq
            return _batch(ring[start : start + BATCH])
        stored = await self.journal.read_entries(self.live.new.id, self.position, PAGE, wire=True, most=BATCH_BYTES)
        return [
            StreamFrame(entry.seq, entry.data, _state(entry.data) if entry.kind == kinds.STATUS else None)
            for entry in stored
        ]

    async def _large(self, frames: list[StreamFrame], reader: BodyReader) -> StreamFrame:
        """Return the one large frame as soon as there is room for it. The list is emptied."""
        frame = frames.pop()
        found, view = [Made(frame.data)], self.view
        if view is not None:
            found = [Made(view.event(frame.data))]
        frame = frame._replace(data=b"")

        async def make() -> Made:
            [entry] = await self.journal.read_entries(self.live.new.id, frame.seq - 1, 1, wire=True)
            return Made(entry.data if view is None else view.event(entry.data))

        key = ("event", self.live.new.id, frame.seq, *(() if view is None else view.uris))
        return frame._replace(data=(await reader.read(len(found[0].data), key, make, found)).data)


def _batch(frames: list[StreamFrame]) -> list[StreamFrame]:
    """Return the first of these frames that have BATCH_BYTES together, at least one."""
    size = 0
    for index, frame in enumerate(frames):
        size += len(frame.data)
        if index and size > BATCH_BYTES:
            return frames[:index]
    return frames


def _state(data: bytes) -> TaskState | None:
    event = raw_decoder(StreamResponse)(data).status_update
    return None if event is None else event.status.state
