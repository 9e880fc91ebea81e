"""Which tasks an export takes, by id."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Container
from datetime import UTC, datetime
from typing import NamedTuple

from roost.engine.ports import AdminStore, Checkpoint, Leaf, NewTask, Scope, Tombstone
from roost.evidence.checkpoint import BadCheckpoint, read_statement
from roost.evidence.events import rfc3339
from roost.identity.tokens import seconds

PAGE = 200
CHECKPOINT = re.compile(r"(0*[1-9][0-9]{0,14})(?::([0-9a-f]{64}))?")
"""Its number, and with a colon its digest."""


class NothingFound(Exception):
    """The message says what there is not."""

    def __init__(self, message: str, field: str = "task") -> None:
        super().__init__(message)
        self.field = field
        """What it was asked for by."""


class Selection(NamedTuple):
    """Tasks by name, or all that changed since a time or a checkpoint: whole ones in any case."""

    tasks: tuple[str, ...] = ()
    since_ms: int | None = None
    since_checkpoint: int | None = None
    checkpoint_digest: str = ""
    """Of the checkpoint that is meant; empty for whichever has the number."""
    agent: str = ""
    redact: bool = False
    tenants: tuple[str, ...] | None = None
    """Only theirs; None: of all."""

    def told(self) -> str:
        """For the audit log."""
        words = ["redacted"] if self.redact else []
        if self.agent:
            words.append(f"agent {self.agent}")
        if self.since_ms is not None:
            words.append(f"since {rfc3339(self.since_ms * 1000)}")
        if self.since_checkpoint is not None:
            words.append(f"since checkpoint {self.since_checkpoint}")
        return " ".join([*words, *self.tasks])


def parse_since(text: str, now_ms: int) -> tuple[int | None, int | None, str]:
    """(a time in milliseconds, None, "") or (None, the number of a checkpoint, its digest or "").

    ValueError if it is neither.
    """
    checkpoint = CHECKPOINT.fullmatch(text)
    if checkpoint is not None:
        return None, int(checkpoint[1]), checkpoint[2] or ""
    if text.isascii() and text[:1].isdigit() and text[-1:] in "smhd":
        return max(0, now_ms - seconds(text) * 1000), None, ""
    try:
        at = datetime.fromisoformat(text)
        return max(0, round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)), None, ""
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text[:64]!r} is no time (2026-11-16T12:00:00Z), no age (7d) and no checkpoint (12)"
        ) from None


async def check_since(store: AdminStore, selection: Selection) -> None:
    """NothingFound if there is no such checkpoint."""
    number = selection.since_checkpoint
    if number is None:
        return
    stored = await store.read_checkpoints(number - 1, 1)
    if not stored or stored[0].number != number:
        raise NothingFound(f"there is no checkpoint {number}", "since")
    if selection.checkpoint_digest and _digest(stored[0]) != selection.checkpoint_digest:
        raise NothingFound(f"checkpoint {number} is not the one that you hold: see `roost evidence audit`", "since")


class Picking:
    """What a selection takes, by id."""

    def __init__(self, store: AdminStore, selection: Selection) -> None:
        self.store = store
        self.selection = selection
        self.agents: set[str] = set()
        """Those of all that was looked at."""

    async def tasks(self) -> AsyncIterator[NewTask]:
        selection = self.selection
        for task_id in sorted({*selection.tasks}):
            stored = await self.store.read_task(task_id)
            if stored is not None and self._wants(stored.new.scope):
                yield stored.new
            elif await self._stone(task_id) is None:
                raise NothingFound(f"there is no task {task_id!r}, and no tombstone of one")
        after = ""
        while not selection.tasks and (some := await self.store.scan_tasks(after, PAGE)):
            for new, last in some:
                if not self._wants(new.scope):
                    continue
                if selection.since_ms is not None and last.time < selection.since_ms * 1000:
                    continue
                if not await self._was_there(new.id, last.chain):
                    yield new
            after = some[-1][0].id

    async def tombstones(self) -> AsyncIterator[Tombstone]:
        selection = self.selection
        for task_id in sorted({*selection.tasks}):
            found = await self._stone(task_id)
            if found is not None:
                yield found
        after = ""
        while not selection.tasks and (some := await self.store.scan_tombstones(after, PAGE)):
            for stone in some:
                if not self._wants(stone.scope):
                    continue
                if selection.since_ms is not None and stone.pruned < selection.since_ms:
                    continue
                if not await self._was_there(stone.task_id, stone.chain):
                    yield stone
            after = some[-1].task_id

    def check_agent(self, served: Container[str]) -> None:
        """NothingFound, after all that, if nobody knows the agent."""
        agent = self.selection.agent
        if agent and agent not in self.agents and agent not in served:
            raise NothingFound(f"there is no agent {agent[:64]!r}, and no task of one", "agent")

    def _wants(self, scope: Scope) -> bool:
        if self.selection.tenants is not None and scope.tenant not in self.selection.tenants:
            return False
        self.agents.add(scope.agent)
        return self.selection.agent in ("", scope.agent)

    async def _stone(self, task_id: str) -> Tombstone | None:
        stone = await self.store.read_tombstone(task_id)
        return stone if stone is not None and self._wants(stone.scope) else None

    async def _was_there(self, task_id: str, chain: bytes) -> bool:
        """The checkpoint, or one before it, has the task just like this."""
        until = self.selection.since_checkpoint
        if until is None:
            return False
        leaves = await leaves_of(self.store, task_id)
        return any(number <= until and leaf.chain == chain for number, leaf in leaves)


async def leaves_of(store: AdminStore, task_id: str) -> list[tuple[int, Leaf]]:
    """By number."""
    found: list[tuple[int, Leaf]] = []
    number = 0
    while some := await store.walk_leaves((task_id, number), PAGE):
        found += [(at, leaf) for at, leaf in some if leaf.task_id == task_id]
        if some[-1][1].task_id != task_id:
            break
        number = some[-1][0]
    return found


def _digest(stored: Checkpoint) -> str:
    try:
        return read_statement(stored.statement).digest()
    except BadCheckpoint:
        return ""
