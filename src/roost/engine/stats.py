"""Plain counters of the engine, read by the observability door. Cheap enough for the hot path."""

from __future__ import annotations

from bisect import bisect_left

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

    def transition(self, agent: str, state: str) -> None:
        key = (agent, state)
        self.transitions[key] = self.transitions.get(key, 0) + 1
