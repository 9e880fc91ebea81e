"""Checkpoints as the stores keep them: the heads of all tasks at a moment, one leaf for each task that changed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from typing import NamedTuple, Protocol

from msgspec import json

from roost.engine.store_types import NewTask, Scope, Tombstone
from roost.protocol.entries import Entry


class Leaf(NamedTuple):
    """The head of a task in a checkpoint."""

    task_id: str
    seq: int
    sub: int
    """The position of the last entry; PRUNED for a tombstone, which does not record it."""
    chain: bytes
    scope: bytes
    """A digest of the task's scope."""


PRUNED = -1


class Segment(NamedTuple):
    """Entries that are stored together."""

    seq: int
    sub: int
    """The position of the last entry, by which the segment is found."""
    fits: bool
    """The columns by which it is found agree with its content."""
    entries: list[Entry]


class Checkpoint(NamedTuple):
    number: int
    """Numbers begin with 1 and have no gaps."""
    time: int
    """Milliseconds."""
    statement: bytes
    """The signed statement."""


Seal = Callable[[Checkpoint | None, AsyncIterator[Leaf]], Awaitable[Checkpoint]]
"""Makes the next checkpoint from the one before it and the leaves in the order of the task ids."""


class CheckpointBusy(Exception):
    """Another process is making a checkpoint."""


class Checkpoints(Protocol):
    """A checkpoint has a leaf for each task that was created, changed or pruned since the checkpoint before it.

    Nothing is recorded when a task changes: the process that makes a checkpoint compares heads.
    """

    async def make_checkpoint(self, seal: Seal, unless_after: int | None = None) -> Checkpoint | None:
        """Write a checkpoint as a whole, or nothing if the process dies. CheckpointBusy if another makes one.

        Return None and write nothing if the last checkpoint was made after `unless_after`. A checkpoint from the
        future does not count.
        """

    async def read_checkpoints(self, after: int, limit: int) -> list[Checkpoint]:
        """Read the checkpoints with a higher number, in order."""

    async def read_leaves(self, number: int, after: str, limit: int) -> list[Leaf]:
        """Read the leaves of a checkpoint with a higher task id, in order."""

    async def walk_leaves(self, after: tuple[str, int], limit: int) -> list[tuple[int, Leaf]]:
        """Read the leaves of all checkpoints after (task id, number), in that order, each with its number."""

    async def scan_tasks(self, after: str, limit: int) -> list[tuple[NewTask, Entry]]:
        """Read the tasks with a higher id, in order, hidden ones too, each with its last entry."""

    async def scan_tombstones(self, after: str, limit: int) -> list[Tombstone]:
        """Read the tombstones with a higher task id, in order."""

    async def read_segments(self, task_id: str, after: tuple[int, int] | None, limit: int) -> list[Segment]:
        """Read everything that is stored of a task, in the order of (seq, sub), whatever its content claims."""


def scope_digest(scope: Scope) -> bytes:
    return sha256(json.encode(scope)).digest()


def is_due(last: Checkpoint | None, unless_after: int | None) -> bool:
    """Say whether to make a checkpoint. A last one from the future does not count, or else none would follow it."""
    return last is None or unless_after is None or not unless_after < last.time <= time.time_ns() // 1_000_000


def leaf_of(new: NewTask, last: Entry) -> Leaf:
    return Leaf(new.id, last.seq, last.sub, last.chain, scope_digest(new.scope))


def leaf_of_tombstone(stone: Tombstone) -> Leaf:
    return Leaf(stone.task_id, stone.seq, PRUNED, stone.chain, scope_digest(stone.scope))
