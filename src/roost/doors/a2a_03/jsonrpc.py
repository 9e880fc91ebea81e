"""JSON-RPC of 0.3 (its specification, section 7), at the path of 1.0's."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec
from a2a.compat.v0_3 import types as old
from msgspec import Raw
from pydantic import BaseModel

from roost.doors import jsonrpc
from roost.doors.a2a_03.asked import from_params
from roost.doors.a2a_03.door import negotiate
from roost.doors.a2a_03.handler import Handler03, plain, refusal, sdk_call
from roost.doors.a2a_03.streams import write_stream
from roost.doors.errors import rpc_error
from roost.doors.guard import check_content_type
from roost.doors.http import REPLAYED, ClientGone, Response, respond
from roost.doors.jsonrpc import NO_ID, envelope_of
from roost.doors.rest import Call, last_event_id, refuse_resume
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError, MethodNotFound, ParseError


class Method(NamedTuple):
    kind: type[BaseModel]
    operation: str
    """Of the handler."""
    streams: bool = False


METHODS: dict[str, Method] = {
    "message/send": Method(old.SendMessageRequest, "on_message_send"),
    "message/stream": Method(old.SendStreamingMessageRequest, "on_message_send_stream", streams=True),
    "tasks/get": Method(old.GetTaskRequest, "on_get_task"),
    "tasks/cancel": Method(old.CancelTaskRequest, "on_cancel_task"),
    "tasks/resubscribe": Method(old.TaskResubscriptionRequest, "on_subscribe_to_task", streams=True),
    "tasks/pushNotificationConfig/set": Method(
        old.SetTaskPushNotificationConfigRequest, "on_create_task_push_notification_config"
    ),
    "tasks/pushNotificationConfig/get": Method(
        old.GetTaskPushNotificationConfigRequest, "on_get_task_push_notification_config"
    ),
    "tasks/pushNotificationConfig/list": Method(
        old.ListTaskPushNotificationConfigRequest, "on_list_task_push_notification_configs"
    ),
    "tasks/pushNotificationConfig/delete": Method(
        old.DeleteTaskPushNotificationConfigRequest, "on_delete_task_push_notification_config"
    ),
    "agent/getAuthenticatedExtendedCard": Method(old.GetAuthenticatedExtendedCardRequest, "on_get_extended_agent_card"),
}


async def serve(call: Call) -> None:
    request = call.request
    request_id = NO_ID
    try:
        body = await request.body(call.context.max_body)
        check_content_type(request, body)
        envelope = envelope_of(body)
        request_id = envelope.id if isinstance(envelope.id, Raw) else NO_ID
        engine = call.context.engine
        negotiate(request, engine.lane(call.agent).hosted.profile, engine.tenancy)
        method = _method(envelope.method)
        request.route = f"{request.route} {envelope.method}"
        asked = from_params(method.kind, envelope.method, _params(envelope))
        await (_stream if method.streams else _answer)(call, method, asked, bytes(request_id))
    except ClientGone:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if request.status:
            raise
        await respond(request, rpc_error(refusal(error, request), request_id))


def _method(name: str) -> Method:
    found = METHODS.get(name)
    if found is not None:
        return found
    if name in jsonrpc.METHODS:
        raise MethodNotFound(
            f"{name} is a method of A2A 1.0, and a request without A2A-Version is one of 0.3: send the header"
            " `A2A-Version: 1.0`"
        )
    raise MethodNotFound(f"Method {name[:80]!r} does not exist; A2A 0.3 has {', '.join(METHODS)}")


def _params(envelope: jsonrpc.Envelope) -> Any:
    if not isinstance(envelope.params, Raw):
        return {}
    try:
        return msgspec.json.decode(envelope.params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None


async def _answer(call: Call, method: Method, asked: BaseModel, request_id: bytes) -> None:
    made = sdk_call(call)
    result = await getattr(Handler03(call.context), method.operation)(asked, made.context())
    if made.replayed:
        call.request.answer_headers.append(REPLAYED)
    shown = [plain(item) for item in result] if isinstance(result, list) else None if result is None else plain(result)
    await respond(call.request, Response(200, _result(request_id, shown)))


async def _stream(call: Call, method: Method, asked: BaseModel, request_id: bytes) -> None:
    request, made = call.request, sdk_call(call)
    if method.operation == "on_subscribe_to_task":
        made.last_event_id = last_event_id(request)
    else:
        refuse_resume(request)

    def data(frame: old.SendStreamingMessageSuccessResponse) -> bytes:
        return _result(request_id, plain(frame.result))

    def ending(error: A2AError) -> bytes:
        return b"data: %b\n\n" % rpc_error(error, Raw(request_id)).body

    frames = getattr(Handler03(call.context), method.operation)(asked, made.context())
    await write_stream(request, made, frames, data, ending)


def _result(request_id: bytes, result: Any) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, encode(result))
