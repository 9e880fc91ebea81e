"""The quarantine: tasks that may have killed hosts begin a few at a time, or alone, until the killer is known.

A run leaves the quarantine when it ends, or when it has run for its window, and then it goes on like any other. When it
is known that one will be tried alone, no other run begins on this host until that one has run for WINDOW_S.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from contextlib import suppress
from typing import NamedTuple

from roost.engine.blame import WINDOW_S, Suspicion
from roost.engine.ids import now_us
from roost.engine.leases import Worker
from roost.engine.ports import Leases
from roost.engine.run import Run
from roost.engine.store_types import StoreUnavailable
from roost.protocol import entries as kinds
from roost.protocol.entries import ALONE, FEW, ORDINARY, PAST, AttemptRecord
from roost.protocol.errors import Moved
from roost.protocol.states import ACTIVE

log = logging.getLogger("roost.engine")

GROUP = 8
"""Runs that enter the quarantine in WINDOW_S, unless one is tried alone."""
VERDICT_S = 20.0
"""Seconds that a host whose lease ended has to come back, before its end is the death that a task fails for."""
RETRY_S = 1.0
HELD_S = 10.0
"""Seconds in which other runs wait for one that is to be tried alone, unless it is about to enter."""
COMPANY_WINDOWS = 5
"""Windows for which a run that has begun is company: it may be what kills the host. One that is older is not."""
GATHER_S = 0.2
"""Seconds in which those arrive that were taken over together, so that it is known who is first."""


class Entrant(NamedTuple):
    """A run that waits to enter. The likeliest killers are first, so that few others run when they kill again."""

    with_others: bool
    untried: int
    """Minus the hosts that died while the task was tried alone."""
    late: int
    number: int
    """The order of arrival."""
    run: Run
    entered: asyncio.Future[None]


class Quarantine:
    def __init__(self, leases: Leases, worker: Worker) -> None:
        self.leases = leases
        self.worker = worker
        self.suspicions: dict[Run, tuple[Suspicion, float]] = {}
        """Suspects that have not begun, and the time of the monotonic clock from which they may be judged."""
        self.waiting: list[Entrant] = []
        self.inside: dict[Run, Suspicion] = {}
        self.fresh: set[Run] = set()
        """Those of them that entered less than WINDOW_S ago: only so many may enter in that time."""
        self.begun: dict[Run, float] = {}
        """All other runs, and when they began by the monotonic clock."""
        self.accompanied: set[Run] = set()
        """Runs inside that are on record as having company."""
        self.closed: asyncio.Future[float] | None = None
        """Done with the time when other runs may begin again; None unless a run is tried alone, or is about to be."""
        self.kept_out = 0
        """Runs that have had to wait for `closed`."""
        self.resting = False
        """Runs that were kept out begin now, and nobody is tried alone."""
        self.numbers = itertools.count()

    @property
    def idle(self) -> bool:
        return not self.suspicions and not self.inside and self.closed is None

    def suspect(self, run: Run, suspicion: Suspicion) -> None:
        """Let the run begin in quarantine."""
        wait = VERDICT_S if suspicion.guilty and self.worker.shared else 0.0
        self.suspicions[run] = (suspicion, time.monotonic() + wait)
        if suspicion.narrow and not suspicion.guilty and not self.resting:
            self._close()

    def begin(self, run: Run) -> None:
        """Note a run that begins while the quarantine is idle."""
        self.begun[run] = time.monotonic()

    async def enter(self, run: Run) -> Suspicion | None:
        """Wait until the run may begin, and put that on record. Return the suspicion if the task is not run again."""
        if run not in self.suspicions:
            await self._begin_beside(run)
            return None
        suspicion = await self._judged(*self.suspicions[run])
        if suspicion.guilty:
            return suspicion
        if not suspicion.suspect:
            del self.suspicions[run]
            self._open_unless_needed()
            self._let_in()
            await self._record(run, suspicion, ORDINARY)
            await self._begin_beside(run)
            return None
        loop = asyncio.get_running_loop()
        entrant = Entrant(
            not suspicion.narrow, -suspicion.tried, suspicion.late, next(self.numbers), run, loop.create_future()
        )
        self.waiting.append(entrant)
        self.waiting.sort()
        self.suspicions[run] = (suspicion, 0.0)
        loop.call_later(GATHER_S, self._let_in)
        await entrant.entered
        how = "alone" if suspicion.narrow else "with few others"
        log.warning(
            "task %s begins %s: %d hosts died while it ran", run.task_id, how, len(suspicion.losses), extra=run.about
        )
        company = len(self._company()) if suspicion.narrow else 0
        if company:
            self.accompanied.add(run)
        await self._record(run, suspicion, ALONE if suspicion.narrow else FEW, company)
        loop.call_later(suspicion.window_s, self._passed, run)
        return None

    async def _begin_beside(self, run: Run) -> None:
        """Let a run begin that is no suspect. If one is tried alone for longer than the door is closed, record that."""
        began = time.monotonic()
        if self.closed is not None:
            self.kept_out += 1
            began = await asyncio.shield(self.closed)
        self.begun[run] = began
        for tried, suspicion in list(self.inside.items()):
            if suspicion.narrow and tried not in self.accompanied and not tried.closed and tried.live.state in ACTIVE:
                self.accompanied.add(tried)
                with suppress(Moved):
                    await self._record(tried, suspicion, ALONE, 1)

    def leave(self, run: Run) -> None:
        """Forget a run that has ended, or that never begins."""
        self.begun.pop(run, None)
        if self.idle:
            return
        self.suspicions.pop(run, None)
        self.waiting = [entrant for entrant in self.waiting if entrant.run is not run]
        self._outside(run)
        self._open_unless_needed()
        self._let_in()

    async def _judged(self, suspicion: Suspicion, from_s: float) -> Suspicion:
        """Leave out the workers that are known to live on. A verdict waits for those that may come back."""
        while True:
            try:
                suspicion = suspicion.without(await self.leases.survivors(suspicion.workers))
            except StoreUnavailable as error:
                log.warning("a task waits for its quarantine: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            left = from_s - time.monotonic()
            if not suspicion.guilty or left <= 0:
                return suspicion
            await asyncio.sleep(left)

    async def _record(self, run: Run, suspicion: Suspicion, manner: str, company: int = 0) -> None:
        self._write(run, suspicion, manner, company)
        await run.live.commit()

    def _write(self, run: Run, suspicion: Suspicion, manner: str, company: int = 0) -> None:
        record = AttemptRecord(len(suspicion.losses), self.worker.name, manner, company=company)
        run.live.write_record(now_us(), kinds.ATTEMPT, record)

    def _let_in(self) -> None:
        while self.waiting:
            entrant = self.waiting[0]
            if self._has_one_alone():
                return
            suspicion = self.suspicions[entrant.run][0]
            closed_s = WINDOW_S
            if entrant.with_others:
                if len(self.fresh) >= GROUP or self.closed is not None:
                    return
            elif self.fresh or self.resting:
                return
            else:
                self._close()
                if suspicion.accompanied:
                    closed_s = suspicion.window_s
                    company = self._company()
                    if company:
                        asyncio.get_running_loop().call_later(max(company), self._let_in)
                        return
            del self.waiting[0]
            del self.suspicions[entrant.run]
            self.inside[entrant.run] = suspicion
            self.fresh.add(entrant.run)
            asyncio.get_running_loop().call_later(closed_s, self._stale, entrant.run)
            if not entrant.entered.done():
                entrant.entered.set_result(None)

    def _has_one_alone(self) -> bool:
        return any(suspicion.narrow for suspicion in self.inside.values())

    def _company(self) -> list[float]:
        """Return the seconds for which each of the other runs is company."""
        since = time.monotonic() - COMPANY_WINDOWS * WINDOW_S
        return [began - since for began in self.begun.values() if began > since]

    def _stale(self, run: Run) -> None:
        if run in self.fresh:
            self.fresh.discard(run)
            if self.inside[run].narrow:
                self._open()
            self._let_in()

    def _passed(self, run: Run) -> None:
        """The host has outlived the window of the run, which goes on like any other."""
        suspicion = self._outside(run)
        if suspicion is None:
            return
        if not run.closed and run.live.state in ACTIVE:
            self._write(run, suspicion, PAST)
        self._let_in()

    def _outside(self, run: Run) -> Suspicion | None:
        suspicion = self.inside.pop(run, None)
        self.accompanied.discard(run)
        if suspicion is not None and suspicion.narrow:
            self._open()
        self.fresh.discard(run)
        return suspicion

    def _close(self) -> None:
        """Let no other run begin, because one is to be tried alone."""
        if self.closed is None:
            loop = asyncio.get_running_loop()
            self.closed = loop.create_future()
            loop.call_later(HELD_S, self._held, self.closed)

    def _held(self, closed: asyncio.Future[float]) -> None:
        """Wait no longer for a run that is to be tried alone, unless only the quarantine keeps it waiting."""
        if self.closed is not closed:
            return
        if self._has_one_alone() or any(not entrant.with_others for entrant in self.waiting):
            asyncio.get_running_loop().call_later(RETRY_S, self._held, closed)
            return
        self._open()
        self._let_in()

    def _open_unless_needed(self) -> None:
        if not self._has_one_alone() and not any(suspicion.narrow for suspicion, _ in self.suspicions.values()):
            self._open()

    def _open(self) -> None:
        """Let the runs begin that were kept out, and give them a window of their own."""
        if self.closed is None:
            return
        self.closed.set_result(time.monotonic())
        self.closed = None
        if self.kept_out:
            self.kept_out = 0
            self.resting = True
            asyncio.get_running_loop().call_later(WINDOW_S, self._rested)

    def _rested(self) -> None:
        self.resting = False
        self._let_in()
