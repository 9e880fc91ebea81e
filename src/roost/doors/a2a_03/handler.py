"""The compat layer's handler on our adapter, and what has to be mended in what it makes: docs/a2a-0.3.md lists it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as old
from a2a.compat.v0_3.request_handler import RequestHandler03
from a2a.server.context import ServerCallContext
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from google.protobuf.message import Message
from pydantic import BaseModel

from roost.doors.a2a_03.offload import OldOperations, beside
from roost.doors.a2a_03.requests import EXACT
from roost.doors.context import Context
from roost.doors.errors import known
from roost.doors.http import Request, RequestHead
from roost.doors.rest import Call
from roost.doors.sdk import EngineHandler, SdkCall, ours
from roost.protocol.errors import A2AError, InvalidParams, TaskNotFound

T = TypeVar("T")
M = TypeVar("M", bound=Message)

LISTED = 100
"""0.3 has no pages."""


class Handler03(RequestHandler03):
    """`form` makes of an answer in the compat layer's types what the binding sends."""

    def __init__(self, context: Context) -> None:
        self.engine_handler = EngineHandler(context)
        self.engine_handler.operations = OldOperations(context)
        super().__init__(self.engine_handler)

    async def send(self, core: pb.SendMessageRequest, context: ServerCallContext, form: Callable[[Any], T]) -> T:
        found = await self.engine_handler.on_message_send(core, context)
        if isinstance(found, pb.Task):
            return await _formed(found, conversions.to_compat_task, form)
        return await _formed(found, conversions.to_compat_message, form)

    async def get(self, core: pb.GetTaskRequest, context: ServerCallContext, form: Callable[[Any], T]) -> T:
        return await _formed(await self.engine_handler.on_get_task(core, context), conversions.to_compat_task, form)

    async def cancel(self, core: pb.CancelTaskRequest, context: ServerCallContext, form: Callable[[Any], T]) -> T:
        return await _formed(await self.engine_handler.on_cancel_task(core, context), conversions.to_compat_task, form)

    async def list_tasks(self, context: ServerCallContext, form: Callable[[Any], T]) -> T:
        found = await self.engine_handler.on_list_tasks(pb.ListTasksRequest(page_size=LISTED), context)
        return await _formed(found, lambda page: [conversions.to_compat_task(task) for task in page.tasks], form)

    async def stream(
        self, core: pb.SendMessageRequest, context: ServerCallContext, form: Callable[[Any], T]
    ) -> AsyncGenerator[T]:
        """A stream that a send began ends where the caller has to act, and its last event says so."""
        async with aclosing(self.engine_handler.send_streaming(core, context)) as responses:
            async for response in responses:
                yield await _formed(response, _final_event, form)

    async def subscribe(
        self, core: pb.SubscribeToTaskRequest, context: ServerCallContext, form: Callable[[Any], T]
    ) -> AsyncGenerator[T]:
        async with aclosing(self.engine_handler.subscribe(core, context)) as responses:
            async for response in responses:
                yield await _formed(response, _event, form)

    async def on_get_task_push_notification_config(
        self, request: old.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> old.TaskPushNotificationConfig:
        """In 0.3 it need not be named: then it is the first."""
        if isinstance(request.params, old.GetTaskPushNotificationConfigParams):
            return await super().on_get_task_push_notification_config(request, context)
        core = pb.ListTaskPushNotificationConfigsRequest(task_id=request.params.id, page_size=1)
        found = await self.engine_handler.on_list_task_push_notification_configs(core, context)
        if not found.configs:
            raise TaskNotFound("The task has no webhook", metadata={"taskId": request.params.id})
        return conversions.to_compat_task_push_notification_config(found.configs[0])

    async def on_get_extended_agent_card(
        self, request: old.GetAuthenticatedExtendedCardRequest, context: ServerCallContext
    ) -> old.AgentCard:
        return own(await super().on_get_extended_agent_card(request, context))


async def _formed(found: M, to_compat: Callable[[M], Any], form: Callable[[Any], T]) -> T:
    return await beside(found.ByteSize(), lambda: form(to_compat(found)))


def _event(response: pb.StreamResponse) -> Any:
    return conversions.to_compat_stream_response(response).result


def _final_event(response: pb.StreamResponse) -> Any:
    event = _event(response)
    if isinstance(event, old.TaskStatusUpdateEvent) and event.status.state == old.TaskState.input_required:
        event.final = True
    return event


def own(card: old.AgentCard) -> old.AgentCard:
    """The signatures are of the card of 1.0: they do not fit this one."""
    return card.model_copy(update={"signatures": None, "protocol_version": "0.3.0"})


def sdk_call(call: Call) -> SdkCall:
    request: Request = call.request
    return SdkCall(request, call.agent, call.principal, call.context.base(request))


def refusal(error: BaseException, head: RequestHead) -> A2AError:
    """What the handler raised, as ours."""
    if isinstance(error, InvalidParamsError) and error.__cause__ is None:
        return InvalidParams(error.message)
    return ours(error, head) if isinstance(error, Exception) else known(error, head)


def plain(model: BaseModel) -> Any:
    return whole(model.model_dump(mode="json", by_alias=True, exclude_none=True))


def whole(value: Any) -> Any:
    """Protobuf has no integers in a Struct: 5 came back as 5.0. Above 2^53 it may never have been one."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT else value
