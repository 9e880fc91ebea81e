"""The engine as a2a-sdk's RequestHandler: protobuf in, one of our operations, protobuf out.

All of A2A 0.3 comes through this adapter, by the SDK's compat layer; gRPC of 1.0 goes to the operations without it.
Whoever calls it has put an SdkCall into the context's state: who asks, and which agent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2A_REASON_TO_ERROR
from a2a.utils.errors import A2AError as SdkError
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from roost.doors.context import Context
from roost.doors.errors import known
from roost.doors.http import RequestHead
from roost.doors.operations import Operations
from roost.identity.principal import Principal
from roost.protocol.errors import DOMAIN, A2AError

P = TypeVar("P", bound=Message)
M = TypeVar("M", bound=Message)
CALL = "roost.call"


@dataclass(slots=True)
class SdkCall:
    """One operation on one agent, for a caller who may call it."""

    head: RequestHead
    agent: str
    principal: Principal
    base: str
    """The host's URL, for cards."""
    last_event_id: int | None = None
    replayed: bool = False
    """Set by the operation: the message had been here before."""
    position: int | None = None
    """Set by the operation before a stream's first response: the seq that this includes. Each after it is one more."""

    def context(self) -> ServerCallContext:
        return ServerCallContext(state={CALL: self}, tenant=self.agent, requested_extensions={*self.head.extensions})


class SdkRefusal(SdkError):
    """An error that the SDK has no class for; `error` is what it is."""

    def __init__(self, error: A2AError) -> None:
        super().__init__(error.message)
        self.error = error


class EngineHandler(RequestHandler):
    def __init__(self, context: Context) -> None:
        self.operations = Operations(context)

    async def on_message_send(self, params: pb.SendMessageRequest, context: ServerCallContext) -> pb.Task | pb.Message:
        answer = await self._ask(context, params, self.operations.send, pb.SendMessageResponse)
        return answer.task if answer.HasField("task") else answer.message

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
        return await self._ask(context, params, self.operations.get, pb.Task)

    async def on_list_tasks(self, params: pb.ListTasksRequest, context: ServerCallContext) -> pb.ListTasksResponse:
        return await self._ask(context, params, self.operations.list_tasks, pb.ListTasksResponse)

    async def on_cancel_task(self, params: pb.CancelTaskRequest, context: ServerCallContext) -> pb.Task:
        return await self._ask(context, params, self.operations.cancel, pb.Task)

    async def on_create_task_push_notification_config(
        self, params: pb.TaskPushNotificationConfig, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        return await self._ask(context, params, self.operations.create_config, pb.TaskPushNotificationConfig)

    async def on_get_task_push_notification_config(
        self, params: pb.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> pb.TaskPushNotificationConfig:
        return await self._ask(context, params, self.operations.get_config, pb.TaskPushNotificationConfig)

    async def on_list_task_push_notification_configs(
        self, params: pb.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> pb.ListTaskPushNotificationConfigsResponse:
        return await self._ask(
            context, params, self.operations.list_configs, pb.ListTaskPushNotificationConfigsResponse
        )

    async def on_delete_task_push_notification_config(
        self, params: pb.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        await self._ask(context, params, self.operations.delete_config, Empty)

    async def on_get_extended_agent_card(
        self, params: pb.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> pb.AgentCard:
        return await self._ask(context, params, self.operations.extended_card, pb.AgentCard)

    # Streams as they are in protobuf; the methods of the SDK's interface unwrap each response

    def send_streaming(
        self, params: pb.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[pb.StreamResponse]:
        return self._stream(context, params, self.operations.send_streaming)

    def subscribe(
        self, params: pb.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[pb.StreamResponse]:
        return self._stream(context, params, self.operations.subscribe)

    async def _stream(
        self, context: ServerCallContext, params: P, opening: Callable[[SdkCall, P], AsyncGenerator[bytes]]
    ) -> AsyncGenerator[pb.StreamResponse]:
        with _in_sdk_form(context) as call:
            async with aclosing(opening(call, params)) as responses:
                async for response in responses:
                    yield pb.StreamResponse.FromString(response)

    async def _ask(
        self,
        context: ServerCallContext,
        params: P,
        operation: Callable[[SdkCall, P], Awaitable[bytes]],
        answer: type[M],
    ) -> M:
        with _in_sdk_form(context) as call:
            return answer.FromString(await operation(call, params))


@contextmanager
def _in_sdk_form(context: ServerCallContext) -> Iterator[SdkCall]:
    """Our errors leave as the SDK's, with ours as their cause."""
    call: SdkCall = context.state[CALL]
    try:
        yield call
    except Exception as error:
        ours = known(error, call.head)
        raise sdk_error(ours) from ours


def ours(error: Exception, head: RequestHead) -> A2AError:
    """What an operation raised, as it was before it left."""
    cause = error.__cause__ if isinstance(error, SdkError) else error
    return known(cause or error, head)


def sdk_error(error: A2AError) -> SdkError:
    kind = A2A_REASON_TO_ERROR.get(error.reason) if error.domain == DOMAIN else None
    if kind is None:
        return SdkRefusal(error)
    fields = {"errors": [{"field": error.field, "message": error.message}]} if error.field is not None else None
    return kind(error.message, fields)


def _event(response: pb.StreamResponse) -> Event:
    event: Event = getattr(response, response.WhichOneof("payload") or "task")
    return event
