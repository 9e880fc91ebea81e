"""Plain counters of the engine, read by the observability door. Cheap enough for the hot path."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from roost.engine.store_types import Append, Scope, StoredUsage, UsageDelta

encode = msgspec.msgpack.Encoder().encode

MUCH = 64 * 1024
"""Bytes of entries that are not worth a copy to find their size."""
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class Stats:
    def __init__(self) -> None:
        self.transitions: dict[tuple[str, str], int] = {}
        """How often tasks of an agent entered a state."""
        self.entries = 0
        self.commit_failures = 0
        self.commit_seconds = Histogram()
        self.streams = 0
        """Streams open now."""

        self.written: dict[Scope, list[int]] = {}
        """Tasks created and bytes written in each scope that the stored usage does not include yet."""
        self.kept: list[StoredUsage] = []
        """The stored usage by agent, as of the last look."""
        self.oldest_ms: int | None = None
        self.adopted = {"handed over": 0, "worker lost": 0}
        self.leases_lost = 0
        self.pruned = 0
        self.repeats = {"hit": 0, "miss": 0, "collision": 0, "eviction": 0}
        """Messages with an idempotency key, by outcome."""
        self.pushes = {"delivered": 0, "failed": 0, "refused": 0, "dead": 0}
        """The outcomes of calls to webhooks, and how many events were given up."""
        self.push_outbox = 0
        """Webhooks that are due, including those of active tasks, as of the last look."""
        self.push_dead = 0

    def wrote(self, scope: Scope, tasks: int, size: int) -> None:
        found = self.written.get(scope)
        if found is None:
            found = self.written[scope] = [0, 0]
        found[0] += tasks
        found[1] += size

    def transition(self, agent: str, state: str) -> None:
        key = (agent, state)
        self.transitions[key] = self.transitions.get(key, 0) + 1


def size_of(append: Append) -> int:
    """The bytes that an append adds to any store: the entries as msgpack, and the snapshot."""
    if not append.entries:
        return 0
    snapshot = append.snapshot
    size = 0 if snapshot is None else len(snapshot.body) + len(snapshot.artifacts)
    entries = append.entries
    for entry in entries:
        if len(entry.data) >= MUCH:
            break
    else:
        return size + len(encode(entries))
    data = sum(len(entry.data) for entry in entries)
    bare = len(encode([entry._replace(data=b"") for entry in entries]))
    return size + bare + data + sum(_head_of(len(entry.data)) - _head_of(0) for entry in entries)


def _head_of(size: int) -> int:
    """The bytes before a binary value in msgpack."""
    return 2 if size < 2**8 else 3 if size < 2**16 else 5


def summed(usages: Iterable[UsageDelta]) -> list[UsageDelta]:
    """Sum up the deltas of each scope, in the order of the scopes."""
    sums: dict[Scope, tuple[int, int]] = {}
    for *scope, tasks, size in usages:
        before = sums.get(Scope(*scope), (0, 0))
        sums[Scope(*scope)] = (before[0] + tasks, before[1] + size)
    return [UsageDelta(*scope, *sums[scope]) for scope in sorted(sums)]
