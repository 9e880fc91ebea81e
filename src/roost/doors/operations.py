"""Carries out the operations of A2A for admitted calls: one method for each row of protocol/operations.py.

A unary operation returns its response as JSON, a streaming one opens a stream. The bindings only decode and encode.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from roost.doors.admission import Call
from roost.doors.http import RequestHead
from roost.engine.bodies import Made
from roost.engine.responses import SendResult, TaskStream
from roost.protocol.errors import InvalidParams
from roost.protocol.operations import OPERATIONS, Operation
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


class Operations:
    def send(self, call: Call, request: SendMessageRequest) -> Awaitable[SendResult]:
        return call.context.engine.send(call.principal, call.agent, request, call.head.extensions, call.reader)

    def list_tasks(self, call: Call, request: ListTasksRequest) -> Awaitable[bytes]:
        return call.context.engine.list_tasks(call.principal, call.agent, request, call.head.extensions, call.reader)

    def get(self, call: Call, request: GetTaskRequest) -> Awaitable[bytes]:
        return call.context.engine.get(call.principal, call.agent, request, call.head.extensions, call.reader)

    def cancel(self, call: Call, request: CancelTaskRequest) -> Awaitable[bytes]:
        return call.context.engine.cancel(call.principal, call.agent, request, call.head.extensions, call.reader)

    async def create_push_config(self, call: Call, request: TaskPushNotificationConfig) -> bytes:
        webhooks = call.context.engine.webhooks
        return await webhooks.create(call.principal, call.agent, request, call.head.extensions)

    async def list_push_configs(self, call: Call, request: ListTaskPushNotificationConfigsRequest) -> bytes:
        async def make() -> Made:
            return Made(await call.context.engine.webhooks.list_configs(call.principal, call.agent, request))

        found = [await make()]
        return (await call.reader.read(len(found[0].data), None, make, found)).data

    async def get_push_config(self, call: Call, request: GetTaskPushNotificationConfigRequest) -> bytes:
        return await call.context.engine.webhooks.get(call.principal, call.agent, request)

    async def delete_push_config(self, call: Call, request: DeleteTaskPushNotificationConfigRequest) -> bytes:
        await call.context.engine.webhooks.delete(call.principal, call.agent, request)
        return b"{}"

    async def extended_card(self, call: Call, request: GetExtendedAgentCardRequest) -> bytes:
        return await call.context.cards.extended(call.context.base(call.head), call.agent, call.principal)

    async def stream(self, call: Call, request: SendMessageRequest) -> TaskStream:
        """Send a message and follow its task."""
        if b"last-event-id" in call.head.headers:
            raise InvalidParams(
                "message:stream would send the message again; resume with tasks/{id}:subscribe and Last-Event-ID",
                field="Last-Event-ID",
            )
        engine, activated = call.context.engine, call.head.extensions
        return await engine.stream(call.principal, call.agent, request, activated, reader=call.reader)

    async def subscribe(self, call: Call, request: SubscribeToTaskRequest) -> TaskStream:
        last, activated = last_event_id(call.head), call.head.extensions
        engine = call.context.engine
        return await engine.subscribe(call.principal, call.agent, request, last, activated, reader=call.reader)


Unary = Callable[[Call, Any], Awaitable[SendResult | bytes]]
Opening = Callable[[Call, Any], Awaitable[TaskStream]]

_operations = Operations()
_methods: dict[str, Any] = {operation.method: getattr(_operations, operation.method) for operation in OPERATIONS}


def unary(operation: Operation) -> Unary:
    """The method that carries out a unary operation."""
    assert not operation.streams
    method: Unary = _methods[operation.method]
    return method


def opening(operation: Operation) -> Opening:
    """The method that opens the stream of a streaming operation."""
    assert operation.streams
    method: Opening = _methods[operation.method]
    return method


def parts_of(result: SendResult | bytes) -> tuple[bytes, bytes, bytes]:
    """Return the JSON of a unary operation in parts, of which the second may be large and shared."""
    if isinstance(result, bytes):
        return b"", result, b""
    return result.json_parts() if result.is_large else (b"", result.json(), b"")


def check_tenant(agent: str, tenant: str) -> None:
    """Check A2A's `tenant`, which names an agent. If the path or the metadata names one too, it must be the same."""
    if tenant and tenant != agent:
        raise InvalidParams(f"tenant names the agent {tenant[:128]!r}, the path names {agent!r}", field="tenant")


def last_event_id(head: RequestHead) -> int | None:
    raw = head.headers.get(b"last-event-id")
    if raw is None:
        return None
    if not raw.isdigit() or len(raw) > 18:
        raise InvalidParams("Last-Event-ID must be the id of an event of this task, a number", field="Last-Event-ID")
    return int(raw)
