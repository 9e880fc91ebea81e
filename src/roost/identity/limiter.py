"""How often something happened in the last minute, here and on the hosts beside this one.

Counts are kept by the minute of the clock, so that hosts can add theirs up. A minute that has just ended counts
less with every second of the next: the window slides, and costs two numbers per key.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, TypeVar

WINDOW_S = 60
MAX_KEYS = 10_000
MARGIN_S = 0.01
"""Of what is told to those who have to wait: whoever waits as long as told gets in."""

K = TypeVar("K", bound=Hashable)


class Windows(Generic[K]):
    """Of more than MAX_KEYS the longest unused is forgotten. `others` is what other hosts count, by minute."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.counts: OrderedDict[K, dict[int, int]] = OrderedDict()
        self.others: Mapping[K, Mapping[int, int]] = {}

    def add(self, key: K) -> None:
        minute = self._minute()
        before = self.counts.get(key, {})
        self.counts[key] = {minute - 1: before.get(minute - 1, 0), minute: before.get(minute, 0) + 1}
        self.counts.move_to_end(key)
        if len(self.counts) > MAX_KEYS:
            self.counts.popitem(last=False)

    def wait(self, key: K, limit: int) -> int:
        """Seconds until there is room for one more; 0 if there is now."""
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
        """What was counted here in this minute and the last: key, minute, count."""
        minute = self._minute()
        for key, counts in self.counts.items():
            for when in (minute - 1, minute):
                if counts.get(when):
                    yield key, when, counts[when]

    def _minute(self) -> int:
        return int(self.clock() // WINDOW_S)

    def _count(self, key: K, minute: int) -> int:
        return self.counts.get(key, {}).get(minute, 0) + self.others.get(key, {}).get(minute, 0)
