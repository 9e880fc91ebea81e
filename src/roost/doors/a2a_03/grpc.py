"""gRPC of 0.3: its service beside 1.0's, on the same server.

0.3 has no tenant: the metadata `a2a-agent` names the agent. Without it the root's agent is meant, or the only one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3 import types as old
from a2a.compat.v0_3.proto_utils import FromProto, ToProto
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from roost.doors.a2a_03.bridge import (
    carry_out,
    events_of,
    open_stream,
    prepare_core,
    request_of,
    result_of,
    written_events,
)
from roost.doors.a2a_03.door import speaks_0_3
from roost.doors.a2a_03.errors import name_of
from roost.doors.a2a_03.requests import CONFIG, TASK, check_name, core_of, from_message, name_config
from roost.doors.admission import Call, OpenStream
from roost.doors.grpc import GrpcDoor
from roost.doors.grpc_errors import Servicer, abort
from roost.doors.http import RequestHead
from roost.doors.protobuf import parse_large
from roost.engine.responses import TaskStream
from roost.engine.ring import StreamFrame
from roost.protocol.errors import A2AError
from roost.protocol.operations import OPERATIONS, Operation
from roost.protocol.raw import PreparedRequest

AGENT = "a2a-agent"
BY_METHOD = {operation.old.grpc: operation for operation in OPERATIONS if operation.old.grpc}
NAMED = {
    "GetTask": (TASK, "name"),
    "CancelTask": (TASK, "name"),
    "TaskSubscription": (TASK, "name"),
    "ListTaskPushNotificationConfig": (TASK, "parent"),
    "CreateTaskPushNotificationConfig": (TASK, "parent"),
    "GetTaskPushNotificationConfig": (CONFIG, "name"),
    "DeleteTaskPushNotificationConfig": (CONFIG, "name"),
}
"""The form of the resource name of each method, and the field that holds it."""


class OldGrpcDoor(GrpcDoor):
    service = old_pb.DESCRIPTOR.services_by_name["A2AService"]
    messages = old_pb
    names_agent = AGENT

    def operation(self, method: str) -> Operation:
        return BY_METHOD[method]

    def agent_of(self, head: RequestHead, params: Any) -> str:
        named = head.header(AGENT.encode()).strip()
        agents = list(self.context.agents)
        return named or (agents[0] if len(agents) == 1 else self.root)

    def check_version(self, head: RequestHead) -> None:
        speaks_0_3(head)

    async def carry_out(self, call: Call, method: str, operation: Operation, params: Any) -> tuple[bytes, bool]:
        return await carry_out(call, operation, _request(method, operation, params), write_result)

    async def prepared(self, call: Call, data: bytes) -> PreparedRequest:
        return await call.context.requests.prepared(call.principal, prepare_protobuf, data)

    async def open(self, call: Call, method: str, operation: Operation, params: Any) -> TaskStream:
        return await open_stream(call, operation, _request(method, operation, params))

    async def first(self, call: Call, operation: Operation, stream: OpenStream) -> bytes:
        return (await events_of(call, operation, [stream.opening.json()], write_events))[0]

    async def events(
        self, call: Call, operation: Operation, stream: OpenStream, frames: list[StreamFrame]
    ) -> list[bytes]:
        return await events_of(call, operation, [frame.data for frame in frames], write_events)

    async def refuse(self, context: Servicer, error: A2AError) -> None:
        """Write an error. The SDKs of 0.3 read its name from the text."""
        await abort(context, error, f"{name_of(error)}: {error.message}")


def write_result(operation: str, data: bytes) -> bytes:
    to_proto = RESPONSES[operation]
    return result_of(operation, data, lambda value: to_proto(value).SerializeToString())


def write_events(data: bytes, ends_at_question: bool) -> bytes:
    return written_events(data, ends_at_question, lambda event: ToProto.stream_response(event).SerializeToString())


def prepare_protobuf(data: bytes, *limits: int) -> bytes:
    """Convert a large message. Runs in a worker process."""
    return prepare_core(from_message(parse_large(old_pb.SendMessageRequest, data, limits[0])), *limits)


def _request(method: str, operation: Operation, params: Any) -> Any:
    """Convert a message of 0.3 into a request of 1.0."""
    return params if isinstance(params, PreparedRequest) else request_of(operation, _core(method, params))


def _core(method: str, params: Any) -> Message:
    """Convert a message of 0.3 into that of 1.0."""
    if method in NAMED:
        pattern, field = NAMED[method]
        check_name(pattern, field, getattr(params, field))
    if method == "CreateTaskPushNotificationConfig":
        name_config(params.parent.removeprefix("tasks/"), params)
    if isinstance(params, old_pb.SendMessageRequest):
        return from_message(params)
    return core_of(REQUESTS[method](params))


def _split_name(name: str) -> dict[str, Any]:
    """The ids in tasks/{id}/pushNotificationConfigs/{id}, which has been checked."""
    _, task, _, config = name.split("/")
    return {"id": task, "push_notification_config_id": config}


REQUESTS: dict[str, Callable[[Any], Any]] = {
    "GetTask": lambda params: old.GetTaskRequest(id=0, params=FromProto.task_query_params(params)),
    "CancelTask": lambda params: old.CancelTaskRequest(id=0, params=FromProto.task_id_params(params)),
    "TaskSubscription": lambda params: old.TaskResubscriptionRequest(id=0, params=FromProto.task_id_params(params)),
    "CreateTaskPushNotificationConfig": lambda params: old.SetTaskPushNotificationConfigRequest(
        id=0, params=FromProto.task_push_notification_config_request(params)
    ),
    "GetTaskPushNotificationConfig": lambda params: old.GetTaskPushNotificationConfigRequest(
        id=0, params=old.GetTaskPushNotificationConfigParams(**_split_name(params.name))
    ),
    "ListTaskPushNotificationConfig": lambda params: old.ListTaskPushNotificationConfigRequest(
        id=0, params=old.ListTaskPushNotificationConfigParams(id=params.parent.removeprefix("tasks/"))
    ),
    "DeleteTaskPushNotificationConfig": lambda params: old.DeleteTaskPushNotificationConfigRequest(
        id=0, params=old.DeleteTaskPushNotificationConfigParams(**_split_name(params.name))
    ),
    "GetAgentCard": lambda params: old.GetAuthenticatedExtendedCardRequest(id=0),
}
"""The SDK's model of each request, from its protobuf message."""


def _configs(configs: list[old.TaskPushNotificationConfig]) -> Message:
    found = [ToProto.task_push_notification_config(config) for config in configs]
    return old_pb.ListTaskPushNotificationConfigResponse(configs=found)


RESPONSES: dict[str, Callable[[Any], Message]] = {
    "SendMessage": ToProto.task_or_message,
    "GetTask": ToProto.task,
    "CancelTask": ToProto.task,
    "CreateTaskPushNotificationConfig": ToProto.task_push_notification_config,
    "GetTaskPushNotificationConfig": ToProto.task_push_notification_config,
    "ListTaskPushNotificationConfigs": _configs,
    "DeleteTaskPushNotificationConfig": lambda nothing: Empty(),
    "GetExtendedAgentCard": ToProto.agent_card,
}
"""The protobuf message of each result, by operation."""
