"""Limits on simultaneous calls to webhooks: in all, and to one host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CROWD = 1000
"""Webhooks of one host that may wait or call; the rest waits in the store."""


class _HostSlots:
    def __init__(self, limit: int) -> None:
        self.slots = asyncio.Semaphore(limit)
        self.users = 0


class Slots:
    def __init__(self, total: int, per_host: int) -> None:
        self.total = asyncio.Semaphore(total)
        self.per_host = per_host
        self.hosts: dict[str, _HostSlots] = {}

    def crowded(self, host: str) -> bool:
        return host in self.hosts and self.hosts[host].users >= CROWD

    @asynccontextmanager
    async def one(self, host: str) -> AsyncIterator[None]:
        """Hold a slot for one call. The host's slot comes first, so that waiting for a slow host blocks no others."""
        found = self.hosts.setdefault(host, _HostSlots(self.per_host))
        found.users += 1
        try:
            async with found.slots, self.total:
                yield
        finally:
            found.users -= 1
            if not found.users:
                del self.hosts[host]
