"""SubscribeToTask, and the resumption of a stream after an event that the client has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

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
        *,
        counted: bool,
    ) -> TaskStream:
        live = await self.lives.find(principal, agent, task_id)
        begin = partial(self._subscribe, live, last_event_id, view)
        try:
            return await (self.counted(principal, live.new.scope.tenant, agent, begin) if counted else begin())
        finally:
            self.lives.unhold(live)

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

    async def _subscribe(self, live: LiveTask, last_event_id: int | None, view: ReaderView | None) -> TaskStream:
        if last_event_id is not None:
            return await self._resume(live, last_event_id, view)
        if live.state in TERMINAL:
            raise UnsupportedOperation(
                f"Task is already {state_word(live.state)}: there is nothing to subscribe to. Read it with GetTask,"
                " or send Last-Event-ID to replay its stream",
                metadata={"taskId": live.new.id},
            )

        def look(task: Task, seq: int) -> TaskStream:
            follower = self.lives.follow(live, seq, SUBSCRIBE_ENDS, view)
            return TaskStream(SendResult(task_bytes(task), None).shown(view), seq, follower)

        return await self.lives.look(live, look)

    async def _resume(self, live: LiveTask, last: int, view: ReaderView | None) -> TaskStream:
        """Return the Task as of entry `last`, then the entries after it, on a terminal task too."""
        shown = await self.lives.look(live, lambda _, seq: seq)
        if not 1 <= last <= shown:
            raise InvalidParams(
                f"Last-Event-ID {last} is not an event of this task: it has 1 to {shown}", field="Last-Event-ID"
            )
        task = await as_of(self.lives.store, live.new, last)
        opening = SendResult(task_bytes(task), None).shown(view)
        return TaskStream(opening, None, self.lives.follow(live, last, SUBSCRIBE_ENDS, view))
