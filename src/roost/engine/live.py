"""A task that something is happening to: its unwritten entries, its fold, its followers.

`write` adds entries, `take` hands them to the committer, `committed` shows them. Between
`take` and `committed` the fold is ahead of the disk, so readers wait for the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from roost.engine.ids import timestamp
from roost.engine.store_types import (
    Append,
    NewTask,
    Position,
    PushConfig,
    Reservation,
    Snapshot,
    Stored,
    TaskHead,
    Update,
)
from roost.engine.tenancy import KEY as TENANT
from roost.engine.turn import OUTPUT
from roost.engine.views import splice, split
from roost.protocol import entries as kinds
from roost.protocol.codec import decoder, encode
from roost.protocol.entries import NO_CHAIN, Entry, Received, link
from roost.protocol.errors import Moved, Unavailable
from roost.protocol.fold import apply_artifact, apply_message, apply_part, apply_status, new_task
from roost.protocol.states import SETTLED, TERMINAL, may_follow
from roost.protocol.types import (
    Message,
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

R = TypeVar("R")

SNAPSHOT_FLOOR = 64 * 1024
READ_WAIT_S = 5.0
"""How long a reader waits for a commit that is on its way."""
RING_ENTRIES = 1024
RING_BYTES = 1024 * 1024

Event = TaskStatusUpdateEvent | TaskArtifactUpdateEvent | Received | Part | None
"""What an entry does to the fold. A Part is appended to `output`."""


class StreamFrame(NamedTuple):
    """A committed wire entry, as followers see it."""

    seq: int
    data: bytes
    state: TaskState | None


class IllegalTransition(Exception):
    """The task is over, or cannot go there."""


class LiveTask:
    """Values that most tasks never change are the class's: a task is made for every message."""

    # As written, perhaps not yet committed.
    seq = 0
    sub = 0
    chain = NO_CHAIN
    ordinal = 0
    state: TaskState | None = None
    created = True
    head_moved = False
    size = 0
    dirty = False
    # As committed, or being committed.
    in_flight = False
    flying_bytes = 0
    settled_bytes: bytes | None = None
    shown_seq = 0
    unsnapped = 0
    snapshot_size = SNAPSHOT_FLOOR
    lost = False
    draining = False
    # What goes with the next append.
    reserve: Reservation | None = None
    push: PushConfig | None = None
    goes_on = False
    turn = False
    # What every event says.
    echo: dict[str, Any] | None = None
    piece_prefix = b""
    piece_suffix = b'}]},"append":true}}'
    # Those who watch.
    ring_bytes = 0
    busy = 0
    """Runs and requests that need this object kept."""

    def __init__(self, new: NewTask, head: TaskHead, touch: Callable[[LiveTask], None]) -> None:
        self.new = new
        self.touch = touch
        self.status_ms = head.status_time
        self.worker = head.worker
        self.fence = self.held_fence = head.fence
        self.hidden = head.hidden
        self.task: Task = new_task(new.id, new.context_id)
        self.entries: list[Entry] = []
        self.events: list[Event] = []
        self.flying: list[Entry] = []
        self.flying_states: dict[int, TaskState] = {}
        self.commit_waiters: list[asyncio.Future[None]] = []
        self.flying_waiters: list[asyncio.Future[None]] = []
        self.readers: list[tuple[Callable[[Task, int], Any], asyncio.Future[Any]]] = []
        self.settled: list[asyncio.Future[bytes]] = []
        self.followers: list[Callable[[], None]] = []
        self.ring: list[StreamFrame] = []

    @classmethod
    def begin(cls, new: NewTask, worker: str, hidden: bool, touch: Callable[[LiveTask], None]) -> LiveTask:
        live = cls(new, TaskHead(TaskState.SUBMITTED, new.created // 1000, worker, 1, hidden), touch)
        live.created = False
        return live

    @classmethod
    def restore(
        cls, stored: Stored, task: Task, last: Entry, tail_bytes: int, touch: Callable[[LiveTask], None]
    ) -> LiveTask:
        live = cls(stored.new, stored.head, touch)
        live.task = task
        live.seq, live.sub, live.chain, live.ordinal = last.seq, last.sub, last.chain, last.ordinal
        live.state = _state(stored.head, task)
        live.shown_seq = last.seq
        live.unsnapped = tail_bytes
        if (task.metadata or {}).get(TENANT) == stored.new.scope.tenant:
            live.echo = {TENANT: stored.new.scope.tenant}
        if stored.snapshot is not None:
            live.snapshot_size = max(SNAPSHOT_FLOOR, len(stored.snapshot.body) + len(stored.snapshot.artifacts))
        return live

    # Writing

    def write_status(
        self, now: int, state: TaskState, message: Message | None = None, metadata: dict[str, Any] | None = None
    ) -> None:
        if not may_follow(self.state, state):
            raise IllegalTransition(f"a task in {self.state} cannot become {state}")
        status = TaskStatus(state=state, message=message, timestamp=timestamp(now))
        if self.echo is not None:
            metadata = {**(metadata or {}), **self.echo}
        event = TaskStatusUpdateEvent(
            task_id=self.new.id, context_id=self.new.context_id, status=status, metadata=metadata
        )
        data = encode(StreamResponse(status_update=event))  # may fail: nothing has changed yet
        self.state = state
        self.status_ms = now // 1000
        if state in SETTLED:
            self.worker = None
        self.head_moved = True
        self._wire(kinds.STATUS, data, now, event)

    def write_artifact(self, now: int, event: TaskArtifactUpdateEvent) -> None:
        if self.state in TERMINAL:
            raise IllegalTransition(f"a task in {self.state} takes no more artifacts")
        if self.echo is not None:
            event.metadata = {**(event.metadata or {}), **self.echo}
        self._wire(kinds.ARTIFACT, encode(StreamResponse(artifact_update=event)), now, event)

    def write_piece(self, now: int, piece: str) -> None:
        """One more text part at the end of the artifact `output`, which exists: the commonest event of all.

        The same bytes as write_artifact's, put together from a prefix that does not change.
        """
        prefix = self.piece_prefix
        if not prefix:
            prefix = self.piece_prefix = (
                b'{"artifactUpdate":{"taskId":%b,"contextId":%b,"artifact":{"artifactId":"output","parts":[{"text":'
                % (encode(self.new.id), encode(self.new.context_id))
            )
            if self.echo is not None:
                self.piece_suffix = b'}]},"append":true,"metadata":%b}}' % encode(self.echo)
        self._wire(kinds.ARTIFACT, b"%b%b%b" % (prefix, encode(piece), self.piece_suffix), now, Part(text=piece))

    def write_message(self, now: int, received: Received) -> None:
        self._internal(kinds.MESSAGE, encode(received), now, received)

    def write_record(self, now: int, kind: str, record: Any) -> None:
        self._internal(kind, encode(record), now, None)

    def take_over(self, worker: str) -> None:
        """The next append makes this worker the writer and outdates every other."""
        self.fence += 1
        self.worker = worker
        self.head_moved = True

    def release(self) -> None:
        """Leave a task that is not over to whoever comes next: no one works on it, and nothing went wrong."""
        if not self.lost and self.state not in SETTLED:
            self.worker = None
            self.head_moved = True
            self._touched()

    def show(self) -> None:
        """From here on it is a task to everyone, not a direct exchange."""
        self.hidden = False
        self.head_moved = True
        self._touched()

    def end_direct(self) -> None:
        self.state = TaskState.COMPLETED
        self.worker = None
        self.head_moved = True

    def _wire(self, kind: str, data: bytes, now: int, event: Event) -> None:
        self._add(self.seq + 1, 0, kind, data, now, event)

    def _internal(self, kind: str, data: bytes, now: int, event: Event) -> None:
        self._add(self.seq, self.sub + 1, kind, data, now, event)

    def _add(self, seq: int, sub: int, kind: str, data: bytes, now: int, event: Event) -> None:
        self.seq, self.sub, ordinal = seq, sub, self.ordinal
        self.chain = chain = link(self.chain, seq, sub, kind, data, now, ordinal)
        self.entries.append(Entry(seq, sub, kind, data, now, ordinal, chain))
        self.events.append(event)
        self.size += len(data)
        if not self.dirty:
            self._touched()

    def _touched(self) -> None:
        if not self.dirty:
            self.dirty = True
            self.touch(self)

    def commit(self) -> asyncio.Future[None]:
        """Done when all that is written up to now is on disk. Each caller has a future of its own to cancel."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.lost:
            waiter.set_exception(Moved())
        elif self.dirty:
            self.commit_waiters.append(waiter)
        elif self.in_flight:
            self.flying_waiters.append(waiter)
        else:
            waiter.set_result(None)
        return waiter

    # Committing

    def take(self) -> Append:
        """Everything written so far, as one append; the fold now includes it."""
        entries, events = self.entries, self.events
        self.entries, self.events = [], []
        self.unsnapped += self.size
        self.flying_bytes, self.size = self.size, 0
        self.dirty = False
        self.in_flight = True
        self.flying = entries
        self.flying_waiters, self.commit_waiters = self.commit_waiters, []
        states = self.flying_states = {}
        task = self.task
        for entry, event in zip(entries, events, strict=True):
            if type(event) is Part:
                apply_part(task, OUTPUT, event)
            elif type(event) is TaskArtifactUpdateEvent:
                apply_artifact(task, event)
            elif type(event) is TaskStatusUpdateEvent:
                apply_status(task, event)
                states[entry.seq] = event.status.state
            elif type(event) is Received:
                apply_message(task, event)
        append = Append(self.new.id, self.held_fence, entries)
        self.held_fence = self.fence
        if not self.created:
            append.create = self.new
            self.created = True
            self.head_moved = True
        if self.head_moved:
            state = self.state or TaskState.UNSPECIFIED
            append.head = TaskHead(state, self.status_ms, self.worker, self.fence, self.hidden)
            self.head_moved = False
        if self.reserve is not None or self.push is not None or self.goes_on or self.turn:
            append.reserve, append.push, append.goes_on, append.turn = (
                self.reserve,
                self.push,
                self.goes_on,
                self.turn,
            )
            self.reserve = self.push = None
            self.goes_on = self.turn = False
        self.settled_bytes = None
        if (self.state in SETTLED and states) or self.unsnapped > self.snapshot_size:
            body, artifacts = split(task)
            append.snapshot = Snapshot(self.seq, self.sub, body, artifacts)
            self.unsnapped = 0
            self.snapshot_size = max(SNAPSHOT_FLOOR, len(body) + len(artifacts))
            if self.state in SETTLED:
                self.settled_bytes = splice(body, artifacts)
        return append

    def committed(self) -> None:
        """The append is on disk: show it."""
        self.in_flight = False
        entries, self.flying = self.flying, []
        self.flying_bytes = 0
        if entries:
            self.shown_seq = entries[-1].seq
        for look, reader in self.readers:
            if not reader.done():
                reader.set_result(look(self.task, self.shown_seq))
        self.readers.clear()
        if self.followers:
            self._show(entries)
        waiters, self.flying_waiters = self.flying_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self.settled_bytes is not None:
            for future in self.settled:
                if not future.done():
                    future.set_result(self.settled_bytes)
            self.settled.clear()
            self.settled_bytes = None

    def absorb(self, update: Update) -> None:
        """What another process has written. While this one writes, its own commit tells who was faster."""
        if self.dirty or self.in_flight or self.lost or update.head.fence < self.fence:
            return
        head, entries = update.head, [e for e in update.entries if (e.seq, e.sub) > (self.seq, self.sub)]
        states: dict[int, TaskState] = {}
        for entry in entries:
            self._apply(entry, states)
        if entries:
            last = entries[-1]
            self.seq, self.sub, self.chain, self.ordinal = last.seq, last.sub, last.chain, last.ordinal
            self.shown_seq = last.seq
            self.unsnapped += sum(len(entry.data) for entry in entries)
        self.fence = self.held_fence = head.fence
        self.worker, self.hidden, self.status_ms = head.worker, head.hidden, head.status_time
        self.state = _state(head, self.task)
        if self.followers:
            self.flying_states = states
            self._show(entries)

    def _apply(self, entry: Entry, states: dict[int, TaskState]) -> None:
        if entry.kind == kinds.MESSAGE:
            apply_message(self.task, decoder(Received)(entry.data))
        elif entry.sub == 0:
            event = decoder(StreamResponse)(entry.data)
            if event.status_update is not None:
                apply_status(self.task, event.status_update)
                states[entry.seq] = event.status_update.status.state
            elif event.artifact_update is not None:
                apply_artifact(self.task, event.artifact_update)

    @property
    def position(self) -> Position:
        return Position(self.new.id, self.seq, self.sub)

    def refused(self, error: Exception) -> None:
        """The append was not committed and never will be: nobody may believe this object any more."""
        self.lost = True
        self.in_flight = False
        self.dirty = True  # and never handed to the committer again
        waiters = [*self.flying_waiters, *self.commit_waiters, *(reader for _, reader in self.readers), *self.settled]
        self.flying_waiters, self.commit_waiters = [], []
        self.readers.clear()
        self.settled.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # heard or not, it is no surprise
        self._wake()

    def end_streams(self) -> None:
        """Followers end after what is committed."""
        self.draining = True
        self._wake()

    def _show(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.sub == 0:
                self.ring.append(StreamFrame(entry.seq, entry.data, self.flying_states.get(entry.seq)))
                self.ring_bytes += len(entry.data)
        while self.ring and (len(self.ring) > RING_ENTRIES or self.ring_bytes > RING_BYTES):
            cut = len(self.ring) // 2 or 1
            self.ring_bytes -= sum(len(frame.data) for frame in self.ring[:cut])
            del self.ring[:cut]
        self._wake()

    def _wake(self) -> None:
        for wake in list(self.followers):
            wake()

    # Reading

    async def read(self, look: Callable[[Task, int], R]) -> R:
        """What `look` makes of the task as committed, and the seq that it includes."""
        if self.lost:
            raise Moved
        if not self.in_flight:
            return look(self.task, self.shown_seq)
        reader: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.readers.append((look, reader))
        try:
            async with asyncio.timeout(READ_WAIT_S):
                return await reader
        except TimeoutError:
            raise Unavailable("the store cannot write now; try again later", retry_after=1) from None

    def when_settled(self) -> asyncio.Future[bytes]:
        """The task's bytes as of the next commit that ends or pauses it."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.settled.append(future)
        return future

    @property
    def idle(self) -> bool:
        awaited = any(not future.done() for future in self.settled)
        return not (self.busy or self.followers or self.readers or awaited or self.dirty or self.in_flight)


def _state(head: TaskHead, task: Task) -> TaskState:
    """The fold's: it may be newer than the head. A direct exchange has no status of its own end."""
    return head.state if head.hidden or task.status.state is TaskState.UNSPECIFIED else task.status.state
