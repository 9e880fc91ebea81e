"""SubscribeToTask, and the resumption of a stream after an event that the client has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from roost.engine.bodies import LARGE, BodyReader, Made
from roost.engine.extension import ReaderView
from roost.engine.follower import SUBSCRIBE_ENDS
from roost.engine.journal import as_of
from roost.engine.live import LiveTask
from roost.engine.live_tasks import LiveTasks
from roost.engine.responses import SendResult, TaskStream
from roost.engine.views import state_word, task_bytes
from roost.identity.principal import Principal
from roost.identity.quotas import Meter
from roost.protocol.errors import InvalidParams, UnsupportedOperation
from roost.protocol.states import TERMINAL
from roost.protocol.types import Task


class Streams:
    def __init__(self, lives: LiveTasks, meter: Meter) -> None:
        self.lives = lives
        self.meter = meter

    async def subscribe(
        self,
        principal: Principal,
        agent: str,
        task_id: str,
        last_event_id: int | None,
        view: ReaderView | None,
        reader: BodyReader | None,
        *,
        counted: bool,
    ) -> TaskStream:
        live = await self.lives.find(principal, agent, task_id)
        tenant = live.new.scope.tenant
        try:
            self._check(live, last_event_id)
            if reader is None or live.fold.size <= LARGE:
                begin = partial(self._subscribe, live, last_event_id, view, reader)
                return await (self.counted(principal, tenant, agent, begin) if counted else begin())
            find = partial(self.lives.find, principal, agent, task_id)
            size, version = live.fold.size, live.version
        finally:
            self.lives.unhold(live)
        del live  # it is as large as its task, and may have to wait for long
        begin = partial(self._subscribe_large, find, size, version, last_event_id, view, reader)
        return await (self.counted(principal, tenant, agent, begin) if counted else begin())

    async def counted(
        self, principal: Principal, tenant: str, agent: str, begin: Callable[[], Awaitable[TaskStream]]
    ) -> TaskStream:
        """Begin a stream that counts among those of its caller, tenant and agent until it is released."""
        if self.meter.idle:
            return await begin()
        slot = self.meter.open_stream(principal.name, tenant, agent)
        try:
            stream = await begin()
        except BaseException:
            slot.leave()
            raise
        if stream.follower is None:
            slot.leave()
            return stream
        return stream._replace(slot=slot)

    def _check(self, live: LiveTask, last_event_id: int | None) -> None:
        if last_event_id is None and live.state in TERMINAL:
            raise UnsupportedOperation(
                f"Task is already {state_word(live.state)}: there is nothing to subscribe to. Read it with GetTask,"
                " or send Last-Event-ID to replay its stream",
                metadata={"taskId": live.new.id},
            )

    async def _subscribe(
        self, live: LiveTask, last_event_id: int | None, view: ReaderView | None, reader: BodyReader | None
    ) -> TaskStream:
        if last_event_id is not None:
            opening = await self._as_of(live, last_event_id)
            follower = self.lives.follow(live, last_event_id, SUBSCRIBE_ENDS, view, reader)
            return TaskStream(SendResult(opening, None).shown(view), None, follower)

        def look(task: Task, seq: int) -> TaskStream:
            follower = self.lives.follow(live, seq, SUBSCRIBE_ENDS, view, reader)
            return TaskStream(SendResult(task_bytes(task), None).shown(view), seq, follower)

        return await self.lives.look(live, look)

    async def _subscribe_large(
        self,
        find: Callable[[], Awaitable[LiveTask]],
        size: int,
        version: bytes,
        last_event_id: int | None,
        view: ReaderView | None,
        reader: BodyReader,
    ) -> TaskStream:
        """Begin a stream whose opening is large, as soon as there is room for that. The task is not held meanwhile."""

        async def make() -> Made:
            live = await find()
            try:
                if last_event_id is None:
                    body, seq = await self.lives.look(live, lambda task, seq: (task_bytes(task), seq))
                else:
                    body, seq = await self._as_of(live, last_event_id), last_event_id
            finally:
                self.lives.unhold(live)
            return Made(body if view is None else view.task(body), seq)

        uris = () if view is None else view.uris
        made = await reader.read(size, ("subscribe", version, last_event_id, *uris), make)
        live = await find()
        try:
            follower = self.lives.follow(live, made.seq, SUBSCRIBE_ENDS, view, reader)
        finally:
            self.lives.unhold(live)
        return TaskStream(SendResult(made.data, None), made.seq if last_event_id is None else None, follower)

    async def _as_of(self, live: LiveTask, last: int) -> bytes:
        """Return the Task as of entry `last`. The entries after it follow, on a terminal task too."""
        shown = await self.lives.look(live, lambda _, seq: seq)
        if not 1 <= last <= shown:
            raise InvalidParams(
                f"Last-Event-ID {last} is not an event of this task: it has 1 to {shown}", field="Last-Event-ID"
            )
        return task_bytes(await as_of(self.lives.store, live.new, last))
