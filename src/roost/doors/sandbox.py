"""The paths of agentic-sandbox's v2 below an agent's `/v1/`: A2A 1.0 by other names, see docs/sandbox-dialect.md.

Each is an alias: what the query calls otherwise and what is otherwise by default is translated, then the handler of the
HTTP+JSON binding answers. A2A 0.3 has paths below `/v1/` too; `claims` says whose a request is.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import msgspec
from msgspec import Raw

from roost.doors import rest
from roost.doors.errors import PROBLEM_CODES, rest_error
from roost.doors.guard import EXTENSIONS as EXTENSION_HEADERS
from roost.doors.guard import SUPPORTED_VERSION, version_of
from roost.doors.http import Request, Response
from roost.doors.openai.door import ALIAS as OPENAI_ALIAS
from roost.doors.rest import Call
from roost.doors.routes import NOTHING, Match, Route, find
from roost.engine.push_configs import INLINE
from roost.protocol.codec import decoder, encode
from roost.protocol.errors import A2AError, InvalidParams
from roost.protocol.types import TaskState

VERSION_SEGMENT = "v1"
EXTENSIONS = "https://agentic-sandbox.aiwg.io/extensions/"
QUERY = {"state": "status", "cursor": "pageToken", "limit": "pageSize"}
"""What the dialect calls the fields of ListTasks."""
STATES = {state.removeprefix("TASK_STATE_").lower(): state for state in TaskState if state != TaskState.UNSPECIFIED}
CODES = PROBLEM_CODES | {
    "INVALID_PARAMS": "request.invalid_params",
    "EXTENSION_SUPPORT_REQUIRED": "extension.required_not_activated",
    "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD": "idempotency.key_reused",
    "AGENT_NOT_FOUND": "instance.not_found",
    "TASK_MOVED": "runtime.unavailable",
}
"""How the dialect names errors; as the admin surface does where it has no name of its own."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


async def send_message(call: Call) -> None:
    body = at_once(await call.request.body(call.context.max_body))

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body}

    call.request.receive = receive
    await rest.send_message(call)


async def list_tasks(call: Call) -> None:
    query = translated(call.request.query)
    call.request.scope = {**call.request.scope, "query_string": urlencode(query).encode()}
    try:
        await rest.list_tasks(call)
    except InvalidParams as error:
        name = next((name for name, ours in QUERY.items() if ours == error.field), None)
        if name is None:
            raise
        raise InvalidParams(error.message.replace(QUERY[name], name), field=name) from None


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/messages:send", send_message, "Sandbox: send a message; the answer does not wait"),
    Route("GET", "/v1/tasks", list_tasks, "Sandbox: list the caller's tasks"),
    Route("GET", "/v1/tasks/{id}", rest.get_task, "Sandbox: read a task"),
    Route("POST", "/v1/tasks/{id}/cancel", rest.cancel_task, "Sandbox: cancel a task"),
    Route("GET", "/v1/tasks/{id}/subscribe", rest.subscribe_to_task, "Sandbox: follow a task"),
    Route("POST", "/v1/tasks/{id}/subscribe", rest.subscribe_to_task, "Sandbox: follow a task"),
    Route(
        "POST", "/v1/tasks/{taskId}/pushNotificationConfigs", rest.create_push_config, "Sandbox: set a task's webhook"
    ),
    Route(
        "GET", "/v1/tasks/{taskId}/pushNotificationConfigs", rest.list_push_configs, "Sandbox: list a task's webhooks"
    ),
    Route(
        "GET",
        "/v1/tasks/{taskId}/pushNotificationConfigs/{id}",
        rest.get_push_config,
        "Sandbox: read a task's webhook",
    ),
    Route(
        "DELETE",
        "/v1/tasks/{taskId}/pushNotificationConfigs/{id}",
        rest.delete_push_config,
        "Sandbox: delete a task's webhook",
    ),
    Route("GET", "/v1/extendedAgentCard", rest.extended_card, "Sandbox: the card as this caller may know it"),
)


# Whose a request is


def claims(request: Request, agent: str, below: str) -> bool:
    """The request is the dialect's. An agent whose id is `v1` has its tenant's paths there."""
    if not below.startswith("/v1/") or below == OPENAI_ALIAS or agent == VERSION_SEGMENT:
        return False
    return is_dialect(request) and (bool(version_of(request)) or match(request.method, below) is not NOTHING)


def is_dialect(request: Request) -> bool:
    """It says that it is of A2A 1.0; or it says no version, and names an extension of the dialect."""
    version = version_of(request)
    if version:
        return version == SUPPORTED_VERSION or version.startswith(SUPPORTED_VERSION + ".")
    named = [uri for header in EXTENSION_HEADERS for uri in request.header_list(header)]
    return any(uri.lower().startswith(EXTENSIONS) for uri in named)


def match(method: str, below: str) -> Match:
    return find(ROUTES, method, below)


# Translation


def at_once(body: bytes) -> bytes:
    """The message with `returnImmediately`, unless it says so or otherwise. What cannot be read is left as it is."""
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
    """ListTasks by its own names."""
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


def dialect_error(request: Request, error: A2AError, agent: str) -> Response:
    """A2A's error, and beside it that of the dialect: together they are a problem of RFC 9457."""
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
