"""The values that pass between the engine and a store: rows, appends, queries, and the errors of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from msgspec import Struct

from roost.protocol.entries import Entry
from roost.protocol.types import TaskState

# Tasks


class Scope(NamedTuple):
    """The tenant, owner and agent that a task belongs to. The same id in another scope is another object."""

    tenant: str
    owner: str
    agent: str


class NewTask(NamedTuple):
    """The part of a task's row that never changes."""

    id: str
    scope: Scope
    context_id: str
    created: int
    """Microseconds."""


class TaskHead(NamedTuple):
    """The part of a task's row that changes with its status."""

    state: TaskState
    status_time: int
    """Milliseconds, as clients see it. Tasks are listed by this time."""
    worker: str | None
    """The worker that runs the task; None while it is paused or over."""
    fence: int
    hidden: bool
    """A direct exchange, or one that may still become one. It is in the journal, but clients see no task."""


class Snapshot(NamedTuple):
    """The fold up to (seq, sub), the last entry of the append that carries it.

    `body` is the Task as JSON without artifacts, `artifacts` is their array.
    """

    seq: int
    sub: int
    body: bytes
    artifacts: bytes


class Withheld(NamedTuple):
    """A snapshot that was too large to be read."""

    seq: int
    sub: int
    size: int
    """The bytes of its body and artifacts."""


class Stored(NamedTuple):
    """A task as the store has it."""

    new: NewTask
    head: TaskHead
    snapshot: Snapshot | None
    withheld: Withheld | None = None
    """In place of the snapshot, where the reader asked for smaller ones only."""


MOST_BYTES = 8 * 1024 * 1024
"""Bytes that are read from the store at once: of snapshots for a page, or of entries."""


class ListQuery(NamedTuple):
    """One page of ListTasks."""

    scope: Scope
    context_id: str
    state: TaskState
    after: datetime | None
    """Only tasks whose status is at or after this time."""
    cursor: tuple[int, str] | None
    """The (status_time, id) of the last task of the page before."""
    limit: int
    artifacts: bool
    most: int = MOST_BYTES
    """The page ends before its snapshots are larger than this together, but never before the first task."""
    unread: int | None = None
    """If the snapshots of the page are larger than this together, none is read, and only the page's size returned."""


class TaskPage(NamedTuple):
    tasks: list[Stored]
    total: int
    """Exact up to COUNT_CAP, and COUNT_CAP beyond that."""
    size: int = 0
    """The bytes of the page's snapshots."""
    cut: bool = False
    """The page ended because of its bytes: there are more tasks."""


COUNT_CAP = 10_000


def page_end(sizes: Sequence[int], most: int) -> tuple[int, int]:
    """Return how many of these snapshots fit on a page of `most` bytes, at least one, and their bytes together."""
    together = 0
    for index, size in enumerate(sizes):
        if index and together + size > most:
            return index, together
        together += size
    return len(sizes), together


class Position(NamedTuple):
    """The last entry of a task that a reader knows."""

    task_id: str
    seq: int
    sub: int


class Update(NamedTuple):
    """The entries that a reader does not know yet, and the head as of the same moment."""

    task_id: str
    head: TaskHead
    entries: list[Entry]


class Adopted(NamedTuple):
    """A task that this worker may run now."""

    task_id: str
    fence: int
    handed_over: bool
    """The last worker left the task on purpose, so nothing went wrong."""
    lost: str = ""
    """The worker whose lease had ended. It may be alive. Empty if the task was handed over, or if it is not known."""
    tasks: int = 0
    """The active tasks that named that worker before any of them was adopted, this one included."""


MOST_LOST = 1000
"""Lost workers that are remembered."""


