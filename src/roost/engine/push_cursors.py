"""The webhooks that this worker holds, and their cursors, which are written to the store many at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from roost.engine.leases import Worker
from roost.engine.ports import PushConfigs
from roost.engine.store_types import CursorMove, DeadLetter, Push, PushConfig, StoreUnavailable

log = logging.getLogger("roost.push")

GATHER_S = 0.02
AT_ONCE = 500
RETRY_S, RETRY_MAX_S = 0.1, 1.0


class Hook:
    """A webhook that this worker calls, with what must be remembered between two calls."""

    __slots__ = (
        "after", "again", "attempts", "buried", "config", "cursor", "error", "kicked", "lost", "running", "settled",
        "timer",
    )  # fmt: skip

    def __init__(self, config: PushConfig, attempts: int = 0, buried: int = 0, error: str = "") -> None:
        self.config = config
        self.cursor = config.cursor
        self.attempts = attempts
        self.buried = buried
        self.error = error
        self.settled: bool | None = None
        """Whether the task ended or paused with the entry at the cursor; None while that is unknown."""
        self.running: asyncio.Task[None] | None = None
        self.after: asyncio.Task[None] | None = None
        """The last call of the hook that this one replaces, which has to end first."""
        self.timer: asyncio.TimerHandle | None = None
        """Fires when the call is tried again."""
        self.again = False
        """The task has changed since the last look."""
        self.kicked = True
        """The same, since the last look of the fallback for lost wake-ups."""
        self.lost = False
        """Another worker or another object has the webhook, so nothing of this one counts any more."""

    @classmethod
    def of(cls, push: Push) -> Hook:
        return cls(push.config, push.attempts, push.buried, push.error)

    def __str__(self) -> str:
        return f"webhook {self.config.id} of task {self.config.task_id}"

    def move(
        self, *, delay_s: float | None, keep: bool, paused: bool = False, dead: DeadLetter | None = None
    ) -> CursorMove:
        task_id, config_id = self.config.task_id, self.config.id
        state = (self.cursor, self.attempts, self.buried, paused, self.error)
        return CursorMove(task_id, config_id, *state, delay_s, keep, dead)


class _Waiting(NamedTuple):
    move: CursorMove
    done: asyncio.Future[bool] | None


class PushCursors:
    """`lost` is called with hooks that turn out to be another worker's."""

    def __init__(self, cursors: PushConfigs, worker: Worker, lost: Callable[[Hook], None]) -> None:
        self.cursors = cursors
        self.worker = worker
        self.lost = lost
        self.waiting: dict[Hook, _Waiting] = {}
        self.writing = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None
        self.closing = False

    def note(self, hook: Hook, move: CursorMove) -> None:
        """Write a move soon. The next one of the same hook may replace it."""
        self._put(hook, _Waiting(move, None))

    async def save(self, hook: Hook, move: CursorMove) -> bool:
        """Write a move, and return when it is written. False if the hook is another worker's."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._put(hook, _Waiting(move, done))
        return await done

    def is_awaited(self, hook: Hook) -> bool:
        """Say whether someone waits for the hook's move to be written."""
        waiting = self.waiting.get(hook)
        return waiting is not None and waiting.done is not None

    async def forget(self, hook: Hook) -> None:
        """Drop what waits of a lost hook, and return when nothing of it is being written any more."""
        self._resolve(self.waiting.pop(hook, None), False)
        async with self.writing:
            return

    def lapse(self) -> None:
        """Drop what waits: it belongs to the worker's old name."""
        for waiting in self.waiting.values():
            self._resolve(waiting, False)
        self.waiting.clear()

    async def close(self) -> None:
        """Write what waits, in one attempt."""
        self.closing = True
        while self.task is not None:
            await self.task

    def _put(self, hook: Hook, waiting: _Waiting) -> None:
        self._resolve(self.waiting.get(hook), False)
        self.waiting[hook] = waiting
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._run(), name="push cursors")

    async def _run(self) -> None:
        try:
            while self.waiting:
                if not self.closing:
                    await asyncio.sleep(GATHER_S)
                batch = dict(list(self.waiting.items())[:AT_ONCE])
                for hook in batch:
                    del self.waiting[hook]
                await self._write(batch)
        finally:
            self.task = None

    async def _write(self, batch: dict[Hook, _Waiting]) -> None:
        delay = RETRY_S
        while True:
            try:
                async with self.writing:
                    for hook in [hook for hook in batch if hook.lost]:
                        self._resolve(batch.pop(hook), False)
                    if not batch:
                        return
                    moves = [waiting.move for waiting in batch.values()]
                    held = await self.cursors.move_pushes(self.worker.name, moves)
                break
            except Exception as error:
                unforeseen = None if isinstance(error, StoreUnavailable) else error
                log.warning("the store does not take the cursors of webhooks: %s", error, exc_info=unforeseen)
            if self.closing:
                for waiting in batch.values():
                    self._resolve(waiting, False)
                return
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MAX_S)
        for (hook, waiting), ours in zip(batch.items(), held, strict=True):
            if not ours:
                self.lost(hook)
            self._resolve(waiting, ours)

    @staticmethod
    def _resolve(waiting: _Waiting | None, result: bool) -> None:
        if waiting is not None and waiting.done is not None and not waiting.done.done():
            waiting.done.set_result(result)
