"""A store whose commits and reads wait for the test, fail on demand, and are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from roost.engine.store_types import Append, StaleFence, StoreUnavailable
from roost.protocol.entries import Entry
from roost.stores.memory import MemoryStore


class GateStore(MemoryStore):
    """`commits.clear()` holds commits up, `commits.set()` lets them through; the same for reads of records."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = asyncio.Event()
        self.commits.set()
        self.records = asyncio.Event()
        self.records.set()
        self.failing = False
        self.committing = 0
        """Commits that wait at the gate now."""
        self.failed = 0
        self.groups: list[list[Append]] = []
        """All that was committed."""

    async def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        if not self.commits.is_set():
            self.committing += 1
            await self.commits.wait()
            self.committing -= 1
        if self.failing:
            self.failed += 1
            raise StoreUnavailable("the disk is full")
        self.groups.append(list(group))
        return await super().commit(group)

    async def read_internal(self, task_id: str) -> list[Entry]:
        await self.records.wait()
        return await super().read_internal(task_id)
