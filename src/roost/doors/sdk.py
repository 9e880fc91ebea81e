"""The engine as a2a-sdk's RequestHandler: protobuf in, one Engine call, protobuf out.

gRPC, and all of A2A 0.3 through the SDK's compat layer, come through this adapter. Whoever calls
it has put an SdkCall into the context's state: who asks, and which agent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2A_REASON_TO_ERROR
from a2a.utils.errors import A2AError as SdkError
from google.protobuf.message import Message

from roost.doors.context import Context
from roost.doors.errors import known
from roost.doors.http import Head
from roost.doors.protobuf import read, write
from roost.doors.rest import same_agent
from roost.engine import push_configs
from roost.engine.answers import Stream
from roost.engine.follower import Follower
from roost.engine.live import Frame, LiveTask
from roost.identity.principal import Principal
from roost.protocol.errors import DOMAIN, A2AError, Unauthenticated, Unavailable
from roost.protocol.states import TERMINAL
from roost.protocol.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)

T = TypeVar("T")
M = TypeVar("M", bound=Message)
CALL = "roost.call"


@dataclass(slots=True)
class SdkCall:
    """One operation on one agent, for a caller who may call it."""

    head: Head
    agent: str
    principal: Principal
    base: str
    """The host's URL, for cards."""
    last_event_id: int | None = None
    replayed: bool = False
    """Set by the adapter: the message had been here before."""
    position: int | None = None
    """Set by the adapter before a stream's first response: the seq that it includes. Each one after it is one more."""

    def context(self) -> ServerCallContext:
        return ServerCallContext(state={CALL: self}, tenant=self.agent, requested_extensions={*self.head.extensions})


class Refusal(SdkError):
    """An error that the SDK has no class for; `error` is what it is."""

    def __init__(self, error: A2AError) -> None:
        super().__init__(error.message)
        self.error = error


