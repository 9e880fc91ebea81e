"""What is done to the hosts and to what they stand on: a list that follows from the seed, and who works it off."""

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
CUT, SWALLOW, RESTART = "cuts", "black holes", "PostgreSQL restarts"
NATS = "NATS stops"
EVERY = {ROLL: 60, FREEZE: 40, CUT: 10, SWALLOW: 30, RESTART: 40, NATS: 16}
"""How many kills there are for one of each; at least one of each in a round."""
PAUSE_S = (0.3, 1.1)
"""Between two kills among three replicas."""
SHORT_S, LONG_S = (0.0, 1.2), (2.2, 3.2)
"""From kill to kill of a host that is alone. A task has three attempts, the second after 1 s: so no two short ones in
a row, or tasks would end FAILED, as they should, and little would be learned."""
EARLY = 0.05
"""Kills that do not wait until the host serves."""
WHOLE = 0.3
"""Kills of the host together with what it started; the others leave its children to notice."""
LEASE_S = 5.0


class Harm(NamedTuple):
    after_s: float
    """Since the one before."""
    kind: str
    replica: int
    seconds: float = 0.0
    variant: bool = False
    """A kill of the whole process group; a black hole that ends with a cut."""
    early: bool = False
    """A kill that does not wait until the host serves."""


def schedule(chance: Random, store: str, kills: int) -> list[Harm]:
    """The same for the same chance."""
    alone = store == "sqlite"
    kinds = [ROLL, FREEZE] if alone else [ROLL, FREEZE, CUT, SWALLOW, RESTART] + [NATS] * store.endswith("nats")
    found = _kills_of_one(chance, kills) if alone else _kills_of_three(chance, kills)
    for kind in kinds:
        for _ in range(max(1, kills // EVERY[kind])):
            replica = 0 if alone else chance.randrange(3)
            # Some end before the lease does, and some after it.
            seconds = chance.uniform(0.5, 2.0) if alone or kind == NATS else chance.uniform(1.0, 1.7 * LEASE_S)
            harm = Harm(chance.uniform(*PAUSE_S), kind, replica, seconds, chance.random() < 0.5)
            found.insert(chance.randint(0, len(found)), harm)
    return found


def _kills_of_one(chance: Random, kills: int) -> list[Harm]:
    found, short = [], False
    for _ in range(kills):
        short = not short and chance.random() < 0.7
        after_s = chance.uniform(*(SHORT_S if short else LONG_S))
        found.append(Harm(after_s, KILL, 0, 0.0, chance.random() < WHOLE, short and chance.random() < EARLY))
    return found


def _kills_of_three(chance: Random, kills: int) -> list[Harm]:
    """Each of them once in three kills, in any order: so nobody's lives are all short."""
    found: list[Harm] = []
    while len(found) < kills:
        for replica in chance.sample(range(3), 3):
            whole, early = chance.random() < WHOLE, chance.random() < EARLY
            found.append(Harm(chance.uniform(*PAUSE_S), KILL, replica, 0.0, whole, early))
    return found[:kills]


class Harmer:
    def __init__(
        self,
        replicas: Sequence[Replica],
        proxies: Sequence[Proxy],
        postgres: Postgres | None,
        nats: Nats | None,
        history: History,
        log: Path,
        say: Callable[[str], None],
    ) -> None:
        self.replicas = replicas
        self.proxies = proxies
        self.postgres = postgres
        self.nats = nats
        self.history = history
        self.log = log
        """What was done when, and to whom."""
        self.say = say
        self.done: Counter[str] = Counter()
        self.busy: set[str] = set()
        """Kinds of harm that take a while, and are being done."""

    async def run(self, harms: Sequence[Harm], seconds: float) -> None:
        """Work off the list, for at most so long. Afterwards everything runs again."""
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for harm in harms:
                await asyncio.sleep(harm.after_s)
                if time.monotonic() > until:
                    break
                if harm.kind == KILL:
                    await self._kill(harm)
                elif harm.kind == ROLL:
                    await self._roll()
                elif len(self.replicas) == 1:
                    await self._do(harm)  # nobody else is there to be killed meanwhile
                elif harm.kind not in self.busy:
                    group.create_task(self._for_a_while(harm))
        for replica in self.replicas:
            await self._back(replica)

    async def _kill(self, harm: Harm) -> None:
        replica = self.replicas[harm.replica]
        if not harm.early:
            await self._back(replica)
        self._note(f"kill {replica}")
        try:
            await replica.kill(whole=harm.variant)
        except ReplicaFailed as error:
            self.history.hosts.append(str(error))
        self.done[KILL] += 1
        replica.start()
        if self.done[KILL] % 20 == 0:
            self.say(", ".join(f"{count} {kind}" for kind, count in self.done.items()))

    async def _roll(self) -> None:
        for replica in self.replicas:
            await self._back(replica)
            self._note(f"SIGTERM {replica}")
            try:
                await replica.stop()
            except ReplicaFailed as error:
                self.history.hosts.append(str(error))
            replica.start()
            await self._back(replica)
        self.done[ROLL] += 1

    async def _back(self, replica: Replica) -> None:
        try:
            await replica.wait()
        except ReplicaFailed as error:
            self.history.hosts.append(str(error))
            await replica.kill(whole=True)
            replica.start()
            await replica.wait()

    async def _for_a_while(self, harm: Harm) -> None:
        self.busy.add(harm.kind)
        try:
            await self._do(harm)
        finally:
            self.busy.discard(harm.kind)

    async def _do(self, harm: Harm) -> None:
        self.done[harm.kind] += 1
        self._note(f"{harm.kind}, {self.replicas[harm.replica]}, {harm.seconds:.1f} s, {harm.variant}")
        if harm.kind == CUT:
            self.proxies[harm.replica].cut()
        elif harm.kind == SWALLOW:
            await self.proxies[harm.replica].swallow(harm.seconds, then_cut=harm.variant)
        elif harm.kind == FREEZE:
            replica = self.replicas[harm.replica]
            await self._back(replica)
            self.history.frozen.add(replica.pid)
            await replica.freeze(harm.seconds)
        elif harm.kind == RESTART:
            assert self.postgres is not None
            await asyncio.to_thread(self.postgres.restart, "immediate")
        elif harm.kind == NATS:
            assert self.nats is not None
            await asyncio.to_thread(self.nats.kill if harm.variant else self.nats.stop)
            await asyncio.sleep(harm.seconds)
            await asyncio.to_thread(self.nats.start)
        self._note(f"{harm.kind} over")

    def _note(self, what: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{time.monotonic():.3f} {datetime.now(UTC):%H:%M:%S.%f} {what}\n")
