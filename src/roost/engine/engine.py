"""The operations of A2A on the journal. Every door calls these, with a Principal; nothing else does the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from roost.engine import listing, recovery
from roost.engine.committer import Committer
from roost.engine.follower import SEND_ENDS, SUBSCRIBE_ENDS, Follower
from roost.engine.ids import new_id, now_us
from roost.engine.lane import Lane
from roost.engine.live import LiveTask
from roost.engine.media import check_input
from roost.engine.ports import HostedAgent, NewTask, Scope, Store
from roost.engine.run import Run
from roost.engine.runner import Runner
from roost.engine.stats import Stats
from roost.engine.views import split, task_bytes, trim_task, view
from roost.identity.principal import Principal
from roost.protocol.entries import Received
from roost.protocol.errors import (
    AgentNotFound,
    InvalidParams,
    PushNotificationNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    TooManyRequests,
    Unavailable,
    UnsupportedOperation,
)
from roost.protocol.states import PAUSED, SETTLED, TERMINAL
from roost.protocol.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

log = logging.getLogger("roost.engine")

R = TypeVar("R")

CANCEL_WAIT_S = 5.0
MAX_CONTEXT_ID = 256


class Answer(NamedTuple):
    """Exactly one is set: the Task or the Message, as JSON."""

    task: bytes | None
    message: bytes | None


class Stream(NamedTuple):
    """An opening Task or Message, then what `follower` brings (nothing after a Message)."""

    opening: Answer
    position: int | None
    """The seq that the opening includes; None where it carries no id."""
    follower: Follower | None


class Engine:
    def __init__(self, store: Store, worker: str) -> None:
        self.store = store
        self.worker = worker
        self.stats = Stats()
        self.committer = Committer(store, self.stats)
        self.runner = Runner(worker, self._released)
        self.lives: dict[str, LiveTask] = {}
        self.loading: dict[str, asyncio.Task[bool]] = {}
        self.accepting = True
        self.recovering: asyncio.Task[None] | None = None

    def add(self, hosted: HostedAgent) -> None:
        self.runner.add(hosted)

    async def start(self) -> None:
        self.committer.start()
        self.recovering = asyncio.get_running_loop().create_task(recovery.recover(self), name="recovery")

    def drain(self) -> None:
        """No new messages, and streams end where they are; running tasks go on."""
        self.accepting = False
        for live in self.lives.values():
            live.end_streams()

    async def close(self) -> None:
        self.drain()
        if self.recovering is not None:
            self.recovering.cancel()
        for live in await self.runner.close():
            live.release()
        await self.committer.close()
        for live in list(self.lives.values()):
            live.refused(Unavailable("the host is shutting down; connect again to go on"))
        await self.store.close()

    # Operations

    async def send(
        self, principal: Principal, agent: str, request: SendMessageRequest, extensions: Sequence[str] = ()
    ) -> Answer:
        configuration = request.configuration
        live, run = await self._accept(principal, agent, request, extensions)
        settled = live.when_settled()
        self.runner.submit(self.runner.lanes[agent], run)
        if run.decision is not None:
            reply = await self._decided(run)
            if reply is not None:
                settled.cancel()
                return Answer(None, reply)
        history = None if configuration is None else configuration.history_length
        if configuration is not None and configuration.return_immediately:
            settled.cancel()
            return Answer(await live.read(lambda task, _: task_bytes(task, history)), None)
        body = await settled
        if history is not None:
            return Answer(trim_task(body, history), None)
        return Answer(body, None)

    async def stream(
        self, principal: Principal, agent: str, request: SendMessageRequest, extensions: Sequence[str] = ()
    ) -> Stream:
        self._streaming(agent)
        configuration = request.configuration
        history = None if configuration is None else configuration.history_length
        live, run = await self._accept(principal, agent, request, extensions)
        opening, position = task_bytes(live.task, history), live.shown_seq
        follower = Follower(live, self.store, self.stats, position, SEND_ENDS)
        self.runner.submit(self.runner.lanes[agent], run)
        if run.decision is not None:
            reply = await self._decided(run)
            if reply is not None:
                follower.close()
                return Stream(Answer(None, reply), None, None)
        return Stream(Answer(opening, None), position, follower)

    async def get(self, principal: Principal, agent: str, request: GetTaskRequest) -> bytes:
        self.lane(agent)
        live = self.lives.get(request.id)
        if live is not None:
            self._check_scope(live.new, principal, agent, live.hidden)
            return await live.read(lambda task, _: task_bytes(task, request.history_length))
        stored = await self.store.read_task(request.id)
        if stored is None:
            raise TaskNotFound(metadata={"taskId": request.id})
        self._check_scope(stored.new, principal, agent, stored.head.hidden)
        if stored.snapshot is not None and stored.head.state in SETTLED:
            return view(stored.snapshot, request.history_length)
        return await self._look(request.id, lambda task, _: task_bytes(task, request.history_length))

    async def list_tasks(self, principal: Principal, agent: str, request: ListTasksRequest) -> bytes:
        self.lane(agent)
        return await listing.list_tasks(self, Scope(principal.tenant, principal.owner, agent), request)

    async def cancel(self, principal: Principal, agent: str, request: CancelTaskRequest) -> bytes:
        live = await self._find(principal, agent, request.id)
        try:
            if live.state in TERMINAL:
                raise TaskNotCancelable(
                    f"Task is already {_word(live.state)} and cannot be canceled", metadata={"taskId": request.id}
                )
            if not self.runner.cancel(request.id):
                if live.worker is None:
                    live.take_over(self.worker)
                live.write_status(now_us(), TaskState.CANCELED)
            settled = live.when_settled()
            try:
                return await asyncio.wait_for(settled, CANCEL_WAIT_S)
            except TimeoutError:
                return await live.read(lambda task, _: task_bytes(task))
        finally:
            self.unhold(live)

    async def subscribe(
        self, principal: Principal, agent: str, request: SubscribeToTaskRequest, last_event_id: int | None = None
    ) -> Stream:
        self._streaming(agent)
        live = await self._find(principal, agent, request.id)
        try:
            if last_event_id is not None:
                return await recovery.resume_stream(self, live, last_event_id)
            if live.state in TERMINAL:
                raise UnsupportedOperation(
                    f"Task is already {_word(live.state)}: there is nothing to subscribe to. Read it with GetTask,"
                    " or send Last-Event-ID to replay its stream",
                    metadata={"taskId": request.id},
                )

            def look(task: Task, seq: int) -> Stream:
                follower = Follower(live, self.store, self.stats, seq, SUBSCRIBE_ENDS)
                return Stream(Answer(task_bytes(task), None), seq, follower)

            return await live.read(look)
        finally:
            self.unhold(live)

    def release(self, follower: Follower) -> None:
        follower.close()
        self._released(follower.live)

    def lane(self, agent: str) -> Lane:
        lane = self.runner.lanes.get(agent)
        if lane is None:
            raise AgentNotFound(f"There is no agent {agent!r} here; GET /agents/ lists those there are")
        return lane

    # Accepting a message

    async def _accept(
        self, principal: Principal, agent: str, request: SendMessageRequest, extensions: Sequence[str]
    ) -> tuple[LiveTask, Run]:
        """Commit the message, and return the run that will answer it: not started, and its task held live."""
        lane = self.lane(agent)
        message, configuration = request.message, request.configuration
        if configuration is not None and configuration.task_push_notification_config is not None:
            raise PushNotificationNotSupported(field="configuration.taskPushNotificationConfig")
        check_input(lane.hosted.profile, message)
        if not self.accepting:
            raise Unavailable("the host is shutting down", retry_after=1)
        if lane.full:
            raise TooManyRequests(f"Agent {agent!r} has too many messages waiting; try again later", retry_after=1)
        modes = [] if configuration is None else configuration.accepted_output_modes
        if message.task_id:
            return await self._accept_answer(principal, lane, request, modes, extensions)
        if len(message.context_id) > MAX_CONTEXT_ID:
            raise InvalidParams(
                f"message.contextId is longer than {MAX_CONTEXT_ID} characters", field="message.contextId"
            )
        now = now_us()
        context_id = message.context_id or new_id()
        new = NewTask(new_id(), Scope(principal.tenant, principal.owner, agent), context_id, now)
        profile = lane.hosted.profile
        live = LiveTask.begin(new, self.worker, profile.direct, self.committer.touch)
        received = Received(
            replace(message, task_id=new.id, context_id=context_id), request.metadata, modes, list(extensions)
        )
        live.write_message(now, received)
        live.write_status(now, TaskState.SUBMITTED)
        self.lives[new.id] = live
        live.busy += 1
        try:
            await live.commit()
        except Unavailable:
            del self.lives[new.id]
            raise
        finally:
            live.busy -= 1
        run = Run(live, lane.hosted, [received])
        if profile.direct:
            run.decision = asyncio.get_running_loop().create_future()
        return live, run

    async def _accept_answer(
        self,
        principal: Principal,
        lane: Lane,
        request: SendMessageRequest,
        modes: list[str],
        extensions: Sequence[str],
    ) -> tuple[LiveTask, Run]:
        message = request.message
        live = await self._find(principal, lane.hosted.profile.id, message.task_id)
        try:
            if message.context_id and message.context_id != live.new.context_id:
                raise InvalidParams(
                    "message.contextId is not the context of that task; leave it out or send the task's own",
                    field="message.contextId",
                )
            if live.state not in PAUSED:
                raise UnsupportedOperation(
                    f"Task is {_word(live.state)} and takes no message now"
                    + ("; send one without taskId to begin another task" if live.state in TERMINAL else ""),
                    metadata={"taskId": message.task_id},
                )
            now = now_us()
            received = Received(
                replace(message, context_id=live.new.context_id), request.metadata, modes, list(extensions)
            )
            live.take_over(self.worker)
            live.write_message(now, received)
            live.write_status(now, TaskState.WORKING)
            await live.commit()
            run = Run(live, lane.hosted, [])
            await recovery.prepare(self.store, run)
        finally:
            self.unhold(live)
        return live, run

    async def _decided(self, run: Run) -> bytes | None:
        assert run.decision is not None
        reply = await run.decision
        await run.live.commit()
        return reply

    # Finding tasks

    async def _find(self, principal: Principal, agent: str, task_id: str) -> LiveTask:
        """The live task, held until `unhold`; TaskNotFound to everyone whose task it is not."""
        self.lane(agent)
        live = await self.load(task_id)
        if live is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        try:
            self._check_scope(live.new, principal, agent, live.hidden)
        except TaskNotFound:
            self.unhold(live)
            raise
        return live

    async def load(self, task_id: str) -> LiveTask | None:
        """The one live object of a task, held; from the journal if nothing was happening to it."""
        while True:
            live = self.lives.get(task_id)
            if live is not None:
                live.busy += 1
                return live
            loading = self.loading.get(task_id)
            if loading is None:
                loading = self.loading[task_id] = asyncio.get_running_loop().create_task(self._restore(task_id))
            if not await asyncio.shield(loading):
                return None

    async def _restore(self, task_id: str) -> bool:
        try:
            live = await recovery.restore(self.store, task_id, self.committer.touch)
            if live is not None:
                self.lives[task_id] = live
            return live is not None
        finally:
            del self.loading[task_id]

    async def split_task(self, task_id: str) -> tuple[bytes, bytes]:
        return await self._look(task_id, lambda task, _: split(task))

    async def _look(self, task_id: str, look: Callable[[Task, int], R]) -> R:
        live = await self.load(task_id)
        if live is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        try:
            return await live.read(look)
        finally:
            self.unhold(live)

    def unhold(self, live: LiveTask) -> None:
        live.busy -= 1
        self._released(live)

    def _released(self, live: LiveTask) -> None:
        """Forget a task that nothing happens to any more; the journal remembers it."""
        if live.lost:
            self.lives.pop(live.new.id, None)
        elif live.idle:
            if self.lives.get(live.new.id) is live:
                del self.lives[live.new.id]
        elif not live.busy and not live.followers and (live.dirty or live.in_flight):
            live.commit().add_done_callback(lambda _: self._released(live))

    @staticmethod
    def _check_scope(new: NewTask, principal: Principal, agent: str, hidden: bool) -> None:
        if new.scope != (principal.tenant, principal.owner, agent) or hidden:
            raise TaskNotFound(metadata={"taskId": new.id})

    def _streaming(self, agent: str) -> None:
        if not self.lane(agent).hosted.profile.streaming:
            raise UnsupportedOperation("This agent does not stream; use message:send")


def _word(state: TaskState | None) -> str:
    return str(state).removeprefix("TASK_STATE_")
