"""What the engine asks of a store. Stores implement these ports; hosted.py has what it asks of an agent.

door -> Engine -> Committer -> Journal.commit   (many tasks, one fsync)
          |           '-> LiveTask -> followers (only what is committed)
          '-> Runner -> HostedAgent.run(Run)    (emissions become entries)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from roost.identity.ports import Identities
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState


class Scope(NamedTuple):
    """Where a task lives. The same id in another scope is another object."""

    tenant: str
    owner: str
    agent: str


class NewTask(NamedTuple):
    """The part of a task's row that never changes."""

    id: str
    scope: Scope
    context_id: str
    created: int


class TaskHead(NamedTuple):
    """The part of a task's row that moves with its status."""

    state: TaskState
    status_time: int
    """Milliseconds, as clients see it; the key by which tasks are listed."""
    worker: str | None
    """Who runs the task; None while it is paused or over."""
    fence: int
    hidden: bool
    """A direct exchange, or one that may yet become one: in the journal, but no task to anyone."""


class Snapshot(NamedTuple):
    """The fold up to (seq, sub), the last entry of the append that brings it.

    `body` is the Task as JSON without artifacts, `artifacts` their array.
    """

    seq: int
    sub: int
    body: bytes
    artifacts: bytes


class Reservation(NamedTuple):
    """The right to be the one task, or the one answer, that a message makes."""

    key: bytes
    """16 bytes: a digest of the scope and the messageId."""
    fingerprint: str
    """SHA-256 of the canonical request, hex."""
    ttl_s: int


class Reserved(NamedTuple):
    """Who has a reservation: the append that brought it."""

    task_id: str
    seq: int
    """Of the append's last entry: the task as of then is what the message was answered with at first."""
    fingerprint: str


class PushConfig(NamedTuple):
    """A webhook of a task: a cursor into its journal."""

    task_id: str
    id: str
    sealed: bytes
    """The TaskPushNotificationConfig as JSON, encrypted: no store knows its secrets."""
    cursor: int
    """Seq of the last entry that was delivered, or given up."""


class Push(NamedTuple):
    """A config as the store has it."""

    config: PushConfig
    agent: str
    created: int
    """Milliseconds."""
    holder: str | None
    """The worker that delivers it."""
    due: int | None
    """Milliseconds: when it is to be looked at next. None at rest: all is delivered and the task waits or is over."""
    attempts: int
    """Of the entry after the cursor, that failed."""
    buried: int
    """Dead letters in a row."""
    paused: bool
    error: str
    """What went wrong last."""


class DeadLetter(NamedTuple):
    """An entry that a webhook did not take."""

    task_id: str
    config_id: str
    seq: int
    attempts: int
    error: str
    time: int
    """Milliseconds."""


class CursorMove(NamedTuple):
    """What became of a delivery: the new place of a cursor, and when to go on."""

    task_id: str
    config_id: str
    cursor: int
    attempts: int
    buried: int
    paused: bool
    error: str
    delay_s: float | None
    """From now to the next look; None: at rest."""
    keep: bool
    """The worker goes on holding it; otherwise anyone may take it when it is due."""
    dead: DeadLetter | None = None


class Append(Struct, array_like=True):
    """What one task adds in one commit."""

    task_id: str
    fence: int
    """The fence that the writer holds; the append is refused if the row has another one."""
    entries: list[Entry]
    create: NewTask | None = None
    head: TaskHead | None = None
    snapshot: Snapshot | None = None
    reserve: Reservation | None = None
    """Refused alone, with Taken, if another append has it and it has not run out."""
    push: PushConfig | None = None
    """Of a new task: the webhook that came with the message, due at once and held by the head's worker."""
    goes_on: bool = False
    """A paused task that works again: its configs at rest are due, held by the head's worker."""
    turn: bool = False
    """Of a new task: nobody else can know its context yet, so the turn in it is its own."""


