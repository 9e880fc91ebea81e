"""The lease of this process: the right to run the tasks that name it, renewed each second.

It is renewed on the event loop, so that a loop that is stuck loses it. When it cannot be renewed, agents are stopped
before it ends. Then another process continues their tasks, and this one starts again under another name. It records
that the worker with the old name lives on, so that the end of that lease does not count as the death of a host.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from roost.engine.live import LiveTask
from roost.engine.ports import Store
from roost.engine.stats import Stats
from roost.engine.store_types import StoreUnavailable
from roost.protocol.errors import Unavailable
from roost.protocol.states import TERMINAL

log = logging.getLogger("roost.engine")

LEASE_S = 5.0
RENEW_S = 1.0
MARGIN_S = 1.0
"""Agents are stopped this long before the lease ends."""


class Worker:
    """This process among those that share the store. Only the lease changes its fields."""

    def __init__(self, name: str, *, shared: bool) -> None:
        self.name = name
        """The name that tasks and webhooks of this process carry; a new one after the lease was lost."""
        self.shared = shared
        """Other processes may use the store. Without them there is no lease to lose."""
        self.until = 0.0
        """The time of the monotonic clock until which the lease is certain."""

    @property
    def has_lease(self) -> bool:
        return not self.shared or time.monotonic() < self.until

    def require_lease(self) -> None:
        if not self.has_lease:
            raise Unavailable("this host has no lease: it cannot reach its store", retry_after=1)

    def owns(self, live: LiveTask) -> bool:
        """Say whether this process writes the task; otherwise another may, or nobody."""
        return live.worker == self.name

    def is_anothers(self, live: LiveTask) -> bool:
        """Say whether another process runs the task, so that this one must not write to it."""
        return self.shared and live.worker not in (None, self.name) and live.state not in TERMINAL


class Lease:
    """Renews the lease of a worker. `lapsed` is called with the old name when the lease is lost."""

    def __init__(self, store: Store, worker: Worker, stats: Stats, lapsed: Callable[[str], None]) -> None:
        self.store = store
        self.worker = worker
        self.stats = stats
        self.lapsed = lapsed
        self.survived: list[str] = []
        """Names that were lost, which the store does not know yet."""
        self.task: asyncio.Task[None] | None = None
        self.watchdog: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        if not self.store.shared:
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
            await self.store.leave(self.worker.name)
        except StoreUnavailable as error:
            log.warning("the lease could not be returned, so other hosts wait until it ends: %s", error)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                async with asyncio.timeout(LEASE_S - MARGIN_S):
                    await self._renew()
            except (StoreUnavailable, TimeoutError) as error:
                log.warning("the lease cannot be renewed: %s", str(error) or "the store does not answer in time")
            except Exception:
                log.exception("the lease cannot be renewed")

    async def _renew(self) -> None:
        await self._record_survival()
        name, asked = self.worker.name, time.monotonic()
        if await self.store.renew(name, LEASE_S):
            if name == self.worker.name:
                self._hold(asked + LEASE_S - MARGIN_S)
        elif name == self.worker.name:
            self._lapse("it had run out")

    async def _record_survival(self) -> None:
        """Record that this host lives on, so that the leases that it lost do not count as deaths."""
        try:
            while self.survived:
                await self.store.survive(self.survived[0])
                del self.survived[0]
        except StoreUnavailable as error:
            log.warning("cannot record that this host lives on, so its tasks may count an attempt: %s", error)

    def _hold(self, until: float) -> None:
        self.worker.until = until
        if self.watchdog is not None:
            self.watchdog.cancel()
        loop = asyncio.get_running_loop()
        self.watchdog = loop.call_later(max(0.0, until - time.monotonic()), self._lapse, "it was not renewed in time")

    def _lapse(self, why: str) -> None:
        if self.watchdog is not None:
            self.watchdog.cancel()
            self.watchdog = None
        self.worker.until = 0.0
        self.stats.leases_lost += 1
        lost = self.worker.name
        self.worker.name = f"{lost.partition('+')[0]}+{self.stats.leases_lost}"
        self.survived.append(lost)
        log.error("this host lost its lease (%s): other hosts continue its tasks, and it starts again", why)
        self.lapsed(lost)
