"""What the engine asks of a store and of an agent. Stores and agents implement these ports.

door -> Engine -> Committer -> Journal.commit   (many tasks, one fsync)
          |           '-> LiveTask -> followers (only what is committed)
          '-> Runner -> HostedAgent.run(Run)    (emissions become entries)
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from roost.protocol.entries import Entry
from roost.protocol.types import AgentExtension, AgentProvider, AgentSkill, TaskState

if TYPE_CHECKING:
    from roost.engine.run import Run


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


class Head(NamedTuple):
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


class Append(Struct, array_like=True):
    """What one task adds in one commit."""

    task_id: str
    fence: int
    """The fence that the writer holds; the append is refused if the row has another one."""
    entries: list[Entry]
    create: NewTask | None = None
    head: Head | None = None
    snapshot: Snapshot | None = None


class Stored(NamedTuple):
    """A task as the store has it."""

    new: NewTask
    head: Head
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


class Listed(NamedTuple):
    tasks: list[Stored]
    total: int
    """Exact up to COUNT_CAP and capped there."""


COUNT_CAP = 10_000


class StaleFence(Exception):
    """The task has another writer now."""


class StoreUnavailable(Exception):
    """The store did not commit; nothing was acknowledged."""


class OutcomeUnknown(StoreUnavailable):
    """Whether the store committed cannot be told: the same group has to be tried again."""


class Journal(Protocol):
    async def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        """Write the group in one transaction and return when it is on disk.

        A stale append is refused alone, the rest is not harmed. StoreUnavailable when
        nothing of the group was committed.
        """

    async def read_task(self, task_id: str) -> Stored | None: ...

    async def read_entries(self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0) -> list[Entry]:
        """Entries in order, from those after (after, sub): wire entries only, or all of them."""

    async def read_internal(self, task_id: str) -> list[Entry]:
        """The internal entries of a task, in order."""

    async def list_tasks(self, query: ListQuery) -> Listed: ...

    async def probe(self) -> None:
        """Prove that the store can write; raise StoreUnavailable with the reason."""

    async def close(self) -> None: ...


class Leases(Protocol):
    """Who may run a task. Fences only grow: a claim outdates every writer before it."""

    async def claim(self, task_id: str, worker: str, fence: int) -> int | None:
        """Take a task over from the holder of `fence`; the new fence, or None if someone was faster."""

    async def orphans(self, worker: str, agents: Sequence[str], limit: int) -> list[str]:
        """Tasks of these agents that should be running and whose holder is gone, oldest first."""


class Store(Journal, Leases, Protocol):
    """All ports in one object, as every backend gives them."""

    name: str
    location: str
    """Where the data is, in words for the banner."""


class Limits(NamedTuple):
    concurrency: int = 1000
    """Runs of one agent at the same time."""
    queue: int = 10_000
    """Accepted messages that wait for their run; then 429."""
    wall_s: float | None = None
    """Longest time of one run, in seconds; then FAILED."""
    silence_s: float | None = None
    """Longest time without an emission, in seconds; then FAILED."""


class Profile(Struct, kw_only=True):
    """What a card says of an agent, and how the engine treats it."""

    id: str
    name: str
    description: str
    version: str
    skills: list[AgentSkill]
    input_modes: list[str]
    output_modes: list[str]
    extensions: list[AgentExtension]
    provider: AgentProvider | None
    documentation_url: str | None
    icon_url: str | None
    streaming: bool
    direct: bool
    parallel: bool
    resume: bool
    """Call the agent again after a crash; otherwise the task ends FAILED."""
    announce: bool
    """The engine says WORKING when a run begins; otherwise the agent says so itself."""
    limits: Limits


class HostedAgent(Protocol):
    profile: Profile

    async def run(self, run: Run) -> None:
        """Serve one turn: emit through `run` and return when the turn is over."""

    async def cancel(self, run: Run) -> None:
        """A cancel was asked for; called before the run's coroutine is cancelled."""
