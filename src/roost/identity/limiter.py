"""Sliding windows: how often something happened in the last minute, on this host and on the others of its fleet.

Counts are kept by the minute of the clock, so that hosts can add them up. The previous minute counts less with every
second of the current one: the window slides, and costs two numbers per key.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

WINDOW_S = 60
MAX_KEYS = 10_000
"""Keys that are counted; beyond that the least recently used key is dropped."""
MARGIN_S = 0.01
"""Seconds added to a waiting time, so that a caller who waits that long is admitted."""

K = TypeVar("K", bound=Hashable)


class Windows(Generic[K]):
    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.counts: OrderedDict[K, dict[int, int]] = OrderedDict()
        self.others: Mapping[K, Mapping[int, int]] = {}
        """The counts of other hosts, by key and minute."""

    def add(self, key: K) -> None:
        minute = self._minute()
        before = self.counts.get(key, {})
        self.counts[key] = {minute - 1: before.get(minute - 1, 0), minute: before.get(minute, 0) + 1}
        self.counts.move_to_end(key)
        if len(self.counts) > MAX_KEYS:
            self.counts.popitem(last=False)

    def wait(self, key: K, limit: int) -> int:
        """Return the seconds until the limit admits one more; 0 if it does now."""
        minute, seconds = divmod(self.clock(), WINDOW_S)
        passed = seconds / WINDOW_S
        current, previous = self._count(key, int(minute)), self._count(key, int(minute) - 1)
        if current + previous * (1 - passed) < limit:
            return 0
        if limit < 1:
            return WINDOW_S
        until = 1 - (limit - current) / previous if current < limit else 2 - limit / current
        return int((until - passed) * WINDOW_S + MARGIN_S) + 1

    def recent(self) -> Iterator[tuple[K, int, int]]:
        """Yield this host's counts of the current and the previous minute: key, minute, count."""
        minute = self._minute()
        for key, counts in self.counts.items():
            for when in (minute - 1, minute):
                if counts.get(when):
                    yield key, when, counts[when]

    def _minute(self) -> int:
        return int(self.clock() // WINDOW_S)

    def _count(self, key: K, minute: int) -> int:
        return self.counts.get(key, {}).get(minute, 0) + self.others.get(key, {}).get(minute, 0)
