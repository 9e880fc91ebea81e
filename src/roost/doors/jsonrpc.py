"""The JSON-RPC binding (specification, section 9): one path, one method per operation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from roost.doors.errors import known, rpc_error
from roost.doors.guard import check_content_type, check_version, negotiate_extensions
from roost.doors.http import REPLAYED, ClientGone, Response, respond
from roost.doors.rest import (
    Call,
    extended_card_of,
    last_event_id,
    refuse_resume,
    same_agent,
    serve_stream,
)
from roost.engine import push_configs
from roost.protocol.codec import check_cost, decode, decoder, invalid
from roost.protocol.errors import (
    InvalidRequest,
    MethodNotFound,
    ParseError,
)
from roost.protocol.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)

Method = Callable[[Call, Any, bytes], Awaitable[None]]


class Envelope(Struct):
    jsonrpc: str
    method: str
    id: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


NO_ID = Raw(b"null")
MAX_ID = 1024
"""Every frame of a stream repeats the id."""


async def serve(call: Call) -> None:
    """Every error, from bad JSON on, is answered in JSON-RPC's form, with the request's id where it has one."""
    request = call.request
    request_id = NO_ID
    try:
        body = await request.body(call.context.max_body)
        check_content_type(request, body)
        envelope = envelope_of(body)
        request_id = envelope.id if isinstance(envelope.id, Raw) else NO_ID
        check_version(request)
        engine = call.context.engine
        negotiate_extensions(request, engine.queue_of(call.agent).hosted.profile, engine.tenancy)
        found = METHODS.get(envelope.method)
        if found is None:
            is_old = envelope.method.startswith(("message/", "tasks/", "agent/"))
            hint = " in A2A 1.0: it is one of 0.3, for which A2A-Version is 0.3 or absent" if is_old else ""
            raise MethodNotFound(
                f"Method {envelope.method[:80]!r} does not exist{hint}; A2A 1.0 has {', '.join(METHODS)}"
            )
        request.route = f"{request.route} {envelope.method}"
        kind, method = found
        params = decode(kind, bytes(envelope.params) if isinstance(envelope.params, Raw) else b"{}")
        same_agent(call.agent, call.path.get("tenant", ""))
        same_agent(call.agent, params.tenant)
        await method(call, params, bytes(request_id))
    except ClientGone:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if request.status:
            raise
        await respond(request, rpc_error(known(error, request), request_id))


def envelope_of(body: bytes) -> Envelope:
    check_cost(body)
    try:
        envelope = decoder(Envelope)(body)
    except msgspec.ValidationError as error:
        if body.lstrip()[:1] == b"[":
            raise InvalidRequest("Not a JSON-RPC 2.0 request: batches are not part of A2A") from None
        wrong = invalid(error)
        raise InvalidRequest(f"Not a JSON-RPC 2.0 request: {wrong.message}", field=wrong.field) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None
    if envelope.jsonrpc != "2.0":
        raise InvalidRequest('jsonrpc must be "2.0"', field="jsonrpc")
    if isinstance(envelope.id, Raw):
        _check_id(bytes(envelope.id))
    return envelope


def _check_id(request_id: bytes) -> None:
    if request_id[:1] in (b"{", b"[", b"t", b"f"):
        raise InvalidRequest("id must be a string, a number or null", field="id")
    if len(request_id) > MAX_ID:
        raise InvalidRequest(f"id is longer than {MAX_ID} bytes", field="id")
    try:
        request_id.decode()  # msgspec does not look into what it leaves raw
    except UnicodeDecodeError as error:
        raise ParseError(f"Invalid JSON payload: id: {error}") from None


async def _send(call: Call, params: SendMessageRequest, request_id: bytes) -> None:
    context = call.context
    answer = await context.engine.send(call.principal, call.agent, params, call.request.extensions)
    if answer.replayed:
        call.request.answer_headers.append(REPLAYED)
    if answer.task is not None:
        await _ok(call, request_id, b'{"task":%b}' % answer.task)
    else:
        await _ok(call, request_id, b'{"message":%b}' % (answer.message or b""))


async def _stream(call: Call, params: SendMessageRequest, request_id: bytes) -> None:
    refuse_resume(call.request)
    engine = call.context.engine
    prefix = b'{"jsonrpc":"2.0","id":%b,"result":' % request_id
    stream = await engine.stream(call.principal, call.agent, params, call.request.extensions)
    await serve_stream(call, stream, prefix, b"}")


async def _get(call: Call, params: GetTaskRequest, request_id: bytes) -> None:
    await _ok(call, request_id, await call.context.engine.get(call.principal, call.agent, params))


async def _list(call: Call, params: ListTasksRequest, request_id: bytes) -> None:
    await _ok(call, request_id, await call.context.engine.list_tasks(call.principal, call.agent, params))


async def _cancel(call: Call, params: CancelTaskRequest, request_id: bytes) -> None:
    await _ok(call, request_id, await call.context.engine.cancel(call.principal, call.agent, params))


async def _subscribe(call: Call, params: SubscribeToTaskRequest, request_id: bytes) -> None:
    prefix = b'{"jsonrpc":"2.0","id":%b,"result":' % request_id
    last = last_event_id(call.request)
    stream = await call.context.engine.subscribe(call.principal, call.agent, params, last)
    await serve_stream(call, stream, prefix, b"}")


async def _create_push(call: Call, params: TaskPushNotificationConfig, request_id: bytes) -> None:
    result = await push_configs.create(call.context.engine, call.principal, call.agent, params)
    await _ok(call, request_id, result)


async def _get_push(call: Call, params: GetTaskPushNotificationConfigRequest, request_id: bytes) -> None:
    result = await push_configs.get(call.context.engine, call.principal, call.agent, params)
    await _ok(call, request_id, result)


async def _list_push(call: Call, params: ListTaskPushNotificationConfigsRequest, request_id: bytes) -> None:
    result = await push_configs.list_configs(call.context.engine, call.principal, call.agent, params)
    await _ok(call, request_id, result)


async def _delete_push(call: Call, params: DeleteTaskPushNotificationConfigRequest, request_id: bytes) -> None:
    await push_configs.delete(call.context.engine, call.principal, call.agent, params)
    await _ok(call, request_id, b"{}")


async def _extended_card(call: Call, params: Any, request_id: bytes) -> None:
    await _ok(call, request_id, await extended_card_of(call))


async def _ok(call: Call, request_id: bytes, result: bytes) -> None:
    await respond(call.request, Response(200, b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)))


METHODS: dict[str, tuple[type[Any], Method]] = {
    "SendMessage": (SendMessageRequest, _send),
    "SendStreamingMessage": (SendMessageRequest, _stream),
    "GetTask": (GetTaskRequest, _get),
    "ListTasks": (ListTasksRequest, _list),
    "CancelTask": (CancelTaskRequest, _cancel),
    "SubscribeToTask": (SubscribeToTaskRequest, _subscribe),
    "CreateTaskPushNotificationConfig": (TaskPushNotificationConfig, _create_push),
    "GetTaskPushNotificationConfig": (GetTaskPushNotificationConfigRequest, _get_push),
    "ListTaskPushNotificationConfigs": (ListTaskPushNotificationConfigsRequest, _list_push),
    "DeleteTaskPushNotificationConfig": (DeleteTaskPushNotificationConfigRequest, _delete_push),
    "GetExtendedAgentCard": (GetExtendedAgentCardRequest, _extended_card),
}
