"""Counters of this process's traffic, for the metrics. The server and the doors share them."""

from __future__ import annotations

from typing import Literal, get_args

RefusalKind = Literal["head_time", "body_time", "write_time", "head_size", "headers", "malformed", "connections", "tls"]
"""The reason why a connection ended before its request was read: its head or body arrived too slowly, its response was
not read, its head was too long, it had too many headers, it was not HTTP, there were too many connections, or its TLS
handshake failed."""

REFUSED: dict[RefusalKind, int] = dict.fromkeys(get_args(RefusalKind), 0)
"""The number of connections that the servers of this process have refused, by kind."""

LAG_WINDOW_S = 60.0


class LoopLag:
    """The longest delay of the event loop: how late a timer was because something else kept the loop busy."""

    def __init__(self) -> None:
        self.began = 0.0
        self.now = self.before = 0.0
        """The longest delay of this window and of the one before it, in seconds."""

    def late(self, at: float, seconds: float) -> None:
        """Count a delay that was noticed at this time of the monotonic clock."""
        self._turn(at)
        self.now = max(self.now, seconds)

    def longest(self, at: float) -> float:
        """Return the longest delay of the last one to two windows."""
        self._turn(at)
        return max(self.now, self.before)

    def _turn(self, at: float) -> None:
        if at - self.began >= LAG_WINDOW_S:
            self.before = self.now if at - self.began < 2 * LAG_WINDOW_S else 0.0
            self.now, self.began = 0.0, at


LOOP_LAG = LoopLag()
"""The delays of the event loop that the server of this process has noticed."""

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class RequestCounts:
    """Counts requests by route template, method and status: labels that cannot grow with the traffic."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}

    def count(self, route: str, method: str, status: int) -> None:
        key = (route, method if method in METHODS else "other", status)
        self.counts[key] = self.counts.get(key, 0) + 1
