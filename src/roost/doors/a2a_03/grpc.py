"""gRPC of 0.3: its service beside 1.0's, on the same server, by the compat layer's own servicer.

0.3 has no tenant: the metadata `a2a-agent` names the agent; without it, it is the root's, or the only one there is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3 import proto_utils
from a2a.compat.v0_3 import types as old
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.types import a2a_pb2 as pb
from google.protobuf.message import Message

from roost.doors.a2a_03.door import require_old
from roost.doors.a2a_03.errors import name_of
from roost.doors.a2a_03.handler import Handler03
from roost.doors.a2a_03.offload import beside
from roost.doors.a2a_03.requests import CONFIG, TASK, check_name, core_of, from_message, name_config
from roost.doors.context import Context
from roost.doors.grpc import GrpcDoor, Opening, Operation
from roost.doors.grpc_calls import Calls
from roost.doors.grpc_errors import Servicer, abort
from roost.doors.guard import Guard
from roost.doors.http import RequestHead
from roost.doors.observability import Requests
from roost.doors.sdk import SdkCall
from roost.protocol.errors import A2AError

T = TypeVar("T")

SERVICE = old_pb.DESCRIPTOR.services_by_name["A2AService"]
AGENT = "a2a-agent"
NAMED = {
    "GetTask": (TASK, "name"),
    "CancelTask": (TASK, "name"),
    "TaskSubscription": (TASK, "name"),
    "ListTaskPushNotificationConfig": (TASK, "parent"),
    "CreateTaskPushNotificationConfig": (TASK, "parent"),
    "GetTaskPushNotificationConfig": (CONFIG, "name"),
    "DeleteTaskPushNotificationConfig": (CONFIG, "name"),
}
"""What the name of the resource must be, and which field has it."""
STREAMS = ("SendStreamingMessage", "TaskSubscription")
OWN = {
    "SendMessage": "send",
    "SendStreamingMessage": "stream",
    "GetTask": "get",
    "CancelTask": "cancel",
    "TaskSubscription": "subscribe",
}
"""What is converted beside the loop, and the method of Converter that does it; the others are the compat layer's."""


class CompatGrpcConverter(CompatGrpcHandler):
    """Its methods are given a ServerCallContext; who calls has been found out already."""

    def __init__(self, context: Context) -> None:
        self.handler = self.handler03 = Handler03(context)

    async def send(self, request: old_pb.SendMessageRequest, context: Any) -> old_pb.SendMessageResponse:
        asked = await _asked(request)
        return await self.handler.send(asked, context, proto_utils.ToProto.task_or_message)

    async def stream(self, request: old_pb.SendMessageRequest, context: Any) -> AsyncGenerator[old_pb.StreamResponse]:
        asked = await _asked(request)
        async with aclosing(self.handler.stream(asked, context, proto_utils.ToProto.stream_response)) as responses:
            async for response in responses:
                yield response

    async def get(self, request: old_pb.GetTaskRequest, context: Any) -> old_pb.Task:
        params = proto_utils.FromProto.task_query_params(request)
        asked = core_of(old.GetTaskRequest(id=0, params=params))
        return await self.handler.get(asked, context, proto_utils.ToProto.task)

    async def cancel(self, request: old_pb.CancelTaskRequest, context: Any) -> old_pb.Task:
        asked = core_of(old.CancelTaskRequest(id=0, params=proto_utils.FromProto.task_id_params(request)))
        return await self.handler.cancel(asked, context, proto_utils.ToProto.task)

    async def subscribe(
        self, request: old_pb.TaskSubscriptionRequest, context: Any
    ) -> AsyncGenerator[old_pb.StreamResponse]:
        asked = core_of(old.TaskResubscriptionRequest(id=0, params=proto_utils.FromProto.task_id_params(request)))
        async with aclosing(self.handler.subscribe(asked, context, proto_utils.ToProto.stream_response)) as responses:
            async for response in responses:
                yield response

    async def _handle_unary(self, context: Any, handler_func: Callable[[Any], Awaitable[T]], default_response: T) -> T:
        return await handler_func(context)


class OldGrpcDoor(GrpcDoor):
    name = SERVICE.full_name
    names_agent = AGENT

    def __init__(self, context: Context, guard: Guard, requests: Requests, root: str | None, calls: Calls) -> None:
        agents = list(context.engine.runner.queues)
        super().__init__(context, guard, requests, agents[0] if len(agents) == 1 else root, calls)
        self.converter = CompatGrpcConverter(context)

    def service(self) -> grpc.GenericRpcHandler:
        kinds = {method.name: getattr(old_pb, method.input_type.name) for method in SERVICE.methods}
        made: dict[str, Callable[[Any, Any], Any]] = {name: self._checked(name) for name in kinds}
        unary = {name: operation for name, operation in made.items() if name not in STREAMS}
        return self._handlers(
            kinds,
            {name: _in_bytes(method) for name, method in unary.items()},
            {name: _each_in_bytes(made[name]) for name in STREAMS},
        )

    def _checked(self, name: str) -> Callable[[Any, Any], Any]:
        operation = getattr(self.converter, OWN.get(name, name))

        def checked(params: Message, context: Any) -> Any:
            check(name, params)
            return operation(params, context)

        return checked

    def _agent(self, head: RequestHead, params: Any) -> str | None:
        return head.header(AGENT.encode()).strip() or self.root

    def _check_version(self, version: str) -> None:
        require_old(version)

    async def _refuse(self, context: Servicer, error: A2AError) -> None:
        """The SDKs of 0.3 read the error's name from the text."""
        await abort(context, error, f"{name_of(error)}: {error.message}")


async def _asked(request: old_pb.SendMessageRequest) -> pb.SendMessageRequest:
    return await beside(request.ByteSize(), lambda: from_message(request))


def check(name: str, params: Any) -> None:
    if name in NAMED:
        pattern, field = NAMED[name]
        check_name(pattern, field, getattr(params, field))
    if name == "CreateTaskPushNotificationConfig":
        name_config(params.parent.removeprefix("tasks/"), params)


def _in_bytes(method: Callable[[Any, Any], Awaitable[Message | None]]) -> Operation:
    async def operation(call: SdkCall, params: Any) -> bytes:
        answer = await method(params, call.context())
        return b"" if answer is None else answer.SerializeToString()

    return operation


def _each_in_bytes(method: Callable[[Any, Any], Any]) -> Opening:
    async def opening(call: SdkCall, params: Any) -> AsyncGenerator[bytes]:
        async with aclosing(method(params, call.context())) as responses:
            async for response in responses:
                yield response.SerializeToString()

    return opening
