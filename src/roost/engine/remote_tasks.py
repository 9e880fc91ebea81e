"""Tasks that other processes write, as this one sees them: followed by wake-ups, and by a look each second.

One reader serves all of them: what has moved is read in one go, many tasks at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roost.engine.store_types import StoreUnavailable
from roost.protocol.errors import Unavailable

if TYPE_CHECKING:
    from roost.engine.engine import Engine
    from roost.engine.live import LiveTask

log = logging.getLogger("roost.engine")

TASKS = 256
"""Read at once."""
ENTRIES = 1024
POLL_S = 1.0
RETRY_S = 0.2


class RemoteTasks:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.stale: dict[str, LiveTask] = {}
        """Those that have, or may have, moved."""
        self.waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.work = asyncio.Event()
        self.inbox = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        if not self.engine.store.shared:
            return
        loop = asyncio.get_running_loop()
        self.tasks = [
            loop.create_task(self._read(), name="mirrors"),
            loop.create_task(self._poll(), name="mirrors-poll"),
            loop.create_task(self._watch_inbox(), name="inbox"),
        ]
        if self.engine.wakes is not None:
            await self.engine.wakes.listen(self.heard)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.engine.wakes is not None:
            await self.engine.wakes.close()

    def heard(self, task_ids: Sequence[str]) -> None:
        """Another process has moved these tasks, or left word for who runs them."""
        engine = self.engine
        for task_id in task_ids:
            live = engine.lives.get(task_id)
            if live is None:
                continue
            if engine.owns(live):
                self.inbox.set()
            else:
                self.stale[task_id] = live
                self.work.set()
        if engine.pusher is not None and engine.pusher.held:
            engine.pusher.kick(task_ids)

    async def refresh(self, live: LiveTask) -> None:
        """Have what is on record now."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(live.new.id, []).append(future)
        self.stale[live.new.id] = live
        self.work.set()
        await future

    async def _read(self) -> None:
        while True:
            await self.work.wait()
            await asyncio.sleep(0)  # what else is heard in this turn is read with it
            batch = dict(list(self.stale.items())[:TASKS])
            for task_id in batch:
                del self.stale[task_id]
            if not self.stale:
                self.work.clear()
            waiting = [future for task_id in batch for future in self.waiting.pop(task_id, ())]
            try:
                await self._absorb(batch)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._failed(error, waiting)
                await asyncio.sleep(RETRY_S)
            else:
                for future in waiting:
                    if not future.done():
                        future.set_result(None)

    async def _absorb(self, batch: dict[str, LiveTask]) -> None:
        asked = {live.new.id: live.position for live in batch.values() if not live.lost}
        updates = await self.engine.store.read_updates(list(asked.values()), ENTRIES)
        for update in updates:
            live = batch[update.task_id]
            if live.position == asked[update.task_id]:  # otherwise this process wrote to it meanwhile, and knows better
                live.absorb(update)
            if len(update.entries) >= ENTRIES:
                self.stale[update.task_id] = live
                self.work.set()
        for task_id in asked.keys() - {update.task_id for update in updates}:
            batch[task_id].refused(Unavailable("the task is not kept any more"))

    def _failed(self, error: Exception, waiting: list[asyncio.Future[None]]) -> None:
        unforeseen = None if isinstance(error, StoreUnavailable) else error
        log.warning("tasks of other hosts cannot be read: %s", error, exc_info=unforeseen)
        for future in waiting:
            if not future.done():
                future.set_exception(StoreUnavailable(str(error)))

    async def _poll(self) -> None:
        """A wake-up may be lost: those that someone looks at are looked at."""
        while True:
            await asyncio.sleep(POLL_S * random.uniform(0.8, 1.2))  # noqa: S311  # replicas must not march in step
            for task_id, live in self.engine.lives.items():
                if live.followers and not self.engine.owns(live):
                    self.stale[task_id] = live
            if self.stale:
                self.work.set()
            self.inbox.set()

    async def _watch_inbox(self) -> None:
        """Cancel what other hosts were asked to have cancelled here."""
        engine = self.engine
        while True:
            await self.inbox.wait()
            self.inbox.clear()
            try:
                for task_id in await engine.store.asked_to_cancel(engine.worker):
                    live = engine.lives.get(task_id)
                    if live is not None and engine.owns(live) and not live.lost:
                        engine.stop(live)
            except StoreUnavailable as error:
                log.warning("the inbox cannot be read: %s", error)
            except Exception:
                log.exception("the inbox cannot be served")
