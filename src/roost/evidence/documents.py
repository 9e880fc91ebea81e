"""Recognises which A2A document a JSON value is, determines its version, and selects the schema that maps it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roost.evidence import schemas_03 as v03
from roost.evidence.json_input import LargeNumber
from roost.evidence.pointers import JsonPath, NamedPointers, child
from roost.evidence.schema import (
    ABSENT,
    NOTHING,
    NUMBER,
    TEXT,
    AnySchema,
    ListSchema,
    MemberSchema,
    ObjectSchema,
    Schema,
    ValueSchema,
    object_schema,
    schema_of,
)
from roost.protocol import types as v10
from roost.protocol.operations import BY_NAME

V03, V10 = "0.3", "1.0"

MEMBERS = {
    "task": "task",
    "message": "message",
    "statusUpdate": "statusUpdate",
    "status_update": "statusUpdate",
    "artifactUpdate": "artifactUpdate",
    "artifact_update": "artifactUpdate",
}
"""The members of a StreamResponse, in both spellings."""
KINDS_03 = {
    "message": "message",
    "task": "task",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
"""The member of a StreamResponse for each `kind` of A2A 0.3."""
SCHEMAS: dict[tuple[str, str], Schema] = {
    (V10, "message"): schema_of(v10.Message),
    (V10, "task"): schema_of(v10.Task),
    (V10, "statusUpdate"): schema_of(v10.TaskStatusUpdateEvent),
    (V10, "artifactUpdate"): schema_of(v10.TaskArtifactUpdateEvent),
    (V10, "card"): schema_of(v10.AgentCard),
    (V10, "send"): schema_of(v10.SendMessageRequest),
    (V03, "message"): v03.MESSAGE,
    (V03, "task"): v03.TASK,
    (V03, "statusUpdate"): v03.STATUS_UPDATE,
    (V03, "artifactUpdate"): v03.ARTIFACT_UPDATE,
    (V03, "card"): v03.CARD,
    (V03, "send"): v03.SEND,
}
UNKNOWN = "unknown"
"""The version of a document that has the same form in all versions."""

_SEND_MEMBERS = ("configuration", "metadata", "tenant")
_KIND_OF_MEMBER = {member: kind for kind, member in KINDS_03.items()}
_ENVELOPE = object_schema(jsonrpc=TEXT, id=ValueSchema((str, int, float, LargeNumber)), method=TEXT)
_ERROR = object_schema(code=NUMBER, message=TEXT, status=TEXT, data=AnySchema(), details=AnySchema())


class Document(NamedTuple):
    name: str
    version: str | None
    """None if the version matters and the document does not show it."""
    schema: Callable[[str], Schema]
    """Returns the schema for a version. It maps the whole input to the content."""
    card: Any = None
    """The agent card in the input, unchanged."""
    extended: bool = False
    """Whether the document is the response of the operation that returns extended cards."""
    required: str = ""
    """The member that the document must have."""
    task_field: str = ""
    """The field that holds the task id, in a request about a task."""
    members: tuple[str, ...] = ()
    """The members that a StreamResponse has. Exactly one is valid."""


class NamedSchema(NamedTuple):
    """Puts a value under a name in the content."""

    name: str
    schema: Schema

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        mapped = self.schema.apply(value, at, unmapped)
        return {} if mapped is ABSENT else {self.name: mapped}


class RpcSchema(NamedTuple):
    """Maps a JSON-RPC envelope around one member."""

    member: str
    schema: Schema

    def apply(self, value: Any, at: JsonPath, unmapped: NamedPointers) -> Any:
        envelope = {name: item for name, item in value.items() if name in _ENVELOPE.members}
        content = {"rpc": _ENVELOPE.apply(envelope, at, unmapped)}
        for name, item in value.items():
            if name == self.member:
                content |= self.schema.apply(item, child(at, name), unmapped)
            elif name not in envelope:
                NOTHING.apply(item, child(at, name), unmapped)
        return content


def recognize(value: Any) -> Document | None:
    """Return None if the value is not an A2A document."""
    if not isinstance(value, dict):
        return None
    if "jsonrpc" not in value:
        return _without_envelope(value)
    if "method" in value:
        return _request(value["method"])
    if isinstance(value.get("error"), dict):
        return Document("jsonrpc-response", UNKNOWN, lambda _: RpcSchema("error", NamedSchema("error", _ERROR)))
    return _response(value["result"]) if "result" in value else None


def _without_envelope(value: Mapping[str, Any]) -> Document | None:
    member = KINDS_03.get(value["kind"]) if isinstance(value.get("kind"), str) else _bare_member(value)
    if member is not None:
        return Document(
            _KIND_OF_MEMBER[member],
            _version_of(member, value),
            lambda v: NamedSchema(member, SCHEMAS[v, member]),
            required=member,
        )
    wrapped = next((name for name in value if name in MEMBERS and isinstance(value[name], dict)), None)
    if wrapped is not None:
        return _wrapped(MEMBERS[wrapped], value, value[wrapped])
    if isinstance(value.get("error"), dict):
        return Document("error", UNKNOWN, lambda _: object_schema(error=_ERROR))
    if _is_card(value):
        version = V10 if "supportedInterfaces" in value or "supported_interfaces" in value else V03
        return Document("agent-card", version, lambda v: NamedSchema("card", SCHEMAS[v, "card"]), card=value)
    if isinstance(value.get("tasks"), list):
        return Document("task-list", V10, lambda _: NamedSchema("list", schema_of(v10.ListTasksResponse)))
    push = _push_config(value)
    return push and Document("push-config", push[0], lambda _: NamedSchema("pushConfig", push[1]), task_field="taskId")


def _wrapped(member: str, value: Mapping[str, Any], inner: Mapping[str, Any]) -> Document:
    """Return a StreamResponse, or a request to send a message."""
    version = _version_of(member, inner)
    by_user = inner.get("role") in ("user", "ROLE_USER")
    if member == "message" and (by_user or any(name in value for name in _SEND_MEMBERS)):
        return Document(
            "send-request", version, lambda v: NamedSchema("request", SCHEMAS[v, "send"]), required="message"
        )
    members = MEMBERS.items()
    return Document(
        "stream-response",
        version,
        lambda v: ObjectSchema({name: MemberSchema(target, SCHEMAS[v, target]) for name, target in members}),
        members=tuple(sorted({target for name, target in members if value.get(name) is not None})),
    )


def _request(method: Any) -> Document | None:
    params: Schema
    if not isinstance(method, str):
        return None
    if method in v03.METHODS:
        version, params = V03, v03.METHODS[method]
    elif method in BY_NAME:
        request: Any = BY_NAME[method].request
        version, params = V10, schema_of(request)
    else:
        return None
    assert isinstance(params, ObjectSchema)
    task_field = next((name for name in ("taskId", "id") if name in params.members), "")
    required = "message" if params in (SCHEMAS[V03, "send"], SCHEMAS[V10, "send"]) else ""
    return Document(
        "jsonrpc-request",
        version,
        lambda _: RpcSchema("params", NamedSchema("request", params)),
        required=required,
        task_field=task_field,
    )


def _response(result: Any) -> Document | None:
    inner = _without_envelope(result) if isinstance(result, dict) else None
    if inner is not None and inner.name not in ("error", "send-request", "push-config"):
        schema = inner.schema
        card = inner.card
        return Document(
            "jsonrpc-response",
            inner.version,
            lambda v: RpcSchema("result", schema(v)),
            card=card,
            extended=card is not None,
            members=inner.members,
        )
    other = _other_result(result)
    return other and Document(
        "jsonrpc-response", other[0], lambda _: RpcSchema("result", NamedSchema("result", other[1]))
    )


def _other_result(result: Any) -> tuple[str, Schema] | None:
    if result is None or result == {}:
        return UNKNOWN, AnySchema()
    if isinstance(result, list) and all(isinstance(item, dict) and "pushNotificationConfig" in item for item in result):
        return V03, ListSchema(v03.PUSH)
    if not isinstance(result, dict):
        return None
    return _push_config(result) or ((V10, schema_of(v10.TaskPushNotificationConfig)) if "url" in result else None)


def _push_config(value: Mapping[str, Any]) -> tuple[str, Schema] | None:
    """Recognise the configuration of a webhook, or a list of them. A new configuration may consist of a URL alone."""
    if "pushNotificationConfig" in value:
        return V03, v03.PUSH
    if isinstance(value.get("configs"), list):
        return V10, schema_of(v10.ListTaskPushNotificationConfigsResponse)
    typical = any(name in value for name in ("taskId", "task_id", "token", "authentication"))
    is_push = isinstance(value.get("url"), str) and (typical or value.keys() <= {"id", "tenant", "url"})
    return (V10, schema_of(v10.TaskPushNotificationConfig)) if is_push else None


def _bare_member(value: Mapping[str, Any]) -> str | None:
    """Return the member of a StreamResponse that this value is, without the object around it."""

    def has(*names: str) -> bool:
        return any(name in value for name in names)

    if has("messageId", "message_id") or (has("role") and has("parts")):
        return "message"
    if has("taskId", "task_id") and isinstance(value.get("status"), dict):
        return "statusUpdate"
    if has("taskId", "task_id") and isinstance(value.get("artifact"), dict):
        return "artifactUpdate"
    if has("id") and isinstance(value.get("status"), dict):
        return "task"
    return None


def _is_card(value: Mapping[str, Any]) -> bool:
    typical = ("supportedInterfaces", "supported_interfaces", "skills", "capabilities", "protocolVersion")
    return "name" in value and any(name in value for name in typical)


def _version_of(member: str, value: Mapping[str, Any]) -> str | None:
    """Determine the version by names and values that only one version has. None if there are none."""
    if value.get("kind") == _KIND_OF_MEMBER[member]:
        return V03
    status = value.get("status")
    enum = value.get("role") if member == "message" else status.get("state") if isinstance(status, dict) else None
    if isinstance(enum, str):
        if enum in v03.ROLES or enum in v03.STATES:
            return V03
        if enum.startswith(("ROLE_", "TASK_STATE_")):
            return V10
    artifact = value.get("artifact")
    parts = artifact.get("parts") if isinstance(artifact, dict) else value.get("parts")
    objects = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    if any("kind" in part for part in objects):
        return V03
    return V10 if objects else None
