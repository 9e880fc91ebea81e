"""The runner calls agents, and records in the journal how each run ended."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback

from roost.engine.agent_queue import AgentQueue
from roost.engine.blame import Suspicion
from roost.engine.hosted import AgentChange, Agents
from roost.engine.ids import new_id, now_us
from roost.engine.leases import Worker
from roost.engine.live import IllegalTransition, LiveTask
from roost.engine.live_tasks import LiveTasks
from roost.engine.ports import Leases
from roost.engine.quarantine import Quarantine
from roost.engine.run import Run
from roost.engine.store_types import StoreUnavailable
from roost.engine.turn import Unwind
from roost.identity.principal import WHOLE_TENANT
from roost.identity.quotas import Meter, QuotaSlot
from roost.protocol import entries as kinds
from roost.protocol.entries import AttemptRecord
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import Part, TaskState

log = logging.getLogger("roost.engine")

CANCEL_FORCED_S = 30.0
"""Seconds that a canceled run has to end; then its task is CANCELED regardless."""
TURN_S, TURN_MAX_S = 0.02, 0.5
"""First and longest interval in seconds at which the store is asked whether a run may begin in its context."""


class Runner:
    """Calls agents, in the order that their queues and the store give.

    recovered: set when tasks found at start-up have been queued; until then it is not known who is first in a context.
    """

    def __init__(
        self,
        agents: Agents,
        worker: Worker,
        turns: Leases,
        meter: Meter,
        lives: LiveTasks,
        quarantine: Quarantine,
        recovered: asyncio.Event,
    ) -> None:
        self.agents = agents
        self.worker = worker
        self.turns = turns
        self.meter = meter
        self.lives = lives
        self.quarantine = quarantine
        self.recovered = recovered
        self.queues: dict[str, AgentQueue] = {}
        """The queues of all agents that are served, and of removed ones whose last runs have not ended."""
        self.removed: dict[str, bool] = {}
        """Agents of the latter kind, and whether their tasks are to be canceled."""
        self.runs: dict[str, tuple[AgentQueue, Run]] = {}
        """Every run that is running or waits, by task id."""
        self.waiting: dict[Run, asyncio.Task[None]] = {}
        """Runs that wait for their turn among all hosts, with the asyncio task that asks the store for it."""
        self.slots: dict[Run, QuotaSlot] = {}
        """The slots that runs hold in the quotas of their principal, tenant and agent."""
        self.stopping: set[asyncio.Task[None]] = set()
        """Keeps the asyncio tasks that cancel runs from being collected."""
        self.entering: set[Run] = set()
        """Runs that have a place in their queue, but may have to wait for the quarantine."""
        self.draining = False
        """No run begins any more."""
        self.closing = False
        """Runs are being stopped, and their tasks left to other hosts or the next start."""
        for agent in agents:
            self._serve_agent(agent)
        agents.subscribe(self._agent_changed)

    # Agents

    def queue(self, agent: str) -> AgentQueue | None:
        """The queue of an agent that is served; None if it is not."""
        return None if agent in self.removed else self.queues.get(agent)

    def _serve_agent(self, agent: str) -> None:
        hosted = self.agents.get(agent)
        assert hosted is not None
        self.removed.pop(agent, None)
        if agent in self.queues:
            self.queues[agent].replace(hosted)
        else:
            self.queues[agent] = AgentQueue(hosted, self._launch)

    def _agent_changed(self, change: AgentChange) -> None:
        if change.hosted is not None:
            self._serve_agent(change.agent)
            return
        self.removed[change.agent] = change.cancel
        if change.cancel:
            for task_id, (queue, _) in list(self.runs.items()):
                if queue is self.queues.get(change.agent):
                    self.cancel(task_id)
        self.tidy(change.agent)

    def tidy(self, agent: str) -> None:
        """Forget the queue of a removed agent when nothing is left in it."""
        if agent in self.removed and self.queues[agent].empty:
            del self.queues[agent]
            del self.removed[agent]

    # Runs

    def submit(self, queue: AgentQueue, run: Run, slot: QuotaSlot | None = None) -> None:
        """Call the agent when it is the run's turn. `slot` is what the run holds in the quotas already."""
        run.live.hold()
        self.runs[run.live.new.id] = (queue, run)
        scope = run.live.new.scope
        if slot is None and not self.meter.idle:
            principal = "" if scope.owner == WHOLE_TENANT else scope.owner
            slot = self.meter.resume_task(principal, scope.tenant, scope.agent)
        if slot is not None:
            self.slots[run] = slot
        if run.has_turn or run.hosted.profile.parallel:
            queue.submit(run)
        else:
            queue.joined_queue()
            waiting = self.waiting[run] = asyncio.get_running_loop().create_task(self._await_turn(queue, run))
            waiting.add_done_callback(lambda _: self._turn_over(queue, scope.agent))
        if self.removed.get(scope.agent):
            self.cancel(run.live.new.id)  # its agent was removed while the message was on its way

    def _turn_over(self, queue: AgentQueue, agent: str) -> None:
        """A run does not wait for its turn among all hosts any more."""
        queue.left_queue()
        self.tidy(agent)

    async def _await_turn(self, queue: AgentQueue, run: Run) -> None:
        """Wait for the turn of the task in its context, among all hosts."""
        delay = TURN_S
        await self.recovered.wait()
        while not run.cancel_requested and not run.live.lost:
            try:
                before = await self.turns.take_turn(run.live.new.id)
            except StoreUnavailable as error:
                log.warning("task %s waits for its turn: %s", run.live.new.id, error, extra=run.about)
            else:
                if before is None:
                    del self.waiting[run]
                    queue.submit(run)
                    return
            await asyncio.sleep(delay)
            delay = min(delay * 1.5, TURN_MAX_S)
        if run.live.lost:
            self._release(run)

    def cancel(self, task_id: str) -> bool:
        """Begin to stop the run of a task, which then ends CANCELED; False if there is no run."""
        found = self.runs.get(task_id)
        if found is None:
            return False
        queue, run = found
        if run.cancel_requested:
            return True
        run.request_cancel()
        waiting = self.waiting.get(run)
        if waiting is not None:
            waiting.cancel()
            self._finish(run, TaskState.CANCELED)
            self._release(run)
            return True
        if queue.withdraw(run):
            self._finish(run, TaskState.CANCELED)
            self._release(run)
            return True
        loop = asyncio.get_running_loop()
        loop.call_later(CANCEL_FORCED_S, self._force, run)
        stopping = loop.create_task(self._stop(run))
        self.stopping.add(stopping)
        stopping.add_done_callback(self.stopping.discard)
        return True

    async def finish(self, grace_s: float) -> None:
        """Begin no more runs, and give those that run the time to end."""
        self.draining = True
        tasks = [run.task for _, run in self.runs.values() if run.task is not None and run not in self.entering]
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)

    def abandon(self) -> None:
        """Stop every run: their tasks belong to other hosts now."""
        for queue, run in list(self.runs.values()):
            run.close()
            waiting = self.waiting.get(run)
            if waiting is not None:
                waiting.cancel()  # and it is released here: nobody else does
                self._release(run)
            elif queue.withdraw(run):
                self._release(run)
            else:
                run.stop()

    async def close(self) -> list[LiveTask]:
        """Stop all runs without ending their tasks: the journal has what is needed to go on."""
        self.draining = self.closing = True
        lives = [run.live for _, run in self.runs.values()]
        tasks = [run.task for _, run in self.runs.values() if run.task is not None]
        for waiting in self.waiting.values():
            waiting.cancel()
        for _, run in self.runs.values():
            if run.hosted.profile.resume:
                run.close()  # the agent will be called again, and what it emits at its end is not wanted
            run.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        for _, run in self.runs.values():
            run.close()
        return lives

    def _launch(self, queue: AgentQueue, run: Run) -> None:
        if self.draining:
            return  # the task stays in the journal, for the next host
        run.start(self._serve(queue, run))

    async def _serve(self, queue: AgentQueue, run: Run) -> None:
        watch = None
        try:
            if self.quarantine.idle:
                self.quarantine.begin(run)
            elif not await self._enter(run):
                return
            watch = self._watch(run)
            if not run.hosted.profile.resume:
                await self._record_attempt(run.live)
            run.begin()
            await run.hosted.run(run)
        except Unwind:
            if run.cancel_requested:
                self._finish(run, TaskState.CANCELED)
        except asyncio.CancelledError:
            self._stopped(run)
        except Exception as error:
            self._failed(run, error)
        else:
            self._completed(run)
        finally:
            if watch is not None:
                watch.cancel()
            if run.decision is not None:
                run.become_task()
            run.close()
            queue.ended(run)
            self._release(run)

    async def _enter(self, run: Run) -> bool:
        """Wait for the quarantine; False if the agent is not called then."""
        self.entering.add(run)
        try:
            suspicion = await self.quarantine.enter(run)
        finally:
            self.entering.discard(run)
        if suspicion is not None:
            self._give_up(run, suspicion)
            return False
        if self.draining:
            run.live.release()  # to the next host
            return False
        return True

    async def _record_attempt(self, live: LiveTask) -> None:
        """Record that the agent is called, so that it is not called again for the same message after a crash."""
        live.write_record(now_us(), kinds.ATTEMPT, AttemptRecord(1, self.worker.name))
        await live.commit()

    def _give_up(self, run: Run, suspicion: Suspicion) -> None:
        text = f"The host died {suspicion.blamed} times while this task was running; it is not tried again."
        log.warning("task %s: %s", run.live.new.id, text, extra=run.about)
        self._finish(run, TaskState.FAILED, text)

    def _watch(self, run: Run) -> asyncio.Task[None] | None:
        limits = run.hosted.profile.limits
        if limits.wall_s is None and limits.silence_s is None:
            return None
        return asyncio.get_running_loop().create_task(self._enforce(run, limits.wall_s, limits.silence_s))

    async def _enforce(self, run: Run, wall_s: float | None, silence_s: float | None) -> None:
        started = emitted = time.monotonic()
        ordinal = run.ordinal
        while True:
            now = time.monotonic()
            if run.ordinal != ordinal:
                ordinal, emitted = run.ordinal, now
            wall_left = wall_s - (now - started) if wall_s is not None else 3600.0
            silence_left = silence_s - (now - emitted) if silence_s is not None else 3600.0
            if wall_left <= 0 or silence_left <= 0:
                failure = (
                    f"The agent exceeded its time limit of {wall_s:g} s."
                    if wall_left <= 0
                    else f"The agent was silent for longer than {silence_s:g} s."
                )
                log.warning("task %s: %s", run.live.new.id, failure, extra=run.about)
                self._finish(run, TaskState.FAILED, failure)
                run.close()
                run.stop()
                return
            await asyncio.sleep(min(wall_left, silence_left))

    async def _stop(self, run: Run) -> None:
        try:
            await run.hosted.cancel(run)
        except Exception:
            log.exception("task %s: the agent's cancel() failed", run.live.new.id, extra=run.about)
        run.stop()

    def _force(self, run: Run) -> None:
        found = self.runs.get(run.live.new.id)
        if found is not None and found[1] is run and run.live.state not in TERMINAL:
            log.warning("task %s did not stop within %g s; it is canceled regardless", run.live.new.id, CANCEL_FORCED_S)
            run.close()
            self._finish(run, TaskState.CANCELED)

    def _stopped(self, run: Run) -> None:
        if run.cancel_requested:
            self._finish(run, TaskState.CANCELED)
        elif not self.closing:
            self._finish(run, TaskState.FAILED, "The agent cancelled itself.")

    def _failed(self, run: Run, error: Exception) -> None:
        if run.cancel_requested:
            self._finish(run, TaskState.CANCELED)
            return
        if run.live.lost:
            log.warning("task %s belongs to another host now: %s", run.live.new.id, error, extra=run.about)
            return
        if self._left(run):
            return
        error_id = new_id()
        log.error(
            "task %s failed, error id %s\n%s",
            run.live.new.id,
            error_id,
            "".join(traceback.format_exception(error)),
            extra={**run.about, "error_id": error_id},
        )
        self._finish(run, TaskState.FAILED, f"The agent failed. Error id: {error_id}")

    def _completed(self, run: Run) -> None:
        run.report_unused()
        if run.cancel_requested:
            self._finish(run, TaskState.CANCELED)
        elif run.live.state not in SETTLED and not run.paused and not self._left(run):
            self._finish(run, TaskState.COMPLETED)

    def _left(self, run: Run) -> bool:
        """True if the host has stopped the run, and the next host goes on with the task."""
        return self.closing and run.hosted.profile.resume

    def _finish(self, run: Run, state: TaskState, text: str | None = None) -> None:
        """End the task in this state, unless it has ended already."""
        live = run.live
        if live.lost or live.state in TERMINAL:
            return
        run.become_task()
        message = run.message([Part(text=text)]) if text else None
        try:
            live.write_status(now_us(), state, message)
        except IllegalTransition:
            log.exception("task %s could not be ended", live.new.id)

    def _release(self, run: Run) -> None:
        found = self.runs.get(run.live.new.id)
        if found is not None and found[1] is run:
            del self.runs[run.live.new.id]
        self.waiting.pop(run, None)
        self.quarantine.leave(run)
        slot = self.slots.pop(run, None)
        if slot is not None:
            slot.leave()
        self.lives.unhold(run.live)
        if self.removed:
            self.tidy(run.live.new.scope.agent)
