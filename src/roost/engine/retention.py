"""Retention: old tasks are deleted, tasks of agents that are gone are ended, and a full disk stops new tasks."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import NamedTuple

from roost.engine.hosted import Agents
from roost.engine.ids import new_id, now_us
from roost.engine.leases import Worker
from roost.engine.live_tasks import LiveTasks
from roost.engine.ports import Records, Store
from roost.engine.stats import Stats
from roost.engine.store_types import StoreUnavailable, UsageDelta
from roost.protocol.errors import Moved, Unavailable
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import Message, Part, Role, TaskState

log = logging.getLogger("roost.engine")

SPACE_S = 2.0
ACCOUNT_S = 1.0
"""Seconds between two updates of the stored usage, by which other hosts' quotas go."""
SWEEP_S = 60.0
FIRST_SWEEP_S = 5.0
STEP = 200
"""Tasks that are deleted in one transaction."""
PAUSE_S = 0.05
"""Seconds between two steps, in which others can write."""
DAY_MS = 86_400_000


class RetentionPolicy(NamedTuple):
    days: float = 0.0
    """Days that a task is kept after its end; 0 keeps all."""
    tasks: int = 0
    """Ended tasks that are kept of an agent, the newest; 0 keeps all."""
    min_free: int = 0
    """Bytes of free space without which there are no new tasks."""
    unserved_days: float = 7.0
    """Days after which unfinished tasks of an agent that no host serves are FAILED; 0 keeps them."""
    reservations: int = 100_000
    """Idempotency keys that are remembered."""


class DiskSpace:
    """Watches the free space. `low` is true while there is too little for new tasks."""

    def __init__(self, store: Records, min_free: int) -> None:
        self.store = store
        self.min_free = min_free
        self.low = False

    def look(self) -> None:
        if not self.min_free:
            return
        try:
            free = self.store.free_bytes()
        except OSError as error:
            log.error("cannot read the free disk space: %s", error)
            return
        low = free is not None and free < self.min_free
        if low and not self.low:
            log.error("only %d MB are free, less than %d: no new tasks", (free or 0) >> 20, self.min_free >> 20)
        elif self.low and not low:
            log.info("there is room on the disk again: new tasks are accepted")
        self.low = low

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(SPACE_S)
            self.look()


class RetentionSweeper:
    def __init__(
        self,
        store: Store,
        agents: Agents,
        worker: Worker,
        lives: LiveTasks,
        stats: Stats,
        policy: RetentionPolicy,
        disk: DiskSpace,
    ) -> None:
        self.store = store
        self.agents = agents
        self.worker = worker
        self.lives = lives
        self.stats = stats
        self.policy = policy
        self.disk = disk
        self.tasks: list[asyncio.Task[None]] = []
        self.accounting = asyncio.Lock()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.disk.look()
        self.tasks = [
            loop.create_task(self.disk.watch(), name="disk"),
            loop.create_task(self._account_often(), name="account"),
            loop.create_task(self._sweep_often(), name="retention"),
        ]

    async def close(self) -> None:
        async with self.accounting:  # a cancel in between would leave it unknown what the store has counted
            for task in self.tasks:
                task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        try:
            await self.account()
        except StoreUnavailable as error:
            log.warning("the stored usage could not be updated: %s", error)

    async def _account_often(self) -> None:
        while True:
            await asyncio.sleep(ACCOUNT_S)
            try:
                await self.account()
            except StoreUnavailable as error:
                log.debug("the stored usage is updated later: %s", error)
            except Exception:
                log.exception("the stored usage cannot be updated")

    async def _sweep_often(self) -> None:
        await asyncio.sleep(FIRST_SWEEP_S)
        while True:
            try:
                await self.sweep()
            except StoreUnavailable as error:
                log.warning("old tasks cannot be deleted now: %s", error)
            except Exception:
                log.exception("old tasks cannot be deleted")
            await asyncio.sleep(SWEEP_S * random.uniform(0.8, 1.2))  # noqa: S311  # replicas must not run in step

    async def sweep(self) -> None:
        policy, stats = self.policy, self.stats
        stats.repeats["eviction"] += await self.store.drop_reservations(policy.reservations)
        await self.account()
        if policy.days or policy.tasks:
            before = int(time.time() * 1000 - policy.days * DAY_MS) if policy.days else None
            for agent in await self.store.agents():
                while went := await self.store.prune(agent, before, policy.tasks or None, STEP):
                    stats.pruned += sum(usage.tasks for usage in went)
                    await asyncio.sleep(PAUSE_S)
        await self.store.note_served(list(self.agents))
        if policy.unserved_days:
            await self._fail_unserved(int(time.time() * 1000 - policy.unserved_days * DAY_MS))
        stats.kept = await self.store.usage()
        stats.oldest_ms = await self.store.oldest()

    async def _fail_unserved(self, before_ms: int) -> None:
        """End the tasks of agents that no host has served since this time."""
        for agent in await self.store.unserved(before_ms):
            while self.agents.get(agent) is None:
                adopted = await self.store.adopt(self.worker.name, [agent], STEP)
                found = [task.task_id for task in adopted] or await self.store.unfinished(agent, STEP)
                fences = {task.task_id: task.fence for task in adopted}
                ended = [await self._fail(agent, task_id, fences.get(task_id)) for task_id in found]
                if not any(ended):
                    break
                log.warning("agent %s is not served any more: %d of its tasks are FAILED", agent, sum(ended))
                await asyncio.sleep(PAUSE_S)

    async def _fail(self, agent: str, task_id: str, fence: int | None) -> bool:
        """End a paused task, or with `fence` one that was adopted, as FAILED. False if it cannot be done now."""
        live = await self.lives.load(task_id)
        if live is None:
            return False
        try:
            if live.state in TERMINAL or live.uncommitted or (fence is None and live.state not in PAUSED):
                return False
            if fence is not None:
                if live.fence > fence:
                    return False
                live.adopt(self.worker.name, fence)
            if live.hidden:
                live.show()
            text = f"No host has served the agent {agent!r} for {self.policy.unserved_days:g} days."
            message = Message(
                message_id=new_id(),
                role=Role.AGENT,
                parts=[Part(text=text)],
                task_id=task_id,
                context_id=live.new.context_id,
            )
            live.end_paused(now_us(), TaskState.FAILED, self.worker.name, message)
            await live.commit()
            return True
        except (Moved, Unavailable):
            return False
        finally:
            self.lives.unhold(live)

    async def account(self) -> None:
        """Add what this process has written since the last time to the stored usage."""
        stats = self.stats
        async with self.accounting:
            written, stats.written = stats.written, {}
            deltas = [UsageDelta(*scope, tasks, size) for scope, (tasks, size) in written.items() if tasks or size]
            try:
                if deltas:
                    await self.store.add_usage(deltas)
            except StoreUnavailable:
                for scope, (tasks, size) in written.items():
                    stats.wrote(scope, tasks, size)
                raise