class LostTasks:
    """Remembers how many tasks each lost worker had before the first of them was adopted: later ones are fewer."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}

    def remember(self, found: list[Adopted]) -> list[Adopted]:
        for task in found:
            self.most[task.lost] = max(task.tasks, self.most.pop(task.lost, 0))
        adopted = [task._replace(tasks=self.most[task.lost]) for task in found]
        for lost in list(self.most)[:-MOST_LOST]:
            del self.most[lost]
        return adopted


def adopted_from(task_id: str, fence: int, worker: str | None, tasks: Mapping[str, int]) -> Adopted:
    """Return a task that was taken from `worker`. `tasks` are the numbers of active tasks by worker."""
    return Adopted(task_id, fence, True) if worker is None else Adopted(task_id, fence, False, worker, tasks[worker])


class Tombstone(NamedTuple):
    """The remains of a pruned task."""

    task_id: str
    scope: Scope
    state: TaskState
    status_time: int
    seq: int
    chain: bytes
    """The chain of the last entry, which proves that a copy of the task is complete."""
    pruned: int
    """Milliseconds."""


# Appends


class Reservation(NamedTuple):
    """The claim of a message to be the only one with its key."""

    key: bytes
    """A digest of 16 bytes over the scope and the messageId."""
    fingerprint: str
    """SHA-256 of the canonical request, in hex."""
    ttl_s: int


class Reserved(NamedTuple):
    """A reservation as the store has it, with the append that made it."""

    task_id: str
    seq: int
    """The last entry of that append. The first response showed the task as of this entry."""
    fingerprint: str


class PushConfig(NamedTuple):
    """A webhook of a task: a cursor into its journal."""

    task_id: str
    id: str
    sealed: bytes
    """The webhook as JSON, encrypted, so that no store knows its secrets."""
    cursor: int
    """The seq of the last entry that was delivered, or given up."""


class Append(Struct, array_like=True):
    """Everything that one task adds in one commit."""

    task_id: str
    fence: int
    """The fence that the writer holds. The store refuses the append if the row has another one."""
    entries: list[Entry]
    create: NewTask | None = None
    head: TaskHead | None = None
    snapshot: Snapshot | None = None
    reserve: Reservation | None = None
    """The store refuses this append alone, with Taken, if another append holds a valid reservation of the key."""
    push: PushConfig | None = None
    """The webhook that came with the message of a new task. It is due at once, and the head's worker holds it."""
    goes_on: bool = False
    """A paused task continues: its webhooks at rest become due, and the head's worker holds them."""
    turn: bool = False
    """A new task in a new context. No other task can be before it, so it has the turn."""


# Webhooks


class Push(NamedTuple):
    """A webhook as the store has it."""

    config: PushConfig
    agent: str
    created: int
    """Milliseconds."""
    holder: str | None
    """The worker that delivers it."""
    due: int | None
    """When it has to be looked at next, in milliseconds. None at rest: everything is delivered, and the task waits
    or is over."""
    attempts: int
    """Failed attempts at the entry after the cursor."""
    buried: int
    """Dead letters in a row."""
    paused: bool
    error: str
    """The last error."""


class DeadLetter(NamedTuple):
    """An entry that a webhook did not accept."""

    task_id: str
    config_id: str
    seq: int
    attempts: int
    error: str
    time: int
    """Milliseconds."""


class CursorMove(NamedTuple):
    """The outcome of a delivery: the new position of the cursor, and when to continue."""

    task_id: str
    config_id: str
    cursor: int
    attempts: int
    buried: int
    paused: bool
    error: str
    delay_s: float | None
    """Seconds until the webhook is due again; None puts it to rest."""
    keep: bool
    """The worker still holds it; otherwise any worker may take it when it is due."""
    dead: DeadLetter | None = None


# Usage


class UsageDelta(NamedTuple):
    """A change of what is kept in a scope."""

    tenant: str
    owner: str
    agent: str
    tasks: int
    size: int
    """Bytes of entries and snapshots, as `stats.size_of` counts them."""


class StoredUsage(NamedTuple):
    """The usage of a tenant, an owner or an agent, summed over all scopes that name it."""

    name: str
    tasks: int
    size: int
    """Bytes, approximately: if a host is killed, its last second is not counted."""


Party = Literal["tenant", "owner", "agent"]
"""The parts of a scope that usage is counted for."""


# Errors


class StaleFence(Exception):
    """The task has another writer now."""


class Taken(Exception):
    """The message is already on record."""

    def __init__(self, reserved: Reserved) -> None:
        super().__init__(f"task {reserved.task_id} has this message")
        self.reserved = reserved


Refusal = StaleFence | Taken
"""Why a store refused one append of a group."""


class StoreUnavailable(Exception):
    """The store did not commit, and nothing was acknowledged."""


class StoreMisplaced(StoreUnavailable):
    """The files of the store are no longer where it was opened, so nothing is committed into them.

    The message says what happened and what to do. It names no folder, so that anyone may read it.
    """


class OutcomeUnknown(StoreUnavailable):
    """The store may or may not have committed, so the same group has to be tried again."""
