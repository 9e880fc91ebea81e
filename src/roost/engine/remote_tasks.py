"""Tasks that other processes write, as this one sees them: read after a wake-up, and once a second in any case.

One reader serves all of them: the changes of many tasks are read at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from roost.engine.leases import Worker
from roost.engine.live import LiveTask
from roost.engine.ports import Store, Wakes
from roost.engine.store_types import StoreUnavailable
from roost.protocol.errors import Unavailable

log = logging.getLogger("roost.engine")

TASKS = 256
"""Tasks that are read at once."""
ENTRIES = 1024
"""Entries that are read of a task at once."""
POLL_S = 1.0
RETRY_S = 0.2


class RemoteReader:
    """Reads what other processes have written to tasks, many tasks at once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stale: dict[str, LiveTask] = {}
        """Tasks that have, or may have, changed."""
        self.waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.work = asyncio.Event()

    def mark(self, live: LiveTask) -> None:
        """Read the task soon: it has, or may have, changed."""
        self.stale[live.new.id] = live
        self.work.set()

    async def refresh(self, live: LiveTask) -> None:
        """Read the task, and return when it is up to date."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(live.new.id, []).append(future)
        self.mark(live)
        await future

    async def run(self) -> None:
        while True:
            await self.work.wait()
            await asyncio.sleep(0)  # collect what else is marked in this iteration of the event loop
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
        updates = await self.store.read_updates(list(asked.values()), ENTRIES)
        for update in updates:
            live = batch[update.task_id]
            if live.position == asked[update.task_id]:  # otherwise this process has written to it meanwhile
                live.absorb(update)
            if len(update.entries) >= ENTRIES:
                self.mark(live)
        for task_id in asked.keys() - {update.task_id for update in updates}:
            batch[task_id].refused(Unavailable("the task is not kept any more"))

    def _failed(self, error: Exception, waiting: list[asyncio.Future[None]]) -> None:
        unforeseen = None if isinstance(error, StoreUnavailable) else error
        log.warning("tasks of other hosts cannot be read: %s", error, exc_info=unforeseen)
        for future in waiting:
            if not future.done():
                future.set_exception(StoreUnavailable(str(error)))


class LocalTasks(Protocol):
    """The tasks that this process has in memory (live_tasks.py)."""

    def get(self, task_id: str) -> LiveTask | None: ...

    def __iter__(self) -> Iterator[LiveTask]: ...


class RemoteTasks:
    """Listens to wake-ups, and polls in case one was lost.

    changed: called with the ids of tasks that another process has changed.
    cancel: cancels a task of this process that another process was asked to cancel.
    """

    def __init__(
        self,
        store: Store,
        worker: Worker,
        lives: LocalTasks,
        reader: RemoteReader,
        wakes: Wakes | None,
        changed: Callable[[Sequence[str]], None],
        cancel: Callable[[LiveTask], None],
    ) -> None:
        self.store = store
        self.worker = worker
        self.lives = lives
        self.reader = reader
        self.wakes = wakes
        self.changed = changed
        self.cancel = cancel
        self.inbox = asyncio.Event()
        """Another process may have asked to cancel a task of this one."""
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        if not self.store.shared:
            return
        loop = asyncio.get_running_loop()
        self.tasks = [
            loop.create_task(self.reader.run(), name="remote tasks"),
            loop.create_task(self._poll(), name="remote tasks, poll"),
            loop.create_task(self._watch_inbox(), name="inbox"),
        ]
        if self.wakes is not None:
            await self.wakes.listen(self.heard)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.wakes is not None:
            await self.wakes.close()

    def heard(self, task_ids: Sequence[str]) -> None:
        """Another process has changed these tasks, or left a request for the process that runs them."""
        for task_id in task_ids:
            live = self.lives.get(task_id)
            if live is None:
                continue
            if self.worker.owns(live):
                self.inbox.set()
            else:
                self.reader.mark(live)
        self.changed(task_ids)

    async def _poll(self) -> None:
        """A wake-up may be lost, so tasks that someone follows are read in any case."""
        while True:
            await asyncio.sleep(POLL_S * random.uniform(0.8, 1.2))  # noqa: S311  # replicas must not run in step
            for live in self.lives:
                if live.ring and not self.worker.owns(live):
                    self.reader.mark(live)
            self.inbox.set()

    async def _watch_inbox(self) -> None:
        while True:
            await self.inbox.wait()
            self.inbox.clear()
            try:
                for task_id in await self.store.asked_to_cancel(self.worker.name):
                    live = self.lives.get(task_id)
                    if live is not None and self.worker.owns(live) and not live.lost:
                        self.cancel(live)
            except StoreUnavailable as error:
                log.warning("requests to cancel tasks cannot be read: %s", error)
            except Exception:
                log.exception("a request to cancel a task failed")
