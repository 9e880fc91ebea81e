"""JSON-RPC of 0.3 (its specification, section 7), at the path of 1.0's."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from a2a.compat.v0_3 import types as old
from google.protobuf.message import Message
from msgspec import Raw
from pydantic import BaseModel

from roost.doors import jsonrpc
from roost.doors.a2a_03.door import admit
from roost.doors.a2a_03.handler import Handler03, plain, refusal, sdk_call
from roost.doors.a2a_03.offload import beside
from roost.doors.a2a_03.requests import from_params
from roost.doors.a2a_03.streams import write_stream
from roost.doors.errors import rpc_error
from roost.doors.guard import check_content_type
from roost.doors.http import REPLAYED, ClientGone, Response, respond
from roost.doors.jsonrpc import NO_ID, envelope_of
from roost.doors.rest import Call, last_event_id, refuse_resume
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError, MethodNotFound


class Method(NamedTuple):
    kind: type[BaseModel]
    operation: str
    """Of the handler."""
    streams: bool = False


METHODS: dict[str, Method] = {
    "message/send": Method(old.SendMessageRequest, "send"),
    "message/stream": Method(old.SendStreamingMessageRequest, "stream", streams=True),
    "tasks/get": Method(old.GetTaskRequest, "get"),
    "tasks/cancel": Method(old.CancelTaskRequest, "cancel"),
    "tasks/resubscribe": Method(old.TaskResubscriptionRequest, "subscribe", streams=True),
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
        admit(request, engine.queue_of(call.agent).hosted.profile, engine.tenancy)
        method = _method(envelope.method)
        request.route = f"{request.route} {envelope.method}"
        params = bytes(envelope.params) if isinstance(envelope.params, Raw) else b"{}"
        asked = await beside(len(params), lambda: from_params(method.kind, envelope.method, params))
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


async def _answer(call: Call, method: Method, asked: Message | BaseModel, request_id: bytes) -> None:
    made = sdk_call(call)
    operation = getattr(Handler03(call.context), method.operation)

    def form(result: Any) -> bytes:
        if isinstance(result, list):
            return _result(request_id, [plain(item) for item in result])
        return _result(request_id, None if result is None else plain(result))

    if isinstance(asked, Message):
        body = await operation(asked, made.context(), form)
    else:
        body = form(await operation(asked, made.context()))
    if made.replayed:
        call.request.answer_headers.append(REPLAYED)
    await respond(call.request, Response(200, body))


async def _stream(call: Call, method: Method, asked: Message | BaseModel, request_id: bytes) -> None:
    request, made = call.request, sdk_call(call)
    if method.operation == "subscribe":
        made.last_event_id = last_event_id(request)
    else:
        refuse_resume(request)

    def ending(error: A2AError) -> bytes:
        return b"data: %b\n\n" % rpc_error(error, Raw(request_id)).body

    operation = getattr(Handler03(call.context), method.operation)
    frames = operation(asked, made.context(), lambda event: _result(request_id, plain(event)))
    await write_stream(request, made, frames, ending)


def _result(request_id: bytes, result: Any) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, encode(result))
