"""Counters of this process's traffic, for the metrics. The server and the doors share them."""

from __future__ import annotations

from typing import Literal, get_args

RefusalKind = Literal["head_time", "body_time", "write_time", "head_size", "headers", "malformed", "connections", "tls"]
"""The reason why a connection ended before its request was read: its head or body arrived too slowly, its response was
not read, its head was too long, it had too many headers, it was not HTTP, there were too many connections, or its TLS
handshake failed."""

REFUSED: dict[RefusalKind, int] = dict.fromkeys(get_args(RefusalKind), 0)
"""The number of connections that the servers of this process have refused, by kind."""

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class RequestCounts:
    """Counts requests by route template, method and status: labels that cannot grow with the traffic."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}

    def count(self, route: str, method: str, status: int) -> None:
        key = (route, method if method in METHODS else "other", status)
        self.counts[key] = self.counts.get(key, 0) + 1
