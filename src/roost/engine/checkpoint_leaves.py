"""What a checkpoint has of a task beyond its last entry."""

from __future__ import annotations

import time
from hashlib import sha256

from msgspec import json

from roost.engine.ports import PRUNED, Checkpoint, Leaf, NewTask, Scope, Tombstone
from roost.protocol.entries import Entry


def scope_digest(scope: Scope) -> bytes:
    return sha256(json.encode(scope)).digest()


def is_due(last: Checkpoint | None, unless_after: int | None) -> bool:
    """A last one of the future counts for nothing, or else there were no more until then."""
    return last is None or unless_after is None or not unless_after < last.time <= time.time_ns() // 1_000_000


def leaf_of(new: NewTask, last: Entry) -> Leaf:
    return Leaf(new.id, last.seq, last.sub, last.chain, scope_digest(new.scope))


def leaf_of_tombstone(stone: Tombstone) -> Leaf:
    return Leaf(stone.task_id, stone.seq, PRUNED, stone.chain, scope_digest(stone.scope))
