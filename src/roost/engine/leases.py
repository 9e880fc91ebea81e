"""The lease of this process: the right to run the tasks that name it, prolonged each second.

Renewed on the event loop, so that a loop that is stuck loses it. When it cannot be renewed, the
agents are stopped before it ends: then another process goes on with their tasks, and this one
begins anew under another name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from roost.engine.store_types import StoreUnavailable

if TYPE_CHECKING:
    from roost.engine.engine import Engine

log = logging.getLogger("roost.engine")

LEASE_S = 5.0
RENEW_S = 1.0
MARGIN_S = 1.0
"""Agents are stopped so long before the lease ends."""


class Lease:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.until = 0.0
        """By the monotonic clock: from when on the lease may not be relied on."""
        self.lost = 0
        self.task: asyncio.Task[None] | None = None
        self.watchdog: asyncio.TimerHandle | None = None

    @property
    def held(self) -> bool:
        return not self.engine.store.shared or time.monotonic() < self.until

    async def start(self) -> None:
        if not self.engine.store.shared:
            return
        await self._renew()
        self.task = asyncio.get_running_loop().create_task(self._work(), name="lease")

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        if self.watchdog is not None:
            self.watchdog.cancel()
        try:
            await self.engine.store.leave(self.engine.worker)
        except StoreUnavailable as error:
            log.warning("the lease was not given back, others wait for its end: %s", error)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                async with asyncio.timeout(LEASE_S - MARGIN_S):
                    await self._renew()
            except (StoreUnavailable, TimeoutError) as error:
                log.warning("the lease cannot be renewed: %s", str(error) or "no answer in time")
            except Exception:
                log.exception("the lease cannot be renewed")

    async def _renew(self) -> None:
        worker, asked = self.engine.worker, time.monotonic()
        if await self.engine.store.renew(worker, LEASE_S):
            if worker == self.engine.worker:
                self._hold(asked + LEASE_S - MARGIN_S)
        elif worker == self.engine.worker:
            self._lapse("it had run out")

    def _hold(self, until: float) -> None:
        self.until = until
        if self.watchdog is not None:
            self.watchdog.cancel()
        loop = asyncio.get_running_loop()
        self.watchdog = loop.call_later(max(0.0, until - time.monotonic()), self._lapse, "it was not renewed in time")

    def _lapse(self, why: str) -> None:
        engine = self.engine
        if self.watchdog is not None:
            self.watchdog.cancel()
            self.watchdog = None
        self.until = 0.0
        self.lost += 1
        engine.stats.leases_lost += 1
        log.error("this host lost its lease (%s): its tasks are for others now, and it begins anew", why)
        engine.lapse(f"{engine.worker.partition('+')[0]}+{self.lost}")
