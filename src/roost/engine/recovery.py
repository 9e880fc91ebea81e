"""Recovery: tasks whose worker is gone are adopted and run again, at the start and whenever another host dies."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import NamedTuple

from roost.engine.agent_queue import AgentQueue
from roost.engine.blame import MAX_ATTEMPTS, Loss, Suspicion
from roost.engine.hosted import Agents
from roost.engine.ids import now_us
from roost.engine.leases import Worker
from roost.engine.live_tasks import LiveTasks
from roost.engine.ports import Store
from roost.engine.push import Pusher
from roost.engine.quarantine import Quarantine
from roost.engine.resumption import restart_unrecorded, resume
from roost.engine.run import Run
from roost.engine.runner import Runner
from roost.engine.stats import Stats
from roost.engine.store_types import Adopted, StoreUnavailable
from roost.protocol import entries as kinds
from roost.protocol.entries import ORDINARY, WAITS, AttemptRecord
from roost.protocol.errors import Moved, Unavailable
from roost.protocol.states import ACTIVE
from roost.protocol.types import Part, TaskState

log = logging.getLogger("roost.engine")

ORPHANS = 100
"""Tasks that are adopted at once; the rest is for others, or for the next look."""
AT_ONCE = 16
STRAYS = 10_000
STRAYS_EVERY = 5
"""Looks between two searches for strays."""
LOOK_S = 1.0
BACKOFF_S = (0.0, 1.0, 4.0)
RETRY_S, RETRY_MAX_S = 0.2, 5.0


class Ready(NamedTuple):
    """A run that knows what was before it. Its task is held for it."""

    run: Run
    delay_s: float


class Recovery:
    """`recovered` is set when the tasks found at start-up have been queued."""

    def __init__(
        self,
        store: Store,
        agents: Agents,
        worker: Worker,
        lives: LiveTasks,
        runner: Runner,
        quarantine: Quarantine,
        pusher: Pusher | None,
        stats: Stats,
        draining: asyncio.Event,
        recovered: asyncio.Event,
    ) -> None:
        self.store = store
        self.agents = agents
        self.worker = worker
        self.lives = lives
        self.runner = runner
        self.quarantine = quarantine
        self.pusher = pusher
        self.stats = stats
        self.draining = draining
        self.recovered = recovered
        self.adopted: dict[str, Adopted] = {}
        """Tasks that are ours already, but do not run yet."""
        self.hurry = asyncio.Event()
        """An agent is served from now on, which may have tasks that wait for it."""
        self.task: asyncio.Task[None] | None = None
        agents.subscribe(lambda change: self.hurry.set())

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._work(), name="recovery")

    def close(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def _work(self) -> None:
        delay = RETRY_S
        name = self.worker.name
        looks = 0
        while not self.draining.is_set():
            if name != self.worker.name:
                self.adopted.clear()  # adopted under a name that we lost, so whoever finds them may take them
                name = self.worker.name
            try:
                self.hurry.clear()
                if looks == 1:
                    await self._find_strays()
                await self._recover()
                self.recovered.set()
                delay = RETRY_S
                looks = (looks + 1) % STRAYS_EVERY
                await self._pause()
            except (StoreUnavailable, Unavailable) as error:
                looks = 1  # the store may have given us tasks in a response that was lost
                log.error("interrupted tasks cannot be resumed yet, trying again in %g s: %s", delay, error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_MAX_S)
            except Exception:
                log.exception("interrupted tasks cannot be resumed yet")
                await asyncio.sleep(RETRY_MAX_S)

    async def _pause(self) -> None:
        """Wait for the next look. Where no other host can die, only a new agent is a reason for one."""
        if not self.store.shared:
            await self.hurry.wait()
            return
        try:
            async with asyncio.timeout(LOOK_S * random.uniform(0.7, 1.3)):  # noqa: S311  # replicas must not run in step
                await self.hurry.wait()
        except TimeoutError:
            return

    async def _find_strays(self) -> None:
        """Find tasks that are ours by the store and that nothing here is about to run."""
        for task in await self.store.mine(self.worker.name, STRAYS):
            live = self.lives.get(task.task_id)
            busy = live is not None and (live.holds or live.uncommitted)
            if task.task_id not in self.runner.runs and not busy:
                self.adopted.setdefault(task.task_id, task)

    async def _recover(self) -> None:
        while not self.draining.is_set() and self.worker.has_lease:
            agents = list(self.agents)
            if agents:
                found = await self.store.adopt(self.worker.name, agents, ORPHANS)
                self.adopted |= {task.task_id: task for task in found}
            if not self.adopted:
                return
            gate = asyncio.Semaphore(AT_ONCE)
            results = await asyncio.gather(
                *(self._begin(task, gate) for task in list(self.adopted.values())), return_exceptions=True
            )
            loop = asyncio.get_running_loop()
            for result in results:
                if isinstance(result, Ready):  # in the order of their acceptance: they may be turns of one context
                    queue = self.runner.queue(result.run.live.new.scope.agent)
                    if queue is None:  # its agent was removed in this moment
                        result.run.live.release()
                        self.quarantine.leave(result.run)
                        self.lives.unhold(result.run.live)
                        continue
                    queue.announce()
                    if not self.store.shared:  # otherwise the store decides whose turn it is
                        queue.expect(result.run)
                    loop.call_later(result.delay_s, self._resubmit, queue, result.run)
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _begin(self, adopted: Adopted, gate: asyncio.Semaphore) -> Ready | None:
        ready = None
        async with gate:
            try:
                ready = await self._take_over(adopted)
            except Moved:
                pass  # another host has it
            except (StoreUnavailable, Unavailable):
                raise
            except Exception:
                log.exception("task %s cannot be resumed; the others are", adopted.task_id)
            self.adopted.pop(adopted.task_id, None)
        return ready

    async def _take_over(self, adopted: Adopted) -> Ready | None:
        task_id = adopted.task_id
        live = await self.lives.load(task_id)
        if live is None:
            return None
        try:
            if live.fence > adopted.fence or live.uncommitted or live.state not in ACTIVE:
                return None  # it has changed since
            live.adopt(self.worker.name, adopted.fence)
            queue = self.runner.queue(live.new.scope.agent)
            if queue is None:  # its agent was removed in this moment
                live.release()
                return None
            run, attempts = await resume(self.store, live, queue.hosted, has_turn=not self.store.shared)
            if live.hidden:
                live.show()
            if self.pusher is not None:
                await self.pusher.hold_task(task_id)
            if live.state not in ACTIVE:
                return None  # a cancel was faster
            self.stats.adopted["handed over" if adopted.handed_over else "worker lost"] += 1
            if not run.hosted.profile.resume:
                if attempts:
                    _interrupted(run)
                    return None
                live.hold()
                return Ready(run, BACKOFF_S[0])
            suspicion = await self._suspicion(adopted, attempts)
            await restart_unrecorded(self.store, run)
            if adopted.lost or suspicion.suspect:
                manner = WAITS if suspicion.suspect else ORDINARY
                record = AttemptRecord(len(suspicion.losses), self.worker.name, manner, adopted.lost, adopted.tasks)
                live.write_record(now_us(), kinds.ATTEMPT, record)
                await live.commit()
            if suspicion.suspect:
                self.quarantine.suspect(run, suspicion)
            how = "handed over" if adopted.handed_over else f"its worker was lost, attempt {len(suspicion.losses)}"
            log.info("task %s continues: %s", task_id, how, extra=run.about)
            live.hold()
            return Ready(run, BACKOFF_S[min(max(len(suspicion.losses), 1), MAX_ATTEMPTS) - 1])
        finally:
            self.lives.unhold(live)

    async def _suspicion(self, adopted: Adopted, attempts: list[AttemptRecord]) -> Suspicion:
        """Return the evidence against the task, without the workers that are known to live on."""
        last = Loss(adopted.lost, adopted.tasks, ORDINARY) if adopted.lost else None
        suspicion = Suspicion.from_records(attempts, last)
        if not suspicion.suspect:
            return suspicion
        return suspicion.without(await self.store.survivors(suspicion.workers))

    def _resubmit(self, queue: AgentQueue, run: Run) -> None:
        live = run.live
        queue.arrive()
        if not self.draining.is_set() and self.worker.owns(live) and not live.lost and live.state in ACTIVE:
            self.runner.submit(queue, run)
        else:
            queue.forget(run)
            self.quarantine.leave(run)
            self.runner.tidy(live.new.scope.agent)
        self.lives.unhold(live)


def _interrupted(run: Run) -> None:
    text = "The host was interrupted while this task was running, and this agent cannot be called twice."
    log.warning("task %s: %s", run.live.new.id, text, extra=run.about)
    run.live.write_status(now_us(), TaskState.FAILED, run.message([Part(text=text)]))
