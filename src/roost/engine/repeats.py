"""The answer to a message that is sent again: what the first one got, or will get, read from the journal."""

from __future__ import annotations

from roost.engine.bodies import BodyReader
from roost.engine.extension import ReaderView
from roost.engine.follower import SEND_ENDS
from roost.engine.journal import as_of
from roost.engine.live import LiveTask
from roost.engine.live_tasks import LiveTasks
from roost.engine.responses import AsOf, SendResult, TaskStream
from roost.engine.store_types import Reserved
from roost.engine.views import splice, split, task_bytes
from roost.protocol import entries as kinds
from roost.protocol.errors import TaskNotFound, Unavailable
from roost.protocol.states import SETTLED
from roost.protocol.types import SendMessageRequest


class Repeats:
    def __init__(self, lives: LiveTasks) -> None:
        self.lives = lives
        self.store = lives.store

    async def send(self, reserved: Reserved, request: SendMessageRequest) -> SendResult:
        """Return what the first send was answered with, or wait for it."""
        configuration = request.configuration
        history = None if configuration is None else configuration.history_length
        live = await self._load(reserved)
        try:
            reply = await self._direct(live)
            if reply is not None:
                return SendResult(None, reply, True)
            at_once = configuration is not None and configuration.return_immediately
            seq = reserved.seq if at_once else await self.settled_after(live, reserved.seq)
            task = await as_of(self.store, live.new, seq)
            body = splice(*split(task)) if history is None and not at_once else task_bytes(task, history)
            return SendResult(body, None, True, AsOf(live.new, seq, history))
        finally:
            self.lives.unhold(live)

    async def stream(
        self, reserved: Reserved, request: SendMessageRequest, view: ReaderView | None, reader: BodyReader | None
    ) -> TaskStream:
        """Return the stream of the first send, from its beginning."""
        configuration = request.configuration
        history = None if configuration is None else configuration.history_length
        live = await self._load(reserved)
        try:
            reply = await self._direct(live)
            if reply is not None:
                return TaskStream(SendResult(None, reply, True), None, None)
            task = await as_of(self.store, live.new, reserved.seq)
            place = AsOf(live.new, reserved.seq, history)
            opening = SendResult(task_bytes(task, history), None, True, place).shown(view)
            return TaskStream(opening, reserved.seq, self.lives.follow(live, reserved.seq, SEND_ENDS, view, reader))
        finally:
            self.lives.unhold(live)

    async def settled_after(self, live: LiveTask, seq: int) -> int:
        """Wait until the task ends or asks after `seq`, and return the seq of that entry."""
        follower = self.lives.follow(live, seq, SETTLED)
        try:
            while await follower.batch() is not None:
                pass
            if not follower.over:
                raise Unavailable("the host is shutting down; send it again to continue", retry_after=1)
            return follower.position
        finally:
            follower.release()

    async def _load(self, reserved: Reserved) -> LiveTask:
        live = await self.lives.load(reserved.task_id)
        if live is None:
            raise TaskNotFound(
                "The message is on record, but its task is not kept any more",
                metadata={"taskId": reserved.task_id},
            )
        return live

    async def _direct(self, live: LiveTask) -> bytes | None:
        """Return the direct reply; None if the exchange became a task. Waits while that is open."""
        if not live.hidden:
            return None
        follower = self.lives.follow(live, live.shown_seq, SETTLED)
        try:
            ended = False
            while live.hidden:
                reply = await self._reply(live)
                if reply is not None:
                    return reply
                if ended:
                    raise Unavailable("the host is shutting down; send it again to continue", retry_after=1)
                ended = await follower.batch() is None
                await live.commit()  # a reply that was just given may not be on disk yet
            return None
        finally:
            follower.release()

    async def _reply(self, live: LiveTask) -> bytes | None:
        records = await self.store.read_internal(live.new.id)
        return next((entry.data for entry in records if entry.kind == kinds.REPLY), None)
