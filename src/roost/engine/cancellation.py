"""CancelTask, wherever the task runs: here, on another host, or nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from roost.engine.follower import SUBSCRIBE_ENDS
from roost.engine.ids import now_us
from roost.engine.leases import Worker
from roost.engine.live import LiveTask
from roost.engine.live_tasks import LiveTasks
from roost.engine.ports import Leases, Wakes
from roost.engine.runner import Runner
from roost.engine.views import state_word, task_bytes
from roost.identity.principal import Principal
from roost.protocol.errors import Moved, TaskNotCancelable, TaskNotFound
from roost.protocol.states import TERMINAL
from roost.protocol.types import TaskState

CANCEL_WAIT_S = 5.0
"""Seconds that CancelTask waits for the end of the task; then it returns the task as it is."""
TRIES = 3
"""Tries at a task that moves to another host at the same time."""


class Cancellation:
    def __init__(self, lives: LiveTasks, worker: Worker, runner: Runner, leases: Leases, wakes: Wakes | None) -> None:
        self.lives = lives
        self.worker = worker
        self.runner = runner
        self.leases = leases
        self.wakes = wakes

    async def cancel(self, principal: Principal, agent: str, task_id: str) -> bytes:
        """Cancel a task of the caller, and return it."""
        return await self._cancel_found(task_id, lambda: self.lives.find(principal, agent, task_id))

    async def cancel_any(self, task_id: str) -> None:
        """Cancel a task for an operator, whoever owns it. Its content is not returned."""

        async def find() -> LiveTask:
            live = await self.lives.load(task_id)
            if live is None:
                raise TaskNotFound(metadata={"taskId": task_id})
            return live

        await self._cancel_found(task_id, find)

    async def _cancel_found(self, task_id: str, find: Callable[[], Awaitable[LiveTask]]) -> bytes:
        for _ in range(TRIES):
            live = await find()
            try:
                if live.state in TERMINAL:
                    raise TaskNotCancelable(
                        f"Task is already {state_word(live.state)} and cannot be canceled",
                        metadata={"taskId": task_id},
                    )
                async with asyncio.timeout(CANCEL_WAIT_S):
                    return await self._cancel(live)
            except TimeoutError:
                return await live.read(lambda task, _: task_bytes(task))
            except Moved:
                continue
            finally:
                self.lives.unhold(live)
        raise Moved

    async def _cancel(self, live: LiveTask) -> bytes:
        """Stop the run, or end the task where there is none. A question in progress may come first."""
        while True:
            if self.worker.is_anothers(live):
                await self._cancel_elsewhere(live)
                continue
            if live.over:
                return await live.read(lambda task, _: task_bytes(task))
            settled = live.when_settled()
            self.stop(live)
            body = await settled
            if live.over:
                return body

    def stop(self, live: LiveTask) -> None:
        """Cancel a task that this process runs, or that nobody does."""
        if live.state not in TERMINAL and not self.runner.cancel(live.new.id):
            if self.worker.is_anothers(live):
                raise Moved
            live.end_paused(now_us(), TaskState.CANCELED, self.worker.name)

    async def _cancel_elsewhere(self, live: LiveTask) -> None:
        """Ask the host that runs the task, and wait until it is over or nobody's. Take it if that host is gone."""
        fence = await self.leases.adopt_task(self.worker.name, live.new.id)
        if fence is not None:
            live.adopt(self.worker.name, fence)
            return
        await self.leases.ask_cancel(live.new.id)
        if self.wakes is not None:
            self.wakes.tell([live.new.id])
        follower = self.lives.follow(live, live.shown_seq, SUBSCRIBE_ENDS)
        try:
            while self.worker.is_anothers(live):
                if await follower.batch() is None and self.worker.is_anothers(live):
                    raise Moved
        finally:
            follower.release()
        if live.lost:
            raise Moved
