"""Calls agents and sees every run to an end that the journal knows."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from roost.engine.agent_queue import AgentQueue
from roost.engine.hosted import HostedAgent
from roost.engine.ids import new_id, now_us
from roost.engine.live import IllegalTransition, LiveTask
from roost.engine.ports import StoreUnavailable
from roost.engine.run import Run, Unwind
from roost.identity.principal import WHOLE_TENANT
from roost.protocol import entries as kinds
from roost.protocol.entries import AttemptRecord
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import Part, TaskState

if TYPE_CHECKING:
    from roost.engine.engine import Engine

log = logging.getLogger("roost.engine")

CANCEL_FORCED_S = 30.0
TURN_S, TURN_MAX_S = 0.02, 0.5
"""Between two looks whether a task on another host has left the context."""


class Runner:
    def __init__(self, engine: Engine, released: Callable[[LiveTask], None]) -> None:
        self.engine = engine
        self.released = released
        self.queues: dict[str, AgentQueue] = {}
        self.runs: dict[str, tuple[AgentQueue, Run]] = {}
        """By task id: every run that is running or waits."""
        self.draining = False
        """Nothing more begins."""
        self.closing = False
        """What runs is stopped, and left to others."""

    def add(self, hosted: HostedAgent) -> None:
        self.queues[hosted.profile.id] = AgentQueue(hosted, self._launch)

    def submit(self, queue: AgentQueue, run: Run) -> None:
        run.live.busy += 1
        self.runs[run.live.new.id] = (queue, run)
        meter, scope = self.engine.meter, run.live.new.scope
        if run.place is None and not meter.idle:
            principal = "" if scope.owner == WHOLE_TENANT else scope.owner
            run.place = meter.resume_task(principal, scope.tenant, scope.agent)
        if run.has_turn or run.hosted.profile.parallel:
            queue.submit(run)
        else:
            queue.waiting += 1
            run.queueing = asyncio.get_running_loop().create_task(self._await_turn(queue, run))
            run.queueing.add_done_callback(lambda _: queue.left_queue())

    async def _await_turn(self, queue: AgentQueue, run: Run) -> None:
        """Wait for the turn of the task in its context, among all hosts."""
        delay = TURN_S
        await self.engine.recovered.wait()
        while not run.cancelled and not run.live.lost:
            try:
                before = await self.engine.store.take_turn(run.live.new.id)
            except StoreUnavailable as error:
                log.warning("task %s waits for its turn: %s", run.live.new.id, error, extra=run.about)
            else:
                if before is None:
                    run.has_turn = True
                    run.queueing = None
                    queue.submit(run)
                    return
            await asyncio.sleep(delay)
            delay = min(delay * 1.5, TURN_MAX_S)
        if run.live.lost:
            self._release(run)

    def cancel(self, task_id: str) -> bool:
        """Begin to stop a run; False if there is none. The journal will say CANCELED."""
        found = self.runs.get(task_id)
        if found is None:
            return False
        queue, run = found
        if run.cancelled:
            return True
        run.cancelled = True
        if run.queueing is not None:
            run.queueing.cancel()
            self._finish(run, TaskState.CANCELED)
            self._release(run)
            return True
        if queue.withdraw(run):
            self._finish(run, TaskState.CANCELED)
            self._release(run)
            return True
        loop = asyncio.get_running_loop()
        loop.call_later(CANCEL_FORCED_S, self._force, run)
        run.stopping = loop.create_task(self._stop(run))
        return True

    async def finish(self, grace_s: float) -> None:
        """Begin nothing more, and give what runs the time to end."""
        self.draining = True
        tasks = [run.task for _, run in self.runs.values() if run.task is not None]
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)

    def abandon(self) -> None:
        """All that runs is another's now."""
        for queue, run in list(self.runs.values()):
            run.dead = True
            if run.queueing is not None:
                run.queueing.cancel()  # and it is released here: nobody else does
                self._release(run)
            elif queue.withdraw(run):
                self._release(run)
            elif run.task is not None:
                run.task.cancel()

    async def close(self) -> list[LiveTask]:
        """Stop all runs without ending their tasks: the journal has what is needed to go on."""
        self.draining = self.closing = True
        lives = [run.live for _, run in self.runs.values()]
        tasks = [run.task for _, run in self.runs.values() if run.task is not None]
        for _, run in self.runs.values():
            if run.queueing is not None:
                run.queueing.cancel()
            run.dead = run.hosted.profile.resume  # it will be called again: what it says at its end counts for nothing
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        for _, run in self.runs.values():
            run.dead = True
        return lives

    def _launch(self, queue: AgentQueue, run: Run) -> None:
        if self.draining:
            return  # it stays in the journal, for the next host
        run.task = asyncio.get_running_loop().create_task(self._serve(queue, run))

    async def _serve(self, queue: AgentQueue, run: Run) -> None:
        watch = self._watch(run)
        try:
            await self._begin(run)
            await run.hosted.run(run)
        except Unwind:
            if run.cancelled:
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
            if run.decision is not None and not run.decision.done():
                run.decide_task()
            run.dead = True
            queue.ended(run)
            self._release(run)

    async def _begin(self, run: Run) -> None:
        live = run.live
        if not run.hosted.profile.resume:
            # Such an agent is never called twice for one message: after a crash this entry says that it was called.
            live.write_record(now_us(), kinds.ATTEMPT, AttemptRecord(1, self.engine.worker))
            await live.commit()
        run.begun = True
        undecided = run.decision is not None and not run.decision.done()
        if live.state is TaskState.SUBMITTED and run.hosted.profile.announce and not undecided:
            live.write_status(now_us(), TaskState.WORKING)

    def _watch(self, run: Run) -> asyncio.Task[None] | None:
        limits = run.hosted.profile.limits
        if limits.wall_s is None and limits.silence_s is None:
            return None
        return asyncio.get_running_loop().create_task(self._enforce(run, limits.wall_s, limits.silence_s))

    async def _enforce(self, run: Run, wall_s: float | None, silence_s: float | None) -> None:
        started = heard = time.monotonic()
        said = run.ordinal
        while True:
            now = time.monotonic()
            if run.ordinal != said:
                said, heard = run.ordinal, now
            wall_left = wall_s - (now - started) if wall_s is not None else 3600.0
            silence_left = silence_s - (now - heard) if silence_s is not None else 3600.0
            if wall_left <= 0 or silence_left <= 0:
                run.failure = (
                    f"The agent exceeded its time limit of {wall_s:g} s."
                    if wall_left <= 0
                    else f"The agent was silent for longer than {silence_s:g} s."
                )
                log.warning("task %s: %s", run.live.new.id, run.failure, extra=run.about)
                self._finish(run, TaskState.FAILED, run.failure)
                run.dead = True
                if run.task is not None:
                    run.task.cancel()
                return
            await asyncio.sleep(min(wall_left, silence_left))

    async def _stop(self, run: Run) -> None:
        try:
            await run.hosted.cancel(run)
        except Exception:
            log.exception("task %s: the agent's cancel() failed", run.live.new.id, extra=run.about)
        if run.task is not None:
            run.task.cancel()

    def _force(self, run: Run) -> None:
        found = self.runs.get(run.live.new.id)
        if found is not None and found[1] is run and run.live.state not in TERMINAL:
            log.warning("task %s did not stop within %g s; it is canceled regardless", run.live.new.id, CANCEL_FORCED_S)
            run.dead = True
            self._finish(run, TaskState.CANCELED)

    def _stopped(self, run: Run) -> None:
        if run.cancelled:
            self._finish(run, TaskState.CANCELED)
        elif run.failure is None and not self.closing:
            self._finish(run, TaskState.FAILED, "The agent cancelled itself.")

    def _failed(self, run: Run, error: Exception) -> None:
        if run.cancelled:
            self._finish(run, TaskState.CANCELED)
            return
        if run.live.lost:
            log.warning("task %s is another's now: %s", run.live.new.id, error, extra=run.about)
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
        if run.cancelled:
            self._finish(run, TaskState.CANCELED)
        elif run.live.state not in SETTLED and not run.paused and not self._left(run):
            self._finish(run, TaskState.COMPLETED)

    def _left(self, run: Run) -> bool:
        """The host has stopped it, and the task is for the next one to go on with."""
        return self.closing and run.hosted.profile.resume

    def _finish(self, run: Run, state: TaskState, text: str | None = None) -> None:
        """The runner's own last word, whatever the agent says afterwards."""
        live = run.live
        if live.lost or live.state in TERMINAL:
            return
        run.decide_task()
        message = run.message([Part(text=text)]) if text else None
        try:
            live.write_status(now_us(), state, message)
        except IllegalTransition:
            log.exception("task %s could not be ended", live.new.id)

    def _release(self, run: Run) -> None:
        found = self.runs.get(run.live.new.id)
        if found is not None and found[1] is run:
            del self.runs[run.live.new.id]
        run.leave()
        run.live.busy -= 1
        self.released(run.live)