class EngineHandler(RequestHandler):
    def __init__(self, context: Context) -> None:
        self.context = context
        self.engine = context.engine

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task | pb.Message:
        with _in_sdk_form(context) as call:
            request = _request(call, SendMessageRequest, params)
            answer = await self.engine.send(call.principal, call.agent, request, call.head.extensions)
            call.replayed = answer.replayed
            if answer.task is not None:
                return write(pb.Task(), answer.task)
            return write(pb.Message(), answer.message or b"{}")

    async def on_message_send_stream(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        async with aclosing(self.send_streaming(params, context)) as responses:
            async for response in responses:
                yield _event(response)

    async def on_subscribe_to_task(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        async with aclosing(self.subscribe(params, context)) as responses:
            async for response in responses:
                yield _event(response)

    async def on_get_task(self, params: pb.GetTaskRequest, context: ServerCallContext) -> pb.Task:
        return await self._ask(context, params, GetTaskRequest, self.engine.get, pb.Task)

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        return await self._ask(context, params, ListTasksRequest, self.engine.list_tasks, pb.ListTasksResponse)

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        return await self._ask(context, params, CancelTaskRequest, self.engine.cancel, pb.Task)

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        return await self._of_webhooks(
            context, params, TaskPushNotificationConfig, push_configs.create, pb.TaskPushNotificationConfig
        )

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        return await self._of_webhooks(
            context, params, GetTaskPushNotificationConfigRequest, push_configs.get, pb.TaskPushNotificationConfig
        )

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        return await self._of_webhooks(
            context,
            params,
            ListTaskPushNotificationConfigsRequest,
            push_configs.list_configs,
            pb.ListTaskPushNotificationConfigsResponse,
        )

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        with _in_sdk_form(context) as call:
            request = _request(call, DeleteTaskPushNotificationConfigRequest, params)
            await push_configs.delete(self.engine, call.principal, call.agent, request)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        with _in_sdk_form(context) as call:
            same_agent(call.agent, params.tenant)
            return write(pb.AgentCard(), await self.context.cards.extended(call.base, call.agent, call.principal))

    # Streams, as gRPC has them; the methods of the SDK's interface unwrap each response

    async def send_streaming(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[pb.StreamResponse]:
        with _in_sdk_form(context) as call:
            request = _request(call, SendMessageRequest, params)
            stream = await self.engine.stream(call.principal, call.agent, request, call.head.extensions)
            async for response in self._follow(call, stream):
                yield response

    async def subscribe(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[pb.StreamResponse]:
        with _in_sdk_form(context) as call:
            request = _request(call, SubscribeToTaskRequest, params)
            stream = await self.engine.subscribe(call.principal, call.agent, request, call.last_event_id)
            async for response in self._follow(call, stream):
                yield response

    async def _follow(self, call: SdkCall, stream: Stream) -> AsyncGenerator[pb.StreamResponse]:
        """The opening, then what the follower brings while the caller's credential holds."""
        opening, follower, access = stream.opening, stream.follower, self.context.access
        call.replayed = opening.replayed
        response = pb.StreamResponse()
        try:
            if follower is not None:
                call.position = follower.position
                access.watch(follower, call.principal)
            if opening.task is not None:
                write(response.task, opening.task)
            else:
                write(response.message, opening.message or b"{}")
            yield response
            if follower is None:
                return
            while (frames := await follower.batch()) is not None:
                for response in _shared_responses(follower.live, frames):
                    yield response
            _check_end(follower)
        finally:
            if follower is not None:
                access.unwatch(follower)
                self.engine.release(follower)

    # The shape that most operations have

    async def _ask(
        self,
        context: ServerCallContext,
        params: Message,
        kind: type[T],
        operation: Callable[[Principal, str, T], Awaitable[bytes]],
        answer: type[M],
    ) -> M:
        with _in_sdk_form(context) as call:
            return write(answer(), await operation(call.principal, call.agent, _request(call, kind, params)))

    async def _of_webhooks(
        self,
        context: ServerCallContext,
        params: Message,
        kind: type[T],
        operation: Callable[..., Awaitable[bytes]],
        answer: type[M],
    ) -> M:
        async def asked(principal: Principal, agent: str, request: T) -> bytes:
            return await operation(self.engine, principal, agent, request)

        return await self._ask(context, params, kind, asked, answer)


@contextmanager
def _in_sdk_form(context: ServerCallContext) -> Iterator[SdkCall]:
    """Our errors leave as the SDK's, with ours as their cause."""
    call: SdkCall = context.state[CALL]
    try:
        yield call
    except Exception as error:
        ours = known(error, call.head)
        raise sdk_error(ours) from ours


def sdk_error(error: A2AError) -> SdkError:
    kind = A2A_REASON_TO_ERROR.get(error.reason) if error.domain == DOMAIN else None
    if kind is None:
        return Refusal(error)
    fields = {"errors": [{"field": error.field, "message": error.message}]} if error.field is not None else None
    return kind(error.message, fields)


def _request(call: SdkCall, kind: type[T], params: Message) -> T:
    same_agent(call.agent, params.tenant)  # type: ignore[attr-defined]  # every request of A2A has one
    return read(kind, params)


def _event(response: pb.StreamResponse) -> Event:
    event: Event = getattr(response, response.WhichOneof("payload") or "task")
    return event


def _check_end(follower: Follower) -> None:
    """Raise if the stream ends before its task does."""
    live = follower.live
    if follower.over or (live.state in TERMINAL and follower.position >= live.seq):
        return
    where = {"lastEventId": str(follower.position)}
    if not follower.open:
        raise Unauthenticated("the credential that opened this stream has ended", metadata=where)
    raise Unavailable("the host is shutting down; subscribe to the task to go on", metadata=where, retry_after=1)


_responses: WeakKeyDictionary[LiveTask, tuple[int, int, list[pb.StreamResponse]]] = WeakKeyDictionary()
"""The last ones of each task: a thousand readers at one place of a stream are given the same."""


def _shared_responses(live: LiveTask, frames: list[Frame]) -> list[pb.StreamResponse]:
    if not frames:
        return []
    first, last = frames[0].seq, frames[-1].seq
    found = _responses.get(live)
    if found is None or found[:2] != (first, last):
        made = [write(pb.StreamResponse(), frame.data) for frame in frames]
        found = _responses[live] = (first, last, made)
    return found[2]
