"""A live task: a task in the memory of its worker, with its uncommitted entries, its fold and its readers.

`write_*` adds entries, `take` passes them to the committer, `committed` shows them. Between `take` and `committed` the
fold is ahead of the disk, so readers wait for the commit.

             write                take                committed
    CLEAN ---------> DIRTY ---------------> COMMITTING ---------> CLEAN
                                            | write
                                            v         committed
                                       COMMITTING_DIRTY ---------> DIRTY
    any phase -- refused --> LOST

Only LiveTask changes its fields; others call its methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, TypeVar

from roost.engine.ids import timestamp
from roost.engine.ring import Ring, StreamFrame
from roost.engine.store_types import (
    Append,
    NewTask,
    Position,
    PushConfig,
    Reservation,
    Stored,
    TaskHead,
    Update,
)
from roost.engine.task_fold import Event, States, TaskFold
from roost.engine.views import splice
from roost.protocol import entries as kinds
from roost.protocol.codec import encode
from roost.protocol.entries import NO_CHAIN, Entry, Received, link
from roost.protocol.errors import Moved, Unavailable
from roost.protocol.fold import new_task
from roost.protocol.raw import folded
from roost.protocol.states import SETTLED, TERMINAL, may_follow
from roost.protocol.types import (
    JSONObject,
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


class NotCommitted(Unavailable):
    """The store refuses what was written to the task, which is tried again: what is committed is in the journal."""


READ_WAIT_S = 5.0
"""Seconds that a reader waits for a commit in progress."""


class Phase(Enum):
    """Where a live task stands between memory and disk."""

    CLEAN = auto()
    """Everything that was written is committed."""
    DIRTY = auto()
    """There are entries that the committer has not taken yet."""
    COMMITTING = auto()
    """The committer has taken an append and waits for the store."""
    COMMITTING_DIRTY = auto()
    """The same, and there are newer entries, which wait for that commit."""
    LOST = auto()
    """An append was refused, or another worker has the task: nobody may rely on this object any more."""


CLEAN, DIRTY, COMMITTING, COMMITTING_DIRTY, LOST = Phase


class IllegalTransition(Exception):
    """The task is over, or cannot change to this state."""


class LiveTask:
    """Values that most tasks never change are the class's, because a task is made for every message."""

    phase = CLEAN
    # As written, perhaps not yet committed.
    seq = 0
    sub = 0
    chain = NO_CHAIN
    ordinal = 0
    """How many emissions the agent had made when the last entry was written."""
    state: TaskState | None = None
    head_moved = False
    size = 0
    """Bytes of the entries that the committer has not taken yet."""
    # As committed, or being committed.
    flying_bytes = 0
    settled_bytes: bytes | None = None
    shown_seq = 0
    """The seq of the last committed wire entry."""
    is_delayed = False
    """The append that is being committed was refused before."""
    version_before = NO_CHAIN
    """The version of the fold without the append that is being committed."""
    draining = False
    """Streams end after what is committed."""
    # What the next append carries beside its entries.
    reserve: Reservation | None = None
    push: PushConfig | None = None
    goes_on = False
    turn = False
    # Text pieces are encoded from a prefix and a suffix that do not change.
    piece_prefix = b""
    piece_suffix = b'}]},"append":true}}'

    ring: Ring | None = None
    """The followers and their frames; made for the first follower."""
    holds = 0
    """Runs and requests that need this object kept."""

    def __init__(
        self,
        new: NewTask,
        head: TaskHead,
        touch: Callable[[LiveTask], None],
        *,
        created: bool = True,
        stamp: JSONObject | None = None,
        fold: TaskFold | None = None,
    ) -> None:
        self.new = new
        self.touch = touch
        self.created = created
        """The store has the task's row, or is about to."""
        self.stamp = stamp
        """Metadata that every event carries."""
        self.status_ms = head.status_time
        self.worker = head.worker
        self.fence = self.held_fence = head.fence
        self.hidden = head.hidden
        self.fold = fold or TaskFold(new_task(new.id, new.context_id))
        self.entries: list[Entry] = []
        self.events: list[Event] = []
        self.flying: list[Entry] = []
        self.flying_states: States = {}
        self.commit_waiters: list[asyncio.Future[None]] = []
        self.flying_waiters: list[asyncio.Future[None]] = []
        self.readers: list[tuple[Callable[[Task, int], Any], asyncio.Future[Any]]] = []
        self.settled: list[asyncio.Future[bytes]] = []

    @classmethod
    def begin(
        cls,
        new: NewTask,
        worker: str,
        touch: Callable[[LiveTask], None],
        *,
        hidden: bool,
        stamp: JSONObject | None,
        reserve: Reservation | None,
        push: PushConfig | None,
        turn: bool,
    ) -> LiveTask:
        """A task that the next append creates. `turn`: it is the first in its context, and has the turn there."""
        head = TaskHead(TaskState.SUBMITTED, new.created // 1000, worker, 1, hidden)
        live = cls(new, head, touch, created=False, stamp=stamp)
        if reserve is not None or push is not None or turn:
            live.reserve, live.push, live.turn = reserve, push, turn
        return live

    @classmethod
    def restore(
        cls,
        stored: Stored,
        task: Task,
        last: Entry,
        tail_bytes: int,
        touch: Callable[[LiveTask], None],
        stamp: JSONObject | None,
    ) -> LiveTask:
        """A task as the journal has it. `last` is its last entry, `tail_bytes` the size of those since the snapshot."""
        live = cls(
            stored.new,
            stored.head,
            touch,
            stamp=stamp,
            fold=TaskFold.restore(task, tail_bytes, stored.snapshot, last.chain),
        )
        live.seq, live.sub, live.chain, live.ordinal = last.seq, last.sub, last.chain, last.ordinal
        live.state = _state(stored.head, task)
        live.shown_seq = last.seq
        return live

    @property
    def task(self) -> Task:
        """The fold. While an append is being committed, it is ahead of the disk."""
        return self.fold.task

    @property
    def lost(self) -> bool:
        return self.phase is LOST

    @property
    def committing(self) -> bool:
        return self.phase is COMMITTING or self.phase is COMMITTING_DIRTY

    @property
    def uncommitted(self) -> bool:
        """Something is written that is not on disk yet."""
        return self.phase is not CLEAN and self.phase is not LOST

    @property
    def over(self) -> bool:
        """The task has ended, and its end is on disk."""
        return self.state in TERMINAL and self.phase is CLEAN

    # Writing

    def write_status(
        self,
        now: int,
        state: TaskState,
        message: Message | None = None,
        metadata: JSONObject | None = None,
        ordinal: int | None = None,
    ) -> None:
        if not may_follow(self.state, state):
            raise IllegalTransition(f"a task in {self.state} cannot become {state}")
        status = TaskStatus(state=state, message=message, timestamp=timestamp(now))
        if self.stamp is not None:
            metadata = {**(metadata or {}), **self.stamp}
        event = TaskStatusUpdateEvent(
            task_id=self.new.id, context_id=self.new.context_id, status=status, metadata=metadata
        )
        data = encode(StreamResponse(status_update=event))  # may fail: nothing has changed yet
        self.state = state
        self.status_ms = now // 1000
        if state in SETTLED:
            self.worker = None
        self.head_moved = True
        self._wire(kinds.STATUS, data, now, event, ordinal)

    def write_artifact(self, now: int, event: TaskArtifactUpdateEvent, ordinal: int) -> None:
        if self.state in TERMINAL:
            raise IllegalTransition(f"a task in {self.state} takes no more artifacts")
        if self.stamp is not None:
            event.metadata = {**(event.metadata or {}), **self.stamp}
        self._wire(kinds.ARTIFACT, encode(StreamResponse(artifact_update=event)), now, event, ordinal)

    def write_piece(self, now: int, piece: str, ordinal: int) -> None:
        """Append a text part to the artifact `output`, which exists: the commonest event of all.

        The bytes are those of `write_artifact`, put together from a prefix that does not change.
        """
        prefix = self.piece_prefix
        if not prefix:
            prefix = self.piece_prefix = (
                b'{"artifactUpdate":{"taskId":%b,"contextId":%b,"artifact":{"artifactId":"output","parts":[{"text":'
                % (encode(self.new.id), encode(self.new.context_id))
            )
            if self.stamp is not None:
                self.piece_suffix = b'}]},"append":true,"metadata":%b}}' % encode(self.stamp)
        data = b"%b%b%b" % (prefix, encode(piece), self.piece_suffix)
        self._wire(kinds.ARTIFACT, data, now, Part(text=piece), ordinal)

    def write_message(self, now: int, received: Received) -> None:
        kept = folded(received)
        self._internal(kinds.MESSAGE, encode(kept), now, kept, None)

    def write_record(self, now: int, kind: str, record: Any, ordinal: int | None = None) -> None:
        self._internal(kind, encode(record), now, None, ordinal)

    def write_answer(self, now: int, received: Received, worker: str, reserve: Reservation | None) -> None:
        """Let a paused task continue with an answer. The next append makes `worker` the writer."""
        self.take_over(worker)
        self.reserve, self.goes_on = reserve, True
        self.write_message(now, received)
        self.write_status(now, TaskState.WORKING)

    def end_paused(self, now: int, state: TaskState, worker: str, message: Message | None = None) -> None:
        """End a task that nobody runs. If its webhooks are at rest, they become due."""
        if self.worker != worker:
            self.take_over(worker)
            self.goes_on = True
        self.write_status(now, state, message)

    def take_over(self, worker: str) -> None:
        """Make this worker the writer with the next append, which outdates every other."""
        self.fence += 1
        self.worker = worker
        self.head_moved = True

    def adopt(self, worker: str, fence: int) -> None:
        """Become the writer: the store has already given the task to this worker, with this fence."""
        self.fence = self.held_fence = fence
        self.worker = worker

    def release(self) -> None:
        """Leave a task that is not over to whoever comes next. Nobody runs it, and nothing went wrong."""
        if self.phase is not LOST and self.state not in SETTLED:
            self.worker = None
            self.head_moved = True
            self._touched()

    def show(self) -> None:
        """Make a direct exchange a task that clients see."""
        self.hidden = False
        self.head_moved = True
        self._touched()

    def end_direct(self) -> None:
        self.state = TaskState.COMPLETED
        self.worker = None
        self.head_moved = True

    def _wire(self, kind: str, data: bytes, now: int, event: Event, ordinal: int | None) -> None:
        self._add(self.seq + 1, 0, kind, data, now, event, ordinal)

    def _internal(self, kind: str, data: bytes, now: int, event: Event, ordinal: int | None) -> None:
        self._add(self.seq, self.sub + 1, kind, data, now, event, ordinal)

    def _add(self, seq: int, sub: int, kind: str, data: bytes, now: int, event: Event, ordinal: int | None) -> None:
        if ordinal is None:
            ordinal = self.ordinal
        else:
            self.ordinal = ordinal
        self.seq, self.sub = seq, sub
        self.chain = chain = link(self.chain, seq, sub, kind, data, now, ordinal)
        self.entries.append(Entry(seq, sub, kind, data, now, ordinal, chain))
        self.events.append(event)
        self.size += len(data)
        if self.phase is CLEAN or self.phase is COMMITTING:
            self._touched()

    def _touched(self) -> None:
        phase = self.phase
        if phase is CLEAN:
            self.phase = DIRTY
            self.touch(self)
        elif phase is COMMITTING:
            self.phase = COMMITTING_DIRTY
            self.touch(self)

    def commit(self) -> asyncio.Future[None]:
        """Return a future that is done when everything written until now is on disk. Each caller has its own."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        phase = self.phase
        if phase is LOST:
            waiter.set_exception(Moved())
        elif phase is DIRTY or phase is COMMITTING_DIRTY:
            self.commit_waiters.append(waiter)
        elif phase is COMMITTING:
            self.flying_waiters.append(waiter)
        else:
            waiter.set_result(None)
        return waiter

    # Committing

    def take(self) -> Append:
        """Return everything written so far as one append. The fold now includes it."""
        entries, events = self.entries, self.events
        self.entries, self.events = [], []
        self.version_before = self.fold.version
        states = self.flying_states = self.fold.apply(entries, events, self.size)
        self.flying_bytes, self.size = self.size, 0
        self.phase = COMMITTING
        self.flying = entries
        self.flying_waiters, self.commit_waiters = self.commit_waiters, []
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
        if (states and self.state in SETTLED) or self.fold.snapshot_due:
            append.snapshot = snapshot = self.fold.snapshot(self.seq, self.sub)
            if self.state in SETTLED:
                self.settled_bytes = splice(snapshot.body, snapshot.artifacts)
        return append

    def committed(self) -> None:
        """Show the append, which is on disk now."""
        self.phase = CLEAN if self.phase is COMMITTING else DIRTY
        self.is_delayed = False
        entries, self.flying = self.flying, []
        self.flying_bytes = 0
        if entries:
            self.shown_seq = entries[-1].seq
        for look, reader in self.readers:
            if not reader.done():
                reader.set_result(look(self.task, self.shown_seq))
        self.readers.clear()
        if self.ring:
            self._show(entries, self.flying_states)
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

    def delayed(self) -> None:
        """The append was not committed, and is tried again. Readers do not wait for it."""
        self.is_delayed = True
        for _, reader in self.readers:
            if not reader.done():
                reader.set_exception(_not_committed())
        self.readers.clear()

    def absorb(self, update: Update) -> None:
        """Apply what another process has written. While this one writes, its own commit shows who was faster."""
        if self.phase is not CLEAN or update.head.fence < self.fence:
            return
        head, entries = update.head, [e for e in update.entries if (e.seq, e.sub) > (self.seq, self.sub)]
        states = self.fold.apply_stored(entries)
        if entries:
            last = entries[-1]
            self.seq, self.sub, self.chain, self.ordinal = last.seq, last.sub, last.chain, last.ordinal
            self.shown_seq = last.seq
        self.fence = self.held_fence = head.fence
        self.worker, self.hidden, self.status_ms = head.worker, head.hidden, head.status_time
        self.state = _state(head, self.task)
        if self.ring:
            self._show(entries, states)

    @property
    def version(self) -> bytes:
        """The version of the fold that is on disk: a reader never gets an older one."""
        return self.version_before if self.committing else self.fold.version

    @property
    def position(self) -> Position:
        return Position(self.new.id, self.seq, self.sub)

    def refused(self, error: Exception) -> None:
        """The append was not committed and never will be: all who wait get `error`, and streams end."""
        self.phase = LOST
        waiters = [*self.flying_waiters, *self.commit_waiters, *(reader for _, reader in self.readers), *self.settled]
        self.flying_waiters, self.commit_waiters = [], []
        self.readers.clear()
        self.settled.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # marks it as retrieved: the client may be gone
        if self.ring:
            self.ring.wake()

    # Reading

    def follow(self, wake: Callable[[], None]) -> Ring:
        """Add a follower to the ring, which calls `wake` when there is something new."""
        if self.ring is None:
            self.ring = Ring()
        self.ring.join(wake)
        return self.ring

    def end_streams(self) -> None:
        """Let followers end after what is committed."""
        self.draining = True
        if self.ring:
            self.ring.wake()

    def _show(self, entries: list[Entry], states: States) -> None:
        assert self.ring is not None
        self.ring.show([StreamFrame(one.seq, one.data, states.get(one.seq)) for one in entries if one.sub == 0])

    async def read(self, look: Callable[[Task, int], R]) -> R:
        """Return what `look` makes of the task as committed and the seq that it includes.

        NotCommitted while the store refuses an append that the fold has already: LiveTasks.look reads the journal then.
        """
        if self.phase is LOST:
            raise Moved
        if not self.committing:
            return look(self.task, self.shown_seq)
        if self.is_delayed:
            raise _not_committed()
        reader: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.readers.append((look, reader))
        try:
            async with asyncio.timeout(READ_WAIT_S):
                return await reader
        except TimeoutError:
            raise Unavailable(_CANNOT_WRITE, retry_after=1) from None

    def when_settled(self) -> asyncio.Future[bytes]:
        """Return a future with the task's bytes as of the next commit that ends or pauses it."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.settled.append(future)
        return future

    # Holding

    def hold(self) -> None:
        self.holds += 1

    def unhold(self) -> None:
        self.holds -= 1

    @property
    def idle(self) -> bool:
        """Nothing happens to the task here, so this object may be forgotten."""
        if self.holds or self.ring or self.readers or self.uncommitted:
            return False
        return not self.settled or all(future.done() for future in self.settled)


_CANNOT_WRITE = "the store cannot write now; try again later"


def _not_committed() -> NotCommitted:
    return NotCommitted(_CANNOT_WRITE, retry_after=1)


def _state(head: TaskHead, task: Task) -> TaskState:
    """The fold's state, which may be newer than the head's. A direct exchange has no status of its own end."""
    return head.state if head.hidden or task.status.state is TaskState.UNSPECIFIED else task.status.state
