"""Several hosts on one store, in this process: a store that knows leases and turns, and a bus between the hosts."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import httpx

from roost.agents.agent import Hostable
from roost.engine.engine import Engine
from roost.engine.live import Phase
from roost.engine.store_types import Adopted, Append, Push, Refusal, StoreUnavailable, adopted_from
from roost.host import Host
from roost.protocol.states import ACTIVE, PAUSED
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from roost.testing import BASE, InProcessClient
from tests.waiting import PATIENCE_S

Heard = Callable[[Sequence[str]], None]


class SharedStore(MemoryStore):
    """Behaves like PostgreSQL, as far as the engine can tell. `cut` are workers that cannot reach it."""

    shared = True

    def __init__(self) -> None:
        super().__init__()
        self.leases: dict[str, float] = {}
        self.turns: set[str] = set()
        self.cut: set[str] = set()

    def alive(self, worker: str | None) -> bool:
        return worker is not None and self.leases.get(worker, 0.0) > time.monotonic()

    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        await asyncio.sleep(0)
        results = await super().commit(group)
        self.turns |= {append.task_id for append in group if append.turn}
        self.turns = {task_id for task_id in self.turns if self._active(task_id)}
        return results

    async def renew(self, worker: str, ttl_s: float) -> bool:
        if worker in self.cut:
            raise StoreUnavailable("the network is cut")
        if worker in self.leases and not self.alive(worker):
            return False
        self.leases[worker] = time.monotonic() + ttl_s
        return True

    async def leave(self, worker: str) -> None:
        await super().leave(worker)
        self.leases.pop(worker, None)

    async def adopt(self, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
        found = [
            row
            for row in self.rows.values()
            if row.head.state in ACTIVE and not self.alive(row.head.worker) and row.new.scope.agent in agents
        ]
        found.sort(key=lambda row: (row.new.created, row.new.id))
        tasks = Counter(row.head.worker or "" for row in self.rows.values() if row.head.state in ACTIVE)
        adopted = [adopted_from(row.new.id, row.head.fence + 1, row.head.worker, tasks) for row in found[:limit]]
        for row in found[:limit]:
            row.head = row.head._replace(worker=worker, fence=row.head.fence + 1)
        return self.lost_tasks.remember(adopted)

    async def adopt_task(self, worker: str, task_id: str) -> int | None:
        if task_id not in self.rows or self.alive(self.rows[task_id].head.worker):
            return None
        return await super().adopt_task(worker, task_id)

    async def take_turn(self, task_id: str) -> str | None:
        mine = self.rows[task_id].new
        for other in self.rows.values():
            new = other.new
            if new.id == task_id or (new.scope, new.context_id) != (mine.scope, mine.context_id):
                continue
            earlier = task_id not in self.turns and (new.created, new.id) < (mine.created, mine.id)
            if other.head.state in ACTIVE and (new.id in self.turns or earlier):
                return new.id
        self.turns.add(task_id)
        return None

    async def hold_pushes(self, worker: str, limit: int) -> list[Push]:
        held = {key for key, push in self.pushes.items() if self.alive(push.holder)}
        kept = {key: self.pushes.pop(key) for key in held}
        try:
            return await super().hold_pushes(worker, limit)
        finally:
            self.pushes |= kept

    async def unfinished(self, agent: str, limit: int) -> list[str]:
        found = [
            row.new.id
            for row in self.rows.values()
            if row.new.scope.agent == agent
            and (row.head.state in PAUSED or (row.head.state in ACTIVE and not self.alive(row.head.worker)))
        ]
        return sorted(found)[:limit]

    async def close(self) -> None:
        return None


class Bus:
    """Carries wake-ups between hosts in one process. `deaf` loses them all."""

    def __init__(self) -> None:
        self.ears: dict[Wakes, Heard] = {}
        self.deaf = False


class Wakes:
    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    async def listen(self, heard: Heard) -> None:
        self.bus.ears[self] = heard

    def tell(self, task_ids: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        for ear, heard in self.bus.ears.items():
            if ear is not self and not self.bus.deaf:
                loop.call_soon(heard, list(task_ids))

    async def close(self) -> None:
        self.bus.ears.pop(self, None)


class Replica:
    def __init__(self, host: Host, client: InProcessClient) -> None:
        assert host.engine is not None
        self.host = host
        self.client = client
        self.engine: Engine = host.engine

    def die(self) -> None:
        """Do what kill -9 does, as far as others can tell: write nothing any more, and let the lease run out."""
        engine = self.engine
        engine.draining.set()
        engine.committer.dirty.clear()
        for worker in [*engine.committer.workers, *engine.remote_tasks.tasks, engine.recovery.task, engine.lease.task]:
            if worker is not None:
                worker.cancel()
        if engine.lease.watchdog is not None:
            engine.lease.watchdog.cancel()
        for _, run in engine.runner.runs.values():
            run.close()
            run.stop()
        for live in engine.lives.by_id.values():
            live.phase = Phase.LOST
        engine.store.leases.pop(engine.worker.name, None)  # type: ignore[attr-defined]


@asynccontextmanager
async def replicas(
    agent: Callable[[], Hostable], count: int = 2, store: SharedStore | None = None, bus: Bus | None = None
) -> AsyncIterator[list[Replica]]:
    """`agent` makes one for each host. Each has a client of its own."""
    store, bus = store or SharedStore(), bus or Bus()
    made: list[Replica] = []
    clients: list[httpx.AsyncClient] = []
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    for _ in range(count):
        hosted = agent()
        host = Host([hosted], Settings(public_url=BASE, memory=True), store, Wakes(bus))
        await host.start()
        http = httpx.AsyncClient(
            transport=httpx.ASGITransport(host), base_url=BASE, headers=headers, timeout=PATIENCE_S
        )
        clients.append(http)
        made.append(Replica(host, InProcessClient(http, hosted.id)))
    try:
        yield made
    finally:
        for http in clients:
            await http.aclose()
        for replica in made:
            if replica.engine.accepting:
                await replica.host.close()