class Stored(NamedTuple):
    """A task as the store has it."""

    new: NewTask
    head: TaskHead
    snapshot: Snapshot | None


class ListQuery(NamedTuple):
    scope: Scope
    context_id: str
    state: TaskState
    after: datetime | None
    """Only tasks whose status is at or after this time."""
    cursor: tuple[int, str] | None
    """(status_time, id) of the last task of the page before."""
    limit: int
    artifacts: bool


class TaskPage(NamedTuple):
    tasks: list[Stored]
    total: int
    """Exact up to COUNT_CAP and capped there."""


COUNT_CAP = 10_000


class StaleFence(Exception):
    """The task has another writer now."""


class Taken(Exception):
    """The message is on record already."""

    def __init__(self, reserved: Reserved) -> None:
        super().__init__(f"the message is that of task {reserved.task_id}")
        self.reserved = reserved


Refusal = StaleFence | Taken


class StoreUnavailable(Exception):
    """The store did not commit; nothing was acknowledged."""


class OutcomeUnknown(StoreUnavailable):
    """Whether the store committed cannot be told: the same group has to be tried again."""


class Position(NamedTuple):
    """How far a reader knows a task."""

    task_id: str
    seq: int
    sub: int


class Update(NamedTuple):
    """What a reader does not know yet, with the head as of the same moment."""

    task_id: str
    head: TaskHead
    entries: list[Entry]


class Adopted(NamedTuple):
    """A task that this worker may run now."""

    task_id: str
    fence: int
    handed_over: bool
    """Its last worker left it on purpose: nothing went wrong."""


class Tombstone(NamedTuple):
    """What is left of a task whose retention is over."""

    task_id: str
    scope: Scope
    state: TaskState
    status_time: int
    seq: int
    chain: bytes
    """Of its last entry: a copy of the task can still be proven."""
    pruned: int
    """Milliseconds."""


class UsageDelta(NamedTuple):
    """What came into a scope, or went."""

    tenant: str
    owner: str
    agent: str
    tasks: int
    size: int
    """Bytes of entries and snapshots, as stats.size_of counts them."""


class StoredUsage(NamedTuple):
    """An account of what is kept for a tenant, an owner or an agent, in all scopes that name it."""

    name: str
    tasks: int
    size: int
    """Bytes, about: what a host wrote in its last second is lost to the account if the host is killed."""


Party = Literal["tenant", "owner", "agent"]
"""Who can have an account: the parts of a scope."""


class JournalReader(Protocol):
    """The methods that read tasks and their entries."""

    async def read_task(self, task_id: str, owner: str | None = None) -> Stored | None:
        """None too if the task is not the owner's, and then nothing more is read than for one that there is not."""

    async def read_entries(self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0) -> list[Entry]:
        """Entries in order, from those after (after, sub): wire entries only, or all of them."""

    async def read_internal(self, task_id: str) -> list[Entry]:
        """The internal entries of a task, in order."""

    async def read_updates(self, positions: Sequence[Position], limit: int) -> list[Update]:
        """For each task that there is: its head, and up to about `limit` entries after the position, in one read."""

    async def list_tasks(self, query: ListQuery) -> TaskPage: ...

    async def close(self) -> None: ...


class Journal(JournalReader, Protocol):
    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        """Write the group in one transaction and return when it is on disk.

        A stale append, or one whose reservation is another's, is refused alone; the rest is not
        harmed. An append that an earlier try has committed is no refusal: an identical (task,
        position, fence) counts as success, and so does a reservation that its own task holds.
        StoreUnavailable when nothing of the group was committed, OutcomeUnknown if that cannot
        be told.
        """

    async def probe(self) -> None:
        """Prove that the store can write; raise StoreUnavailable with the reason."""


