"""Plain counters of the engine, read by the observability door. Cheap enough for the hot path."""

from __future__ import annotations

from bisect import bisect_left

from roost.engine.ports import Usage

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
        """(agent, state) -> how often a task of the agent entered it."""
        self.entries = 0
        self.commit_failures = 0
        self.commit_seconds = Histogram()
        self.streams = 0
        """Streams open now."""

        self.written: dict[str, list[int]] = {}
        """By agent: tasks made and bytes written that the store's account does not have yet."""
        self.kept: list[Usage] = []
        """What the store keeps, by agent, as of the last look."""
        self.oldest_ms: int | None = None
        self.adopted = {"handed over": 0, "worker lost": 0}
        self.leases_lost = 0
        self.pruned = 0
        self.repeats = {"hit": 0, "miss": 0, "collision": 0, "eviction": 0}
        """Messages that came with a key, and what they found."""
        self.pushes = {"delivered": 0, "failed": 0, "refused": 0, "dead": 0}
        """What became of calls to webhooks, and how many events were given up."""
        self.push_outbox = 0
        """Configs that are due, as of the last look; those of active tasks are among them."""
        self.push_dead = 0

    def wrote(self, agent: str, new: bool, size: int) -> None:
        found = self.written.get(agent)
        if found is None:
            found = self.written[agent] = [0, 0]
        found[0] += new
        found[1] += size

    def transition(self, agent: str, state: str) -> None:
        key = (agent, state)
        self.transitions[key] = self.transitions.get(key, 0) + 1
