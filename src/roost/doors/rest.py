"""The HTTP+JSON binding (specification, section 11), below an agent's own path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from roost.doors.context import Context
from roost.doors.guard import check_content_type
from roost.doors.http import REPLAYED, Request, RequestHead, Response, preferred_json, respond
from roost.doors.sse import send_stream
from roost.engine import push_configs
from roost.engine.responses import TaskStream
from roost.identity.principal import Principal
from roost.protocol.codec import convert, decode
from roost.protocol.errors import InvalidParams
from roost.protocol.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)

Handler = Callable[["Call"], Awaitable[None]]


class Call(NamedTuple):
    """One operation on one agent: the values that the path's template names are in `path`."""

    context: Context
    request: Request
    agent: str
    path: dict[str, str]
    principal: Principal


async def send_message(call: Call) -> None:
    message = await _body(call, SendMessageRequest)
    context = call.context
    answer = await context.engine.send(call.principal, call.agent, message, call.request.extensions)
    if answer.replayed:
        call.request.answer_headers.append(REPLAYED)
    if answer.task is not None:
        await _ok(call, b'{"task":%b}' % answer.task)
    else:
        await _ok(call, b'{"message":%b}' % (answer.message or b""))


async def stream_message(call: Call) -> None:
    refuse_resume(call.request)
    message = await _body(call, SendMessageRequest)
    stream = await call.context.engine.stream(call.principal, call.agent, message, call.request.extensions)
    await serve_stream(call, stream)


async def get_task(call: Call) -> None:
    request = _query(call, GetTaskRequest)
    await _ok(call, await call.context.engine.get(call.principal, call.agent, request))


async def list_tasks(call: Call) -> None:
    request = _query(call, ListTasksRequest)
    await _ok(call, await call.context.engine.list_tasks(call.principal, call.agent, request))


async def cancel_task(call: Call) -> None:
    request = await _body(call, CancelTaskRequest)
    await _ok(call, await call.context.engine.cancel(call.principal, call.agent, request))


async def subscribe_to_task(call: Call) -> None:
    if call.request.method == "GET":
        request = _query(call, SubscribeToTaskRequest)
    else:
        request = await _body(call, SubscribeToTaskRequest)
    last = last_event_id(call.request)
    await serve_stream(call, await call.context.engine.subscribe(call.principal, call.agent, request, last))


async def create_push_config(call: Call) -> None:
    request = await _body(call, TaskPushNotificationConfig)
    await _ok(call, await push_configs.create(call.context.engine, call.principal, call.agent, request))


async def get_push_config(call: Call) -> None:
    request = _query(call, GetTaskPushNotificationConfigRequest)
    await _ok(call, await push_configs.get(call.context.engine, call.principal, call.agent, request))


async def list_push_configs(call: Call) -> None:
    request = _query(call, ListTaskPushNotificationConfigsRequest)
    await _ok(call, await push_configs.list_configs(call.context.engine, call.principal, call.agent, request))


async def delete_push_config(call: Call) -> None:
    request = _query(call, DeleteTaskPushNotificationConfigRequest)
    await push_configs.delete(call.context.engine, call.principal, call.agent, request)
    await _ok(call, b"{}")


async def extended_card(call: Call) -> None:
    await _ok(call, await extended_card_of(call))


async def serve_stream(call: Call, stream: TaskStream, prefix: bytes = b"", suffix: bytes = b"") -> None:
    """While the caller's credential holds."""
    context, follower = call.context, stream.follower
    if follower is not None:
        context.access.watch(follower, call.principal)
    try:
        await send_stream(call.request, context.engine, context.heartbeat, stream, prefix, suffix)
    finally:
        if follower is not None:
            context.access.unwatch(follower)


async def extended_card_of(call: Call) -> bytes:
    context = call.context
    return await context.cards.extended(context.base(call.request), call.agent, call.principal)


def last_event_id(request: RequestHead) -> int | None:
    raw = request.headers.get(b"last-event-id")
    if raw is None:
        return None
    if not raw.isdigit() or len(raw) > 18:
        raise InvalidParams("Last-Event-ID must be the id of an event of this task, a number", field="Last-Event-ID")
    return int(raw)


def refuse_resume(request: RequestHead) -> None:
    if b"last-event-id" in request.headers:
        raise InvalidParams(
            "message:stream would send the message again; resume with tasks/{id}:subscribe and Last-Event-ID",
            field="Last-Event-ID",
        )


async def _body(call: Call, kind: type[Any]) -> Any:
    body = await call.request.body(call.context.max_body)
    check_content_type(call.request, body)
    if kind is SendMessageRequest:
        value = decode(kind, body)
    else:
        value = convert(kind, {**(decode(dict[str, Any], body) if body.strip() else {}), **call.path})
    _same_agent(call, value.tenant)
    return value


def _query(call: Call, kind: type[Any]) -> Any:
    value = convert(kind, {**call.request.query, **call.path}, strict=False)
    _same_agent(call, value.tenant)
    return value


def _same_agent(call: Call, tenant: str) -> None:
    """A2A's `tenant` selects an agent; here the path has done so already."""
    same_agent(call.agent, call.path.get("tenant", "") or tenant)
    if tenant:
        same_agent(call.agent, tenant)


def same_agent(agent: str, tenant: str) -> None:
    if tenant and tenant != agent:
        raise InvalidParams(f"tenant names the agent {tenant[:128]!r}, the path names {agent!r}", field="tenant")


async def _ok(call: Call, body: bytes) -> None:
    await respond(call.request, Response(200, body, preferred_json(call.request)))
