"""The paths of agentic-sandbox's v2 below an agent's `/v1/`: A2A 1.0 by other names, see docs/sandbox-dialect.md.

Each path is an alias of an operation. Other names in the query and other defaults are translated, then the HTTP+JSON
binding serves the request. A2A 0.3 has paths below `/v1/` too; `claims` tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from uuid import uuid4

import msgspec
from msgspec import Raw

from roost.doors.admission import Call, speaks_any
from roost.doors.door import AGENT, CALLER, Route
from roost.doors.errors import PROBLEM_CODES, rest_error
from roost.doors.guard import EXTENSIONS as EXTENSION_HEADERS
from roost.doors.guard import SUPPORTED_VERSION, version_of
from roost.doors.http import Connection, Place, Request, Response
from roost.doors.large import from_json
from roost.doors.openapi_doors import dialect_operation
from roost.doors.paths import NOTHING, OPENAI_ALIAS, Endpoint, Match, Table
from roost.doors.rest import AgentDoor, Handler, carry_out, read_body, serve_operation
from roost.engine.push_configs import INLINE
from roost.protocol.codec import convert, decoder, encode
from roost.protocol.cost import is_light
from roost.protocol.errors import A2AError, InvalidParams
from roost.protocol.operations import BY_NAME
from roost.protocol.types import SendMessageRequest, TaskState

VERSION_SEGMENT = "v1"
EXTENSIONS = "https://agentic-sandbox.aiwg.io/extensions/"
QUERY = {"state": "status", "cursor": "pageToken", "limit": "pageSize"}
"""The dialect's names of the fields of ListTasks, and A2A's names."""
STATES = {state.removeprefix("TASK_STATE_").lower(): state for state in TaskState if state != TaskState.UNSPECIFIED}
CODES = PROBLEM_CODES | {
    "INVALID_PARAMS": "request.invalid_params",
    "EXTENSION_SUPPORT_REQUIRED": "extension.required_not_activated",
    "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD": "idempotency.key_reused",
    "AGENT_NOT_FOUND": "instance.not_found",
    "TASK_MOVED": "runtime.unavailable",
}
"""The dialect's names of errors. For the others it uses the names of the admin surface."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


async def send_message(call: Call, request: Request, path: dict[str, str]) -> None:
    bodies, body = call.context.requests, await read_body(call, request)
    if is_light(body):
        params = await bodies.decode(call.principal, SendMessageRequest, at_once(body))
    else:
        params = await bodies.prepared(call.principal, large_at_once, body)
    request.let_go()
    await carry_out(BY_NAME["SendMessage"], call, request, params)


async def list_tasks(call: Call, request: Request, path: dict[str, str]) -> None:
    operation = BY_NAME["ListTasks"]
    try:
        params = convert(operation.request, translated(request.query), strict=False)
        await carry_out(operation, call, request, params)
    except InvalidParams as error:
        name = next((name for name, ours in QUERY.items() if ours == error.field), None)
        if name is None:
            raise
        raise InvalidParams(error.message.replace(QUERY[name], name), field=name) from None


class DialectRoute(NamedTuple):
    """A path of the dialect, and the operation of A2A that it stands for."""

    method: str
    template: str
    operation: str
    summary: str
    handler: Handler | None = None
    """The function that translates the request; None if nothing has to be translated."""


_CONFIGS = "/v1/tasks/{taskId}/pushNotificationConfigs"
ROUTES = (
    DialectRoute(
        "POST", "/v1/messages:send", "SendMessage", "Send a message; the response does not wait", send_message
    ),
    DialectRoute("GET", "/v1/tasks", "ListTasks", "List the caller's tasks", list_tasks),
    DialectRoute("GET", "/v1/tasks/{id}", "GetTask", "Read a task"),
    DialectRoute("POST", "/v1/tasks/{id}/cancel", "CancelTask", "Cancel a task"),
    DialectRoute("GET", "/v1/tasks/{id}/subscribe", "SubscribeToTask", "Follow a task"),
    DialectRoute("POST", "/v1/tasks/{id}/subscribe", "SubscribeToTask", "Follow a task"),
    DialectRoute("POST", _CONFIGS, "CreateTaskPushNotificationConfig", "Set a webhook of a task"),
    DialectRoute("GET", _CONFIGS, "ListTaskPushNotificationConfigs", "List the webhooks of a task"),
    DialectRoute("GET", _CONFIGS + "/{id}", "GetTaskPushNotificationConfig", "Read a webhook of a task"),
    DialectRoute("DELETE", _CONFIGS + "/{id}", "DeleteTaskPushNotificationConfig", "Delete a webhook of a task"),
    DialectRoute("GET", "/v1/extendedAgentCard", "GetExtendedAgentCard", "Read the card as this caller may know it"),
)
TABLE: Table[Handler] = Table(
    Endpoint(
        route.method,
        route.template,
        route.handler or partial(serve_operation, BY_NAME[route.operation]),
        f"Sandbox: {route.summary[:1].lower()}{route.summary[1:]}",
    )
    for route in ROUTES
)