class Leases(Protocol):
    """Who may run a task. Fences only grow: an adoption outdates every writer before it.

    A worker is alive while its lease is, by the store's clock. In a store for one process all
    workers but the caller are dead, leases do not run out and turns are free.
    """

    async def renew(self, worker: str, ttl_s: float) -> bool:
        """Begin or prolong the worker's lease; False if it had run out, and then it is gone for good."""

    async def leave(self, worker: str) -> None:
        """End the lease: what the worker still runs is handed over to others."""

    async def adopt(self, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
        """Take active tasks of these agents whose worker is None or dead, oldest first; never one twice."""

    async def mine(self, worker: str, limit: int) -> list[Adopted]:
        """Active tasks that this worker is to run, whatever it knows of them; never handed over."""

    async def take_turn(self, task_id: str) -> str | None:
        """The turn of an active task in its context; None if it is its own now, or the id of a task before it.

        Before it is an active task of the same scope and context that has the turn, or was made earlier.
        """

    async def ask_cancel(self, task_id: str) -> None:
        """Leave word for whoever runs the task. Kept until the task is no longer active."""

    async def asked_to_cancel(self, worker: str) -> list[str]:
        """Active tasks of this worker that are to be cancelled."""


class Reservations(Protocol):
    async def read_reserved(self, key: bytes) -> Reserved | None:
        """Who has the reservation, if it has not run out."""

    async def drop_reservations(self, most: int) -> int:
        """Forget those that ran out, and the oldest of more than `most`; how many."""


class PushConfigs(Protocol):
    """The webhooks of tasks. What is due and has no living holder is for anyone to hold."""

    async def put_push(self, config: PushConfig, worker: str) -> bool:
        """Create or replace, due at once and held by `worker`; False if there is no such task."""

    async def read_pushes(self, task_id: str) -> list[Push]:
        """In the order of their creation."""

    async def delete_push(self, task_id: str, config_id: str) -> bool: ...

    async def hold_pushes(self, worker: str, agents: Sequence[str], limit: int) -> list[Push]:
        """Take those that are due and whose holder is None or dead, the longest due first."""

    async def move_pushes(self, worker: str, moves: Sequence[CursorMove]) -> list[bool]:
        """All in one transaction; False for one that `worker` does not hold (deleted, replaced, taken over).

        One that comes to rest (delay_s None, not paused) although its task has wire entries after
        the cursor stays due, at once.
        """

    async def list_pushes(self, *, failing: bool, limit: int) -> list[Push]:
        """For the operator: all, or those that fail or are paused; the newest first."""

    async def list_dead(self, limit: int) -> list[DeadLetter]:
        """The newest first."""

    async def retry_pushes(self, task_id: str | None, config_id: str | None) -> int:
        """Those that are failing or paused go on at once, from their first dead letter; how many.

        The cursor goes back to before the earliest dead letter, and the dead letters are forgotten.
        """

    async def outbox(self) -> tuple[int, int]:
        """(configs that are due, dead letters)"""


class Records(Protocol):
    """What is kept, and for how long."""

    async def agents(self) -> list[str]:
        """Whose tasks there are or were, by name."""

    async def prune(self, agent: str, before_ms: int | None, keep: int | None, limit: int) -> list[UsageDelta]:
        """Delete up to `limit` terminal tasks of the agent, and leave tombstones; what went, by scope.

        Those whose status is older than `before_ms`, and the oldest beyond the `keep` newest. With
        their configs and dead letters; but none that has a webhook with something left to deliver.
        The accounts are told in the same transaction.
        """

    async def prune_task(self, agent: str, task_id: str) -> list[UsageDelta]:
        """Delete one task of the agent as `prune` does, whatever its age.

        Nothing is deleted if the task is not over, or has a webhook with something left to deliver.
        """

    async def read_tombstone(self, task_id: str) -> Tombstone | None: ...

    async def add_usage(self, deltas: Sequence[UsageDelta]) -> None:
        """Add to the accounts of each scope's tenant, owner and agent."""

    async def usage(self) -> list[StoredUsage]:
        """The accounts of all agents, by name."""

    async def stored_bytes(self, accounts: Sequence[tuple[Party, str]]) -> list[int]:
        """Of each account, in their order; 0 where there is none. One look-up each, whatever is kept."""

    async def oldest(self) -> int | None:
        """When the oldest task that is kept was made, in milliseconds."""

    def free_bytes(self) -> int | None:
        """Free space where the store writes; None where only the database knows."""

    def wal_bytes(self) -> int | None: ...


class Leaf(NamedTuple):
    """The head of a task as a checkpoint has it."""

    task_id: str
    seq: int
    sub: int
    """Of its last entry; PRUNED: of a tombstone, which does not say."""
    chain: bytes
    scope: bytes
    """A digest of whose task it is."""


PRUNED = -1


class Segment(NamedTuple):
    """Entries that are stored together."""

    seq: int
    sub: int
    """What it is found by: the place of its last entry."""
    fits: bool
    """The columns that it is found by say what is in it."""
    entries: list[Entry]


class Checkpoint(NamedTuple):
    number: int
    """From 1 on, without gaps."""
    time: int
    """Milliseconds."""
    statement: bytes
    """What it says, signed."""


Seal = Callable[[Checkpoint | None, AsyncIterator[Leaf]], Awaitable[Checkpoint]]
"""The next checkpoint, from the one before and the leaves by task id."""


class CheckpointBusy(Exception):
    """Another is making one."""


class Checkpoints(Protocol):
    """What was on record when. A checkpoint has a leaf for each task that is new, went on, or went since the last one.

    Nothing is noted when a task moves: whoever makes a checkpoint compares heads.
    """

    async def make_checkpoint(self, seal: Seal, unless_after: int | None = None) -> Checkpoint | None:
        """All of it or nothing is there, whenever the maker dies. CheckpointBusy if another is at it.

        None, and nothing is written, if the last one was made after that time. One of the future does not count.
        """

    async def read_checkpoints(self, after: int, limit: int) -> list[Checkpoint]:
        """In order, those with a higher number."""

    async def read_leaves(self, number: int, after: str, limit: int) -> list[Leaf]:
        """Those of a checkpoint, by task id, of the tasks after this one."""

    async def walk_leaves(self, after: tuple[str, int], limit: int) -> list[tuple[int, Leaf]]:
        """Those of all checkpoints, with their number, by task id and number, from those after (task id, number)."""

    async def scan_tasks(self, after: str, limit: int) -> list[tuple[NewTask, Entry]]:
        """Tasks by id, hidden ones too, each with its last entry."""

    async def scan_tombstones(self, after: str, limit: int) -> list[Tombstone]:
        """By task id."""

    async def read_segments(self, task_id: str, after: tuple[int, int] | None, limit: int) -> list[Segment]:
        """All that is stored of a task, wherever it says that it belongs, in the order of (seq, sub)."""


class AdminStore(JournalReader, PushConfigs, Records, Checkpoints, Identities, Protocol):
    """The ports for commands and for evidence. They need no lease: a host may be running on the same data."""

    location: str
    """Where the data is, in words for the banner, without a password."""

    async def open(self) -> None:
        """Connect and migrate; called once, before anything else."""


class Store(AdminStore, Journal, Leases, Reservations, Protocol):
    """All ports in one object, as every backend gives them to a host."""

    name: str
    shared: bool
    """Several processes may have it open: what one of them does, the others hear of by Wakes."""


class Wakes(Protocol):
    """Tells other processes that tasks have moved. Carries nothing that matters: a lost one costs time only."""

    async def listen(self, heard: Callable[[Sequence[str]], None]) -> None:
        """Call `heard` with the ids of tasks that others have moved, from now on."""

    def tell(self, task_ids: Sequence[str]) -> None:
        """Soon, and together with others. Never waits, never raises."""

    async def close(self) -> None: ...
