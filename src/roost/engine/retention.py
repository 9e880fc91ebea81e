"""What is kept and for how long: old tasks go in small steps, and a full disk takes no new ones."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from roost.engine.store_types import StoreUnavailable, UsageDelta

if TYPE_CHECKING:
    from roost.engine.engine import Engine

log = logging.getLogger("roost.engine")

SPACE_S = 2.0
ACCOUNT_S = 1.0
"""Between two entries in the store's accounts: quotas of other hosts go by them."""
SWEEP_S = 60.0
FIRST_SWEEP_S = 5.0
STEP = 200
"""Tasks that are deleted in one transaction."""
PAUSE_S = 0.05
"""Between two steps: others write too."""
DAY_MS = 86_400_000


class RetentionPolicy(Struct, frozen=True):
    days: float = 0.0
    """After a task's end; 0 keeps all."""
    tasks: int = 0
    """Ended ones of an agent, the newest; 0 keeps all."""
    min_free: int = 0
    """Bytes; with less free space there are no new tasks."""


class RetentionSweeper:
    def __init__(self, engine: Engine, rules: RetentionPolicy) -> None:
        self.engine = engine
        self.rules = rules
        self.tasks: list[asyncio.Task[None]] = []
        self.accounting = asyncio.Lock()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.look_at_space()
        self.tasks = [
            loop.create_task(self._watch_space(), name="disk"),
            loop.create_task(self._account_often(), name="account"),
            loop.create_task(self._sweep_often(), name="retention"),
        ]

    async def close(self) -> None:
        async with self.accounting:  # or else nobody would know whether what is on its way was told
            for task in self.tasks:
                task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        try:
            await self.account()
        except StoreUnavailable as error:
            log.warning("the accounts of what is kept could not be written: %s", error)

    def look_at_space(self) -> None:
        if not self.rules.min_free:
            return
        try:
            free = self.engine.store.free_bytes()
        except OSError as error:
            log.error("the free space cannot be told: %s", error)
            return
        low = free is not None and free < self.rules.min_free
        if low and not self.engine.disk_low:
            log.error("only %d MB are free, fewer than %d: no new tasks", (free or 0) >> 20, self.rules.min_free >> 20)
        elif self.engine.disk_low and not low:
            log.info("there is room on the disk again: new tasks are taken")
        self.engine.disk_low = low

    async def _watch_space(self) -> None:
        while True:
            await asyncio.sleep(SPACE_S)
            self.look_at_space()

    async def _account_often(self) -> None:
        while True:
            await asyncio.sleep(ACCOUNT_S)
            try:
                await self.account()
            except StoreUnavailable as error:
                log.debug("the accounts of what is kept are written later: %s", error)
            except Exception:
                log.exception("the accounts of what is kept cannot be written")

    async def _sweep_often(self) -> None:
        await asyncio.sleep(FIRST_SWEEP_S)
        while True:
            try:
                await self.sweep()
            except StoreUnavailable as error:
                log.warning("old tasks cannot be deleted now: %s", error)
            except Exception:
                log.exception("old tasks cannot be deleted")
            await asyncio.sleep(SWEEP_S * random.uniform(0.8, 1.2))  # noqa: S311  # replicas must not march in step

    async def sweep(self) -> None:
        engine, rules = self.engine, self.rules
        engine.stats.repeats["eviction"] += await engine.store.drop_reservations(engine.rules.most)
        await self.account()
        if rules.days or rules.tasks:
            before = int(time.time() * 1000 - rules.days * DAY_MS) if rules.days else None
            for agent in list(engine.runner.queues):
                while went := await engine.store.prune(agent, before, rules.tasks or None, STEP):
                    engine.stats.pruned += sum(usage.tasks for usage in went)
                    await asyncio.sleep(PAUSE_S)
        engine.stats.kept = await engine.store.usage()
        engine.stats.oldest_ms = await engine.store.oldest()

    async def account(self) -> None:
        """Add to the store's accounts what this process has written since."""
        stats = self.engine.stats
        async with self.accounting:
            written, stats.written = stats.written, {}
            deltas = [UsageDelta(*scope, tasks, size) for scope, (tasks, size) in written.items() if tasks or size]
            try:
                if deltas:
                    await self.engine.store.add_usage(deltas)
            except StoreUnavailable:
                for scope, (tasks, size) in written.items():
                    stats.wrote(scope, tasks, size)
                raise
