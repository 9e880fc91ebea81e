"""The ports that stores implement. hosted.py has the port for agents, turn.py the one for runtimes.

door -> Engine -> Committer -> Journal.commit    (many tasks, one fsync)
          |           '-> LiveTask -> followers  (only what is committed)
          '-> Runner -> HostedAgent.run(Turn)    (emissions become entries)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from roost.engine.checkpoints import Checkpoints
from roost.engine.store_types import (
    MOST_BYTES,
    Adopted,
    Append,
    CursorMove,
    DeadLetter,
    ListQuery,
    Party,
    Position,
    Push,
    PushConfig,
    Refusal,
    Reserved,
    Stored,
    StoredUsage,
    TaskPage,
    Tombstone,
    Update,
    UsageDelta,
)
from roost.identity.ports import Identities
from roost.protocol.entries import Entry


class JournalReader(Protocol):
    """Reads tasks and their entries."""

    async def read_task(self, task_id: str, owner: str | None = None, most: int | None = None) -> Stored | None:
        """Return None also for a task of another owner; then no more is read than for one that does not exist.

        most: a snapshot with more bytes is withheld.
        """

    async def read_entries(
        self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0, most: int = MOST_BYTES
    ) -> list[Entry]:
        """Read the entries after (after, sub) in order: all of them, or wire entries only.

        There are fewer than `limit` if they have more than about `most` bytes, but at least one if there is one.
        """

    async def read_internal(self, task_id: str) -> list[Entry]:
        """Read the internal entries of a task, in order."""

    async def read_updates(self, positions: Sequence[Position], limit: int) -> list[Update]:
        """Read the head of each task that exists, and about `limit` entries after the position, in one read."""

    async def list_tasks(self, query: ListQuery) -> TaskPage: ...

    async def close(self) -> None: ...


class Journal(JournalReader, Protocol):
    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        """Write the group in one transaction, and return when it is on disk.

        An append that is stale, or whose reservation belongs to another task, is refused alone; the others are
        committed. An append that an earlier try has committed is not refused: an identical (task, position, fence)
        counts as success, and so does a reservation that the same task holds. StoreUnavailable if nothing of the
        group was committed, OutcomeUnknown if that is not known.
        """

    async def probe(self) -> None:
        """Prove that the store can write, or raise StoreUnavailable with the reason."""


class Leases(Protocol):
    """Decides who may run a task. Fences only grow: an adoption outdates every earlier writer.

    A worker is alive while its lease is, by the store's clock. In a store for one process all other workers are dead,
    leases do not run out, and turns are always free.
    """

    async def renew(self, worker: str, ttl_s: float) -> bool:
        """Begin or renew the worker's lease. False if it had run out; then it cannot be renewed again."""

    async def leave(self, worker: str) -> None:
        """End the lease, and hand over what the worker still runs."""

    async def survive(self, worker: str) -> None:
        """Record for 30 days that a worker whose lease ended lives on under another name."""

    async def survivors(self, workers: Sequence[str]) -> list[str]:
        """Return those of the workers that are recorded to live on."""

    async def adopt(self, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
        """Take active tasks of these agents that have no living worker, oldest first. Nobody gets a task twice."""

    async def adopt_task(self, worker: str, task_id: str) -> int | None:
        """Take this active task if it has no living worker, and return its new fence; None if that is not so."""

    async def mine(self, worker: str, limit: int) -> list[Adopted]:
        """List the active tasks that name this worker. They never count as handed over."""

    async def take_turn(self, task_id: str) -> str | None:
        """Take the turn in the context of an active task. Return None, or the id of a task that is before it.

        A task is before it if it is active, in the same scope and context, and has the turn or was created earlier.
        """

    async def ask_cancel(self, task_id: str) -> None:
        """Leave a request to cancel for the worker of the task. It is kept while the task is active."""

    async def asked_to_cancel(self, worker: str) -> list[str]:
        """List the active tasks of this worker that have a request to cancel."""


class Reservations(Protocol):
    async def read_reserved(self, key: bytes) -> Reserved | None:
        """Read a reservation that has not run out."""

    async def drop_reservations(self, most: int) -> int:
        """Delete reservations that ran out, and the oldest beyond `most`. Return how many."""


class PushConfigs(Protocol):
    """The webhooks of tasks. Any worker may hold one that is due and has no living holder."""

    async def put_push(self, config: PushConfig, worker: str) -> bool:
        """Create or replace a webhook, due at once and held by `worker`. False if the task does not exist."""

    async def read_pushes(self, task_id: str) -> list[Push]:
        """Read the webhooks of a task in the order of their creation."""

    async def delete_push(self, task_id: str, config_id: str) -> bool: ...

    async def hold_pushes(self, worker: str, limit: int) -> list[Push]:
        """Hold webhooks that are due and have no living holder, the longest due first."""

    async def move_pushes(self, worker: str, moves: Sequence[CursorMove]) -> list[bool]:
        """Write all moves in one transaction. False for a webhook that `worker` does not hold any more.

        A webhook that would come to rest (delay_s None, not paused) although its task has wire entries after the
        cursor stays due, at once.
        """

    async def list_pushes(self, *, failing: bool, limit: int) -> list[Push]:
        """List all webhooks, or only those that fail or are paused, the newest first."""

    async def list_dead(self, limit: int) -> list[DeadLetter]:
        """List dead letters, the newest first."""

    async def retry_pushes(self, task_id: str | None, config_id: str | None) -> int:
        """Make webhooks that fail or are paused due at once, from their first dead letter. Return how many.

        The cursor moves back before the earliest dead letter, and the dead letters are deleted.
        """

    async def outbox(self) -> tuple[int, int]:
        """Count the webhooks that are due, and the dead letters."""


class Records(Protocol):
    """Retention, usage, and which agents there are tasks of."""

    async def agents(self) -> list[str]:
        """List the agents that have or had tasks."""

    async def note_served(self, agents: Sequence[str]) -> None:
        """Record that these agents are served now. An agent that has tasks and no record counts as served now too."""

    async def unserved(self, before_ms: int) -> list[str]:
        """List the agents that no host has served since this time."""

    async def unfinished(self, agent: str, limit: int) -> list[str]:
        """List tasks of an agent that have not ended: paused ones, and active ones without a living worker."""

    async def prune(self, agent: str, before_ms: int | None, keep: int | None, limit: int) -> list[UsageDelta]:
        """Delete up to `limit` ended tasks of the agent, leave tombstones, and return what was freed in each scope.

        Tasks go whose status is older than `before_ms`, and the oldest beyond the `keep` newest, together with their
        webhooks and dead letters. A task whose webhook still has something to deliver stays. The usage changes in the
        same transaction.
        """

    async def prune_task(self, agent: str, task_id: str) -> list[UsageDelta]:
        """Delete one task of the agent as `prune` does, whatever its age.

        Nothing is deleted if the task is not over, or has a webhook with something left to deliver.
        """

    async def read_tombstone(self, task_id: str) -> Tombstone | None: ...

    async def add_usage(self, deltas: Sequence[UsageDelta]) -> None:
        """Add to the usage of each scope's tenant, owner and agent."""

    async def usage(self) -> list[StoredUsage]:
        """Read the usage of all agents, by name."""

    async def stored_bytes(self, accounts: Sequence[tuple[Party, str]]) -> list[int]:
        """Read the bytes kept for each account, in their order; 0 for an unknown one. One look-up each."""

    async def oldest(self) -> int | None:
        """When the oldest task that is kept was created, in milliseconds."""

    def free_bytes(self) -> int | None:
        """The free space where the store writes; None where only the database knows."""

    def wal_bytes(self) -> int | None: ...


class AdminStore(JournalReader, PushConfigs, Records, Checkpoints, Identities, Protocol):
    """The ports for commands and for evidence. They need no lease: a host may run on the same data."""

    location: str
    """Where the data is, in words for the banner, without a password."""

    async def open(self) -> None:
        """Connect and migrate. Called once, before anything else."""


class Store(AdminStore, Journal, Leases, Reservations, Protocol):
    """All ports in one object, as every backend gives them to a host."""

    name: str
    shared: bool
    """Several processes may have it open. Wakes tell them about each other's changes."""


class Wakes(Protocol):
    """Notifies other processes that tasks have changed. A lost notification costs latency, never data."""

    async def listen(self, heard: Callable[[Sequence[str]], None]) -> None:
        """Call `heard` with the ids of tasks that other processes have changed, from now on."""

    def tell(self, task_ids: Sequence[str]) -> None:
        """Notify others soon, in a batch. Never waits, never raises."""

    async def close(self) -> None: ...
