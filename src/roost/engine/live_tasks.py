"""The live tasks of this process: one object for each task that something happens to, found, held and let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

from roost.engine import journal
from roost.engine.bodies import BodyReader
from roost.engine.extension import Extensions, ReaderView
from roost.engine.follower import Follower
from roost.engine.leases import Worker
from roost.engine.live import LiveTask, NotCommitted
from roost.engine.ports import Store
from roost.engine.remote_tasks import RemoteReader
from roost.engine.ring import WakeThrottle
from roost.engine.stats import Stats
from roost.engine.store_types import NewTask, Stored
from roost.identity.principal import Principal
from roost.protocol.errors import TaskNotFound
from roost.protocol.types import Task, TaskState

R = TypeVar("R")


class LiveTasks:
    """Whoever needs a task kept holds it, and lets it go with `unhold`. A task that nobody needs is forgotten; the
    journal has it."""

    def __init__(
        self,
        store: Store,
        worker: Worker,
        reader: RemoteReader,
        extensions: Extensions,
        stats: Stats,
        touch: Callable[[LiveTask], None],
    ) -> None:
        self.store = store
        self.worker = worker
        self.reader = reader
        self.extensions = extensions
        self.stats = stats
        self.touch = touch
        """Tells the committer that a task has something to commit."""
        self.throttle = WakeThrottle()
        self.loading: dict[str, asyncio.Task[bool]] = {}
        self.by_id: dict[str, LiveTask] = {}
        """Every live task. Only this class changes it."""

    def get(self, task_id: str) -> LiveTask | None:
        return self.by_id.get(task_id)

    def __iter__(self) -> Iterator[LiveTask]:
        return iter(list(self.by_id.values()))

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, live: LiveTask) -> None:
        """Take a task in that was begun here, and hold it."""
        self.by_id[live.new.id] = live
        live.hold()

    def drop(self, live: LiveTask) -> None:
        """Forget a task, whoever holds it: it was never committed, or is another process's now."""
        if self.by_id.get(live.new.id) is live:
            del self.by_id[live.new.id]

    # Finding

    async def find(self, principal: Principal, agent: str, task_id: str) -> LiveTask:
        """Return a task, held. TaskNotFound to everyone whose task it is not."""
        live = self.by_id.get(task_id)
        if live is None or not shows(live.new, live.hidden, principal, agent):
            await self.stored(principal, agent, task_id, most=0)
        live = await self.load(task_id)
        if live is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        if not shows(live.new, live.hidden, principal, agent):
            self.unhold(live)
            raise TaskNotFound(metadata={"taskId": task_id})
        return live

    async def stored(self, principal: Principal, agent: str | None, task_id: str, most: int | None = None) -> Stored:
        """Return a task as the store has it, of any agent if none is named.

        Another's task costs the store what one costs that does not exist.
        most: a larger snapshot is withheld.
        """
        stored = await self.store.read_task(task_id, principal.owner, most)
        if stored is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        if not shows(stored.new, stored.head.hidden, principal, agent or stored.new.scope.agent):
            raise TaskNotFound(metadata={"taskId": task_id})
        return stored

    async def load(self, task_id: str) -> LiveTask | None:
        """Return the one live object of a task, held and up to date. None if there is no such task."""
        while True:
            live = self.by_id.get(task_id)
            if live is not None and live.lost:
                del self.by_id[task_id]
                continue
            if live is not None:
                live.hold()
                if not self.is_current(live):
                    try:
                        await self.reader.refresh(live)
                    except BaseException:
                        self.unhold(live)
                        raise
                    if live.lost:
                        self.unhold(live)
                        continue
                return live
            loading = self.loading.get(task_id)
            if loading is None:
                loading = self.loading[task_id] = asyncio.get_running_loop().create_task(self._restore(task_id))
            if not await asyncio.shield(loading):
                return None

    def is_current(self, live: LiveTask) -> bool:
        """Say whether nobody else can have written to the task since it was read."""
        return not self.store.shared or self.worker.owns(live) or live.uncommitted

    async def _restore(self, task_id: str) -> bool:
        try:
            found = await journal.restore(self.store, task_id)
            if found is None:
                return False
            stamp = self.extensions.recorded_stamp(found.task, found.stored.new.scope)
            self.by_id[task_id] = LiveTask.restore(*found, self.touch, stamp)
            return True
        finally:
            del self.loading[task_id]

    async def read(self, task_id: str, look: Callable[[Task, int], R]) -> R:
        """Return what `look` makes of a task as committed and the seq that it includes."""
        live = await self.load(task_id)
        if live is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        try:
            return await self.look(live, look)
        finally:
            self.unhold(live)

    async def look(self, live: LiveTask, look: Callable[[Task, int], R]) -> R:
        """Return what `look` makes of a live task as committed and the seq that it includes.

        While the store refuses what was written to the task, the journal is read instead.
        """
        try:
            return await live.read(look)
        except NotCommitted:
            found = await journal.restore(self.store, live.new.id)
            if found is None:
                raise
            return look(found.task, found.last.seq)

    # Letting go

    def unhold(self, live: LiveTask) -> None:
        live.unhold()
        self.release(live)

    def release(self, live: LiveTask) -> None:
        """Forget a task that nothing happens to any more."""
        if live.idle or live.lost:
            self.drop(live)
        elif not live.holds and not live.ring and live.uncommitted:
            live.commit().add_done_callback(lambda _: self.release(live))

    # Following

    def follow(
        self,
        live: LiveTask,
        position: int,
        ends: frozenset[TaskState],
        view: ReaderView | None = None,
        reader: BodyReader | None = None,
    ) -> Follower:
        """Follow a task from a position on. `view` shows each frame to the client, which is `reader` of large ones."""
        return Follower(live, self.store, self.stats, self.throttle, position, ends, view, reader, self.release)


def shows(new: NewTask, hidden: bool, principal: Principal, agent: str) -> bool:
    """Say whether the task exists for this caller."""
    scope = new.scope
    return scope.owner == principal.owner and scope.agent == agent and principal.sees(scope.tenant) and not hidden