class SandboxDoor(AgentDoor):
    """Claims the paths below an agent's `/v1/` that are the dialect's and not those of A2A 0.3."""

    def negotiate(self, call: Call, request: Request) -> None:
        self.context.admission.negotiate(call, speaks_any)

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                route.method,
                AGENT + route.template,
                endpoint.summary,
                CALLER,
                dialect_operation(BY_NAME[route.operation], QUERY, list(STATES)),
            )
            for route, endpoint in zip(ROUTES, TABLE.endpoints, strict=True)
        ]

    def claims(self, request: Request) -> bool:
        return claims(request, request.place)

    def match(self, request: Request) -> Match[Handler]:
        return TABLE.match(request.method, request.place.below)

    def error(self, request: Connection, error: A2AError) -> Response:
        return dialect_error(request, error, request.place.agent)


# Claims


def claims(request: Request, place: Place) -> bool:
    """Say whether a request is the dialect's. An agent whose id is `v1` has the paths of its tenant there."""
    if not place.below.startswith("/v1/") or place.below == OPENAI_ALIAS or place.agent in ("", VERSION_SEGMENT):
        return False
    return is_dialect(request) and (
        bool(version_of(request)) or TABLE.match(request.method, place.below) is not NOTHING
    )


def is_dialect(request: Request) -> bool:
    """Say whether a request asks for A2A 1.0, or for no version and an extension of the dialect."""
    version = version_of(request)
    if version:
        return version == SUPPORTED_VERSION or version.startswith(SUPPORTED_VERSION + ".")
    named = [uri for header in EXTENSION_HEADERS for uri in request.header_list(header)]
    return any(uri.lower().startswith(EXTENSIONS) for uri in named)


# Translation


def large_at_once(body: bytes, *limits: int) -> bytes:
    """Do the same for a large message, and convert it. Runs in a worker process."""
    return from_json(at_once(body), *limits)


def at_once(body: bytes) -> bytes:
    """Add `returnImmediately` to a request that does not set it. A body that cannot be read stays as it is."""
    read = decoder(dict[str, Raw])
    try:
        fields = read(body)
        configuration = fields.get("configuration", Raw(b"null"))
        settings = {} if bytes(configuration) == b"null" else read(bytes(configuration))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    said = [settings.pop(name) for name in ("returnImmediately", "return_immediately") if name in settings]
    if any(bytes(value) != b"null" for value in said):
        return body
    return encode({**fields, "configuration": {**settings, "returnImmediately": True}})


def translated(query: dict[str, str]) -> dict[str, str]:
    """Translate the query of ListTasks into A2A's names."""
    found = {name: value for name, value in query.items() if name not in QUERY}
    for name, ours in QUERY.items():
        value = query.get(name, "")
        if not value:
            continue
        if ours in query:
            raise InvalidParams(f"{name} and {ours} are the same: send one of them", field=name)
        found[ours] = _state(value) if name == "state" else value
    return found


def _state(value: str) -> str:
    word = value.lower().removeprefix("task_state_").replace("-", "_")
    if word not in STATES:
        raise InvalidParams(f"state: {value[:80]!r} is not one of {', '.join(STATES)}", field="state")
    return STATES[word]


# Errors


def dialect_error(request: Connection, error: A2AError, agent: str) -> Response:
    """Put an error into A2A's form with the members of the dialect beside it, which make it a problem of RFC 9457."""
    traced = _TRACEPARENT.fullmatch(request.header(b"traceparent").strip())
    more: dict[str, object] = {
        "type": "about:blank",
        "title": error.title,
        "status": error.http,
        "detail": error.message,
        "code": code_of(error),
        "trace_id": traced[1] if traced else uuid4().hex,
        "instance_id": agent,
    }
    return rest_error(request, error, more)


def code_of(error: A2AError) -> str:
    if error.reason == "TASK_NOT_FOUND" and "configId" in (error.metadata or {}):
        return "push.config_not_found"
    if error.reason == "INVALID_PARAMS" and error.field in ("url", f"{INLINE}url"):
        return "push.invalid_url"
    return CODES.get(error.reason, error.reason.lower())
