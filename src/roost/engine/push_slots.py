"""How many calls are made at the same time: so many in all, so many of them to one host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CROWD = 1000
"""So many at one host, waiting or calling, are enough: the rest waits in the store."""


class _Host:
    def __init__(self, limit: int) -> None:
        self.slots = asyncio.Semaphore(limit)
        self.users = 0


class Slots:
    def __init__(self, total: int, per_host: int) -> None:
        self.total = asyncio.Semaphore(total)
        self.per_host = per_host
        self.hosts: dict[str, _Host] = {}

    def crowded(self, host: str) -> bool:
        return host in self.hosts and self.hosts[host].users >= CROWD

    @asynccontextmanager
    async def one(self, host: str) -> AsyncIterator[None]:
        """The host's slot comes first: those who wait for a slow host take nothing from others."""
        found = self.hosts.setdefault(host, _Host(self.per_host))
        found.users += 1
        try:
            async with found.slots, self.total:
                yield
        finally:
            found.users -= 1
            if not found.users:
                del self.hosts[host]
