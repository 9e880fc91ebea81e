"""gRPC of 0.3: its service beside 1.0's, on the same server, by the compat layer's own servicer.

0.3 has no tenant: the metadata `a2a-agent` names the agent; without it, it is the root's, or the only one there is.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, TypeVar

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from google.protobuf.message import Message

from roost.doors.a2a_03.asked import CONFIG, TASK, check_name, from_message
from roost.doors.a2a_03.door import require_old
from roost.doors.a2a_03.errors import name_of
from roost.doors.a2a_03.handler import Handler03
from roost.doors.context import Context
from roost.doors.grpc import GrpcDoor, Servicer, abort
from roost.doors.guard import Guard
from roost.doors.http import Head
from roost.doors.observability import Requests
from roost.protocol.errors import A2AError, InvalidParams

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


class Converter(CompatGrpcHandler):
    """Its methods are given a ServerCallContext; who calls has been found out already."""

    def __init__(self, context: Context) -> None:
        self.handler03 = Handler03(context)

    async def _handle_unary(self, context: Any, handler_func: Callable[[Any], Awaitable[T]], default_response: T) -> T:
        return await handler_func(context)

    async def _handle_stream(self, context: Any, handler_func: Callable[[Any], AsyncIterable[T]]) -> AsyncIterable[T]:
        async for item in handler_func(context):
            yield item


class OldGrpcDoor(GrpcDoor):
    name = SERVICE.full_name
    names_agent = AGENT

    def __init__(self, context: Context, guard: Guard, requests: Requests, root: str | None) -> None:
        agents = list(context.engine.runner.lanes)
        super().__init__(context, guard, requests, agents[0] if len(agents) == 1 else root)
        self.converter = Converter(context)

    def service(self) -> grpc.GenericRpcHandler:
        kinds = {method.name: getattr(old_pb, method.input_type.name) for method in SERVICE.methods}
        made: dict[str, Callable[[Any, Any], Any]] = {name: self._checked(name) for name in kinds}
        unary = {name: operation for name, operation in made.items() if name not in STREAMS}
        return self._served(kinds, unary, {name: made[name] for name in STREAMS})

    def _checked(self, name: str) -> Callable[[Any, Any], Any]:
        operation = getattr(self.converter, name)

        def checked(params: Message, context: Any) -> Any:
            check(name, params)
            return operation(params, context)

        return checked

    def _agent(self, head: Head, params: Any) -> str | None:
        return head.header(AGENT.encode()).strip() or self.root

    def _check_version(self, version: str) -> None:
        require_old(version)

    async def _refuse(self, context: Servicer, error: A2AError) -> None:
        """The SDKs of 0.3 read the error's name from the text."""
        await abort(context, error, f"{name_of(error)}: {error.message}")


def check(name: str, params: Any) -> None:
    if name in ("SendMessage", "SendStreamingMessage"):
        from_message(params)
    if name in NAMED:
        pattern, field = NAMED[name]
        check_name(pattern, field, getattr(params, field))
    if name == "CreateTaskPushNotificationConfig" and not params.config.HasField("push_notification_config"):
        raise InvalidParams(
            "config.push_notification_config: it must be there", field="config.push_notification_config"
        )
