"""REST of 0.3 below an agent's `/v1/`: the JSON of its protobuf messages, as all its SDKs speak it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3 import types as old
from a2a.compat.v0_3.proto_utils import ToProto
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from roost.doors.a2a_03.bridge import (
    LISTED,
    OldForm,
    carry_out,
    is_small,
    open_stream,
    prepare_core,
    request_of,
    result_of,
    with_integers,
    written_events,
)
from roost.doors.a2a_03.errors import rest_body
from roost.doors.a2a_03.requests import core_of, from_json, history_length, push_from_json
from roost.doors.admission import Call
from roost.doors.http import REPLAYED, Request, Response, respond
from roost.doors.rest import read_body
from roost.doors.sse import send_events
from roost.protocol.codec import decode, encode
from roost.protocol.cost import JSONLimits, check
from roost.protocol.errors import A2AError
from roost.protocol.operations import Operation

Form = Callable[[Any], bytes]


async def serve(operation: Operation, call: Call, request: Request, path: dict[str, str]) -> None:
    call = call._replace(converts=True)
    asked = await _request(operation, call, request, path)
    request.let_go()
    if operation.streams:
        async with call.stream(open_stream(call, operation, asked)) as stream:
            await send_events(request, stream, OldForm(call, operation, write_events, _ending))
        return
    written, replayed = await carry_out(call, operation, asked, write_result)
    if replayed:
        request.response_headers.append(REPLAYED)
    await respond(request, Response(200, written))


async def _request(operation: Operation, call: Call, request: Request, path: dict[str, str]) -> Any:
    """Convert the body, the query and the path into a request of 1.0."""
    match operation.name:
        case "SendMessage" | "SendStreamingMessage":
            body = await read_body(call, request)
            if not is_small(body):
                return await call.context.requests.prepared(call.principal, prepare_json, body)
            return request_of(operation, from_json(body))
    return request_of(operation, await _core(operation, call, request, path))


def prepare_json(body: bytes, *limits: int) -> bytes:
    """Convert a large message. Runs in a worker process."""
    check(body, JSONLimits(*limits[:3]))
    return prepare_core(from_json(body), *limits)


async def _core(operation: Operation, call: Call, request: Request, path: dict[str, str]) -> Message:
    match operation.name:
        case "ListTasks":
            return pb.ListTasksRequest(page_size=LISTED)
        case "CreateTaskPushNotificationConfig":
            query = request.query
            config_id = query.get("configId", query.get("config_id", ""))
            body = await read_body(call, request)
            call.context.requests.fields(body)  # checks what it costs
            return push_from_json(path["taskId"], body, config_id)
    if request.method == "POST":
        await _check_empty(call, request)
    return core_of(_old_request(operation, request, path))


def _old_request(operation: Operation, request: Request, path: dict[str, str]) -> Any:
    """Build the request of 0.3 that the path stands for."""
    match operation.name:
        case "GetTask":
            params = old.TaskQueryParams(id=path["id"], history_length=history_length(request.query))
            return old.GetTaskRequest(id=0, params=params)
        case "CancelTask":
            return old.CancelTaskRequest(id=0, params=old.TaskIdParams(id=path["id"]))
        case "SubscribeToTask":
            return old.TaskResubscriptionRequest(id=0, params=old.TaskIdParams(id=path["id"]))
        case "GetTaskPushNotificationConfig":
            return old.GetTaskPushNotificationConfigRequest(
                id=0,
                params=old.GetTaskPushNotificationConfigParams(
                    id=path["taskId"], push_notification_config_id=path["id"]
                ),
            )
        case "ListTaskPushNotificationConfigs":
            return old.ListTaskPushNotificationConfigRequest(
                id=0, params=old.ListTaskPushNotificationConfigParams(id=path["taskId"])
            )
        case "DeleteTaskPushNotificationConfig":
            return old.DeleteTaskPushNotificationConfigRequest(
                id=0,
                params=old.DeleteTaskPushNotificationConfigParams(
                    id=path["taskId"], push_notification_config_id=path["id"]
                ),
            )
        case _:
            return old.GetAuthenticatedExtendedCardRequest(id=0)


async def _check_empty(call: Call, request: Request) -> None:
    """Check a body that is not needed, because the path says everything. It must still be a JSON object."""
    body = await read_body(call, request)
    if body.strip():
        decode(dict[str, Any], body)


def write_result(operation: str, data: bytes) -> bytes:
    return result_of(operation, data, FORMS[operation])


def write_events(data: bytes, ends_at_question: bool) -> bytes:
    return written_events(data, ends_at_question, _json_of(ToProto.stream_response))


def _ending(error: A2AError) -> bytes:
    return b"event: error\ndata: %b\n\n" % rest_body(error)


def _json(message: Message) -> bytes:
    return encode(with_integers(MessageToDict(message)))


def _json_of(to_proto: Callable[[Any], Message]) -> Form:
    return lambda value: _json(to_proto(value))


def _tasks(tasks: list[old.Task]) -> bytes:
    return encode(with_integers([MessageToDict(ToProto.task(task)) for task in tasks]))


def _configs(configs: list[old.TaskPushNotificationConfig]) -> bytes:
    found = [ToProto.task_push_notification_config(config) for config in configs]
    return _json(old_pb.ListTaskPushNotificationConfigResponse(configs=found))


FORMS: dict[str, Form] = {
    "SendMessage": _json_of(ToProto.task_or_message),
    "ListTasks": _tasks,
    "GetTask": _json_of(ToProto.task),
    "CancelTask": _json_of(ToProto.task),
    "CreateTaskPushNotificationConfig": _json_of(ToProto.task_push_notification_config),
    "GetTaskPushNotificationConfig": _json_of(ToProto.task_push_notification_config),
    "ListTaskPushNotificationConfigs": _configs,
    "DeleteTaskPushNotificationConfig": lambda nothing: b"{}",
    "GetExtendedAgentCard": _json_of(ToProto.agent_card),
}
"""The function that encodes each result, by operation."""
