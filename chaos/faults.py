"""Injects faults into the hosts and their services, by a schedule that depends on the seed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import NamedTuple

from tools.services import Nats, Postgres

from chaos.history import History
from chaos.proxy import Proxy
from chaos.replicas import Replica, ReplicaFailed

KILL, ROLL, FREEZE = "kills", "rolling restarts", "freezes"
CUT, BLACK_HOLE, RESTART = "cuts", "black holes", "PostgreSQL restarts"
NATS = "NATS stops"
EVERY = {ROLL: 60, FREEZE: 40, CUT: 10, BLACK_HOLE: 30, RESTART: 40, NATS: 16}
"""The number of kills for one fault of each kind. A round has at least one fault of each kind."""
PAUSE_S = (0.3, 1.1)
"""Seconds between two kills among three replicas."""
SHORT_S, LONG_S = (0.0, 1.2), (2.2, 3.2)
"""Seconds between two kills of a single host. A task has three attempts, the second after 1 s. There are no two short
intervals in a row, because tasks would rightly end FAILED, and the round would show little."""
EARLY_SHARE = 0.05
"""The share of kills that do not wait until the host serves."""
GROUP_SHARE = 0.3
"""The share of kills of the whole process group. The other kills leave the child processes to notice."""
LEASE_S = 5.0


class Fault(NamedTuple):
    after_s: float
    """Seconds since the previous fault."""
    kind: str
    replica: int
    seconds: float = 0.0
    variant: bool = False
    """Whether a kill is for the whole process group, or a black hole ends with a cut."""
    early: bool = False
    """Whether a kill does not wait until the host serves."""


def schedule(rng: Random, store: str, kills: int) -> list[Fault]:
    """Return the faults of a round. They depend only on the random generator and the arguments."""
    single = store == "sqlite"
    kinds = [ROLL, FREEZE] if single else [ROLL, FREEZE, CUT, BLACK_HOLE, RESTART] + [NATS] * store.endswith("nats")
    found = _kills_of_single_host(rng, kills) if single else _kills_of_replicas(rng, kills)
    for kind in kinds:
        for _ in range(max(1, kills // EVERY[kind])):
            replica = 0 if single else rng.randrange(3)
            # Some end before the lease does, and some after it.
            seconds = rng.uniform(0.5, 2.0) if single or kind == NATS else rng.uniform(1.0, 1.7 * LEASE_S)
            fault = Fault(rng.uniform(*PAUSE_S), kind, replica, seconds, rng.random() < 0.5)
            found.insert(rng.randint(0, len(found)), fault)
    return found


def _kills_of_single_host(rng: Random, kills: int) -> list[Fault]:
    found, short = [], False
    for _ in range(kills):
        short = not short and rng.random() < 0.7
        after_s = rng.uniform(*(SHORT_S if short else LONG_S))
        found.append(Fault(after_s, KILL, 0, 0.0, rng.random() < GROUP_SHARE, short and rng.random() < EARLY_SHARE))
    return found


def _kills_of_replicas(rng: Random, kills: int) -> list[Fault]:
    """Kill each replica once in three kills, in random order, so that no replica has only short lives."""
    found: list[Fault] = []
    while len(found) < kills:
        for replica in rng.sample(range(3), 3):
            group, early = rng.random() < GROUP_SHARE, rng.random() < EARLY_SHARE
            found.append(Fault(rng.uniform(*PAUSE_S), KILL, replica, 0.0, group, early))
    return found[:kills]


class FaultInjector:
    def __init__(
        self,
        replicas: Sequence[Replica],
        proxies: Sequence[Proxy],
        postgres: Postgres | None,
        nats: Nats | None,
        history: History,
        file: Path,
        log: Callable[[str], None],
    ) -> None:
        self.replicas = replicas
        self.proxies = proxies
        self.postgres = postgres
        self.nats = nats
        self.history = history
        self.file = file
        """Records which fault was injected when, and where."""
        self.log = log
        self.counts: Counter[str] = Counter()
        self.active: set[str] = set()
        """The kinds of faults with a duration that are active now."""

    async def run(self, faults: Sequence[Fault], seconds: float) -> None:
        """Inject the faults, for at most this long. Afterwards everything runs again."""
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(fault.after_s)
                if time.monotonic() > until:
                    break
                if fault.kind == KILL:
                    await self._kill(fault)
                elif fault.kind == ROLL:
                    await self._restart_all()
                elif len(self.replicas) == 1:
                    await self._inject(fault)  # there is no other host to kill meanwhile
                elif fault.kind not in self.active:
                    group.create_task(self._inject_in_background(fault))
        for replica in self.replicas:
            await self._ensure_serving(replica)

    async def _kill(self, fault: Fault) -> None:
        replica = self.replicas[fault.replica]
        if not fault.early:
            await self._ensure_serving(replica)
        self._record(f"kill {replica}")
        try:
            await replica.kill(group=fault.variant)
        except ReplicaFailed as error:
            self.history.hosts.append(str(error))
        self.counts[KILL] += 1
        replica.start()
        if self.counts[KILL] % 20 == 0:
            self.log(", ".join(f"{count} {kind}" for kind, count in self.counts.items()))

    async def _restart_all(self) -> None:
        for replica in self.replicas:
            await self._ensure_serving(replica)
            self._record(f"SIGTERM {replica}")
            try:
                await replica.stop()
            except ReplicaFailed as error:
                self.history.hosts.append(str(error))
            replica.start()
            await self._ensure_serving(replica)
        self.counts[ROLL] += 1

    async def _ensure_serving(self, replica: Replica) -> None:
        try:
            await replica.wait()
        except ReplicaFailed as error:
            self.history.hosts.append(str(error))
            await replica.kill(group=True)
            replica.start()
            await replica.wait()

    async def _inject_in_background(self, fault: Fault) -> None:
        self.active.add(fault.kind)
        try:
            await self._inject(fault)
        finally:
            self.active.discard(fault.kind)

    async def _inject(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1
        self._record(f"{fault.kind}, {self.replicas[fault.replica]}, {fault.seconds:.1f} s, {fault.variant}")
        if fault.kind == CUT:
            self.proxies[fault.replica].cut()
        elif fault.kind == BLACK_HOLE:
            await self.proxies[fault.replica].black_hole(fault.seconds, then_cut=fault.variant)
        elif fault.kind == FREEZE:
            replica = self.replicas[fault.replica]
            await self._ensure_serving(replica)
            self.history.frozen.add(replica.pid)
            await replica.freeze(fault.seconds)
        elif fault.kind == RESTART:
            assert self.postgres is not None
            await asyncio.to_thread(self.postgres.restart, "immediate")
        elif fault.kind == NATS:
            assert self.nats is not None
            await asyncio.to_thread(self.nats.kill if fault.variant else self.nats.stop)
            await asyncio.sleep(fault.seconds)
            await asyncio.to_thread(self.nats.start)
        self._record(f"{fault.kind} over")

    def _record(self, what: str) -> None:
        with self.file.open("a") as file:
            file.write(f"{time.monotonic():.3f} {datetime.now(UTC):%H:%M:%S.%f} {what}\n")
