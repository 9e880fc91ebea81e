"""JSON-RPC of 0.3 (its specification, section 7), at the path of 1.0's."""

from __future__ import annotations

from typing import Any

from a2a.compat.v0_3 import types as old
from msgspec import Raw
from pydantic import BaseModel

from roost.doors.a2a_03.bridge import (
    OldForm,
    carry_out,
    is_small,
    open_stream,
    plain,
    prepare_core,
    request_of,
    result_of,
    written_events,
)
from roost.doors.a2a_03.door import negotiate
from roost.doors.a2a_03.requests import from_params
from roost.doors.admission import Call
from roost.doors.errors import rpc_error
from roost.doors.http import REPLAYED, Request, Response, respond
from roost.doors.jsonrpc import Envelope, params_of
from roost.doors.requests import too_large
from roost.doors.sse import send_events
from roost.protocol.codec import encode
from roost.protocol.cost import JSONLimits, check, is_light
from roost.protocol.errors import A2AError, MethodNotFound
from roost.protocol.operations import BY_NAME, BY_OLD_RPC, Operation
from roost.protocol.types import SendMessageRequest

KINDS: dict[str, type[BaseModel]] = {
    "SendMessage": old.SendMessageRequest,
    "SendStreamingMessage": old.SendStreamingMessageRequest,
    "GetTask": old.GetTaskRequest,
    "CancelTask": old.CancelTaskRequest,
    "SubscribeToTask": old.TaskResubscriptionRequest,
    "CreateTaskPushNotificationConfig": old.SetTaskPushNotificationConfigRequest,
    "GetTaskPushNotificationConfig": old.GetTaskPushNotificationConfigRequest,
    "ListTaskPushNotificationConfigs": old.ListTaskPushNotificationConfigRequest,
    "DeleteTaskPushNotificationConfig": old.DeleteTaskPushNotificationConfigRequest,
    "GetExtendedAgentCard": old.GetAuthenticatedExtendedCardRequest,
}
"""The SDK's model of each request, by operation."""


async def serve(call: Call, request: Request, envelope: Envelope, request_id: bytes) -> None:
    negotiate(call, request)
    call = call._replace(converts=True)
    operation = _operation(envelope.method)
    request.route = f"{request.route} {envelope.method}"
    params = params_of(envelope)
    bodies = call.context.requests
    if is_small(params) or (operation.request is not SendMessageRequest and is_light(params)):
        asked = request_of(operation, from_params(KINDS[operation.name], envelope.method, params))
    elif operation.request is SendMessageRequest:
        asked = await bodies.prepared(call.principal, prepare_params, operation.name, envelope.method, params)
    else:
        raise too_large()
    request.let_go()

    def ending(error: A2AError) -> bytes:
        return b"data: %b\n\n" % rpc_error(error, Raw(request_id)).body

    if operation.streams:
        async with call.stream(open_stream(call, operation, asked)) as stream:
            prefix, suffix = b'{"jsonrpc":"2.0","id":%b,"result":' % request_id, b"}"
            await send_events(request, stream, OldForm(call, operation, write_events, ending, prefix, suffix))
        return
    written, replayed = await carry_out(call, operation, asked, write_result)
    if replayed:
        request.response_headers.append(REPLAYED)
    await respond(request, Response(200, b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, written)))


def prepare_params(operation: str, method: str, params: bytes, *limits: int) -> bytes:
    """Convert a large message. Runs in a worker process."""
    check(params, JSONLimits(*limits[:3]))
    return prepare_core(from_params(KINDS[operation], method, params), *limits)


def write_result(operation: str, data: bytes) -> bytes:
    return result_of(operation, data, _json)


def write_events(data: bytes, ends_at_question: bool) -> bytes:
    return written_events(data, ends_at_question, _json)


def _json(value: Any) -> bytes:
    if isinstance(value, list):
        return encode([plain(item) for item in value])
    return encode(None if value is None else plain(value))


def _operation(method: str) -> Operation:
    found = BY_OLD_RPC.get(method)
    if found is not None:
        return found
    if method in BY_NAME:
        raise MethodNotFound(
            f"{method} is a method of A2A 1.0, and a request without A2A-Version is one of 0.3: send the header"
            " `A2A-Version: 1.0`"
        )
    raise MethodNotFound(f"Method {method[:80]!r} does not exist; A2A 0.3 has {', '.join(BY_OLD_RPC)}")
