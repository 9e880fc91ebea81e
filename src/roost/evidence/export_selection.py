"""Selects the tasks and tombstones of an export, in the order of their ids."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Container
from datetime import UTC, datetime
from typing import NamedTuple

from roost.engine.checkpoints import Checkpoint
from roost.engine.ports import AdminStore
from roost.engine.store_types import NewTask, Scope, Tombstone
from roost.evidence.checkpoint import BadCheckpoint, leaves_of, read_statement
from roost.evidence.events import rfc3339
from roost.identity.tokens import seconds

PAGE = 200
CHECKPOINT = re.compile(r"(0*[1-9][0-9]{0,14})(?::([0-9a-f]{64}))?")
"""The number of a checkpoint, and optionally a colon and its digest."""


class NothingFound(Exception):
    """The message says what does not exist."""

    def __init__(self, message: str, field: str = "task") -> None:
        super().__init__(message)
        self.field = field
        """The field of the selection that matched nothing."""


class Selection(NamedTuple):
    """Selects tasks by id, or all tasks that changed since a time or a checkpoint. It always selects whole tasks."""

    tasks: tuple[str, ...] = ()
    since_ms: int | None = None
    since_checkpoint: int | None = None
    checkpoint_digest: str = ""
    """The digest that the checkpoint must have; empty accepts any checkpoint with that number."""
    agent: str = ""
    redact: bool = False
    tenants: tuple[str, ...] | None = None
    """The tenants whose tasks may be selected; None selects those of all tenants."""

    def describe(self) -> str:
        """Return one line for the audit log."""
        words = ["redacted"] if self.redact else []
        if self.agent:
            words.append(f"agent {self.agent}")
        if self.since_ms is not None:
            words.append(f"since {rfc3339(self.since_ms * 1000)}")
        if self.since_checkpoint is not None:
            words.append(f"since checkpoint {self.since_checkpoint}")
        return " ".join([*words, *self.tasks])


def parse_since(text: str, now_ms: int) -> tuple[int | None, int | None, str]:
    """Return (a time in milliseconds, None, "") or (None, the number of a checkpoint, its digest or "").

    Raises ValueError if the text is neither.
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
            f"{text[:64]!r} is not a time (2026-11-16T12:00:00Z), an age (7d) or the number of a checkpoint (12)"
        ) from None


async def check_since(store: AdminStore, selection: Selection) -> None:
    """Raise NothingFound if the selection names a checkpoint that does not exist."""
    number = selection.since_checkpoint
    if number is None:
        return
    stored = await store.read_checkpoints(number - 1, 1)
    if not stored or stored[0].number != number:
        raise NothingFound(f"there is no checkpoint {number}", "since")
    if selection.checkpoint_digest and _digest(stored[0]) != selection.checkpoint_digest:
        raise NothingFound(f"checkpoint {number} is not the one that you hold: see `roost evidence audit`", "since")


class Selector:
    """Finds what a selection matches, in the order of the ids."""

    def __init__(self, store: AdminStore, selection: Selection) -> None:
        self.store = store
        self.selection = selection
        self.agents: set[str] = set()
        """The agents of all tasks and tombstones that were examined."""

    async def tasks(self) -> AsyncIterator[NewTask]:
        selection = self.selection
        for task_id in sorted({*selection.tasks}):
            stored = await self.store.read_task(task_id)
            if stored is not None and self._matches(stored.new.scope):
                yield stored.new
            elif await self._tombstone(task_id) is None:
                raise NothingFound(f"there is no task {task_id!r}, and no tombstone of one")
        after = ""
        while not selection.tasks and (page := await self.store.scan_tasks(after, PAGE)):
            for new, last in page:
                if not self._matches(new.scope):
                    continue
                if selection.since_ms is not None and last.time < selection.since_ms * 1000:
                    continue
                if not await self._is_in_checkpoint(new.id, last.chain):
                    yield new
            after = page[-1][0].id

    async def tombstones(self) -> AsyncIterator[Tombstone]:
        selection = self.selection
        for task_id in sorted({*selection.tasks}):
            found = await self._tombstone(task_id)
            if found is not None:
                yield found
        after = ""
        while not selection.tasks and (page := await self.store.scan_tombstones(after, PAGE)):
            for tombstone in page:
                if not self._matches(tombstone.scope):
                    continue
                if selection.since_ms is not None and tombstone.pruned < selection.since_ms:
                    continue
                if not await self._is_in_checkpoint(tombstone.task_id, tombstone.chain):
                    yield tombstone
            after = page[-1].task_id

    def check_agent(self, served: Container[str]) -> None:
        """Raise NothingFound if nothing is known of the selected agent. Call it after the tasks and tombstones."""
        agent = self.selection.agent
        if agent and agent not in self.agents and agent not in served:
            raise NothingFound(f"there is no agent {agent[:64]!r}, and no task of one", "agent")

    def _matches(self, scope: Scope) -> bool:
        if self.selection.tenants is not None and scope.tenant not in self.selection.tenants:
            return False
        self.agents.add(scope.agent)
        return self.selection.agent in ("", scope.agent)

    async def _tombstone(self, task_id: str) -> Tombstone | None:
        tombstone = await self.store.read_tombstone(task_id)
        return tombstone if tombstone is not None and self._matches(tombstone.scope) else None

    async def _is_in_checkpoint(self, task_id: str, chain: bytes) -> bool:
        """Return whether the selected checkpoint, or one before it, has the task with this chain."""
        until = self.selection.since_checkpoint
        if until is None:
            return False
        leaves = await leaves_of(self.store, task_id)
        return any(number <= until and leaf.chain == chain for number, leaf in leaves)


def _digest(stored: Checkpoint) -> str:
    try:
        return read_statement(stored.statement).digest()
    except BadCheckpoint:
        return ""
