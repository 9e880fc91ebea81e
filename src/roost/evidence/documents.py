"""Which document of A2A a value is, of which version, and how it is mapped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roost.evidence import shapes_03 as v03
from roost.evidence.numbers import Numeral
from roost.evidence.pointers import NamedPointers, Place, below
from roost.evidence.schema import (
    ABSENT,
    NOTHING,
    NUMBER,
    TEXT,
    Free,
    Many,
    MemberSchema,
    Node,
    ObjectSchema,
    ValueSchema,
    node_of,
    shape,
)
from roost.protocol import types as v10

V03, V10 = "0.3", "1.0"

METHODS_10: dict[str, Any] = {
    "SendMessage": v10.SendMessageRequest,
    "SendStreamingMessage": v10.SendMessageRequest,
    "GetTask": v10.GetTaskRequest,
    "ListTasks": v10.ListTasksRequest,
    "CancelTask": v10.CancelTaskRequest,
    "SubscribeToTask": v10.SubscribeToTaskRequest,
    "CreateTaskPushNotificationConfig": v10.TaskPushNotificationConfig,
    "GetTaskPushNotificationConfig": v10.GetTaskPushNotificationConfigRequest,
    "ListTaskPushNotificationConfigs": v10.ListTaskPushNotificationConfigsRequest,
    "DeleteTaskPushNotificationConfig": v10.DeleteTaskPushNotificationConfigRequest,
    "GetExtendedAgentCard": v10.GetExtendedAgentCardRequest,
}
MEMBERS = {
    "task": "task",
    "message": "message",
    "statusUpdate": "statusUpdate",
    "status_update": "statusUpdate",
    "artifactUpdate": "artifactUpdate",
    "artifact_update": "artifactUpdate",
}
"""Of a StreamResponse."""
KINDS_03 = {
    "message": "message",
    "task": "task",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
NODES: dict[tuple[str, str], Node] = {
    (V10, "message"): node_of(v10.Message),
    (V10, "task"): node_of(v10.Task),
    (V10, "statusUpdate"): node_of(v10.TaskStatusUpdateEvent),
    (V10, "artifactUpdate"): node_of(v10.TaskArtifactUpdateEvent),
    (V10, "card"): node_of(v10.AgentCard),
    (V10, "send"): node_of(v10.SendMessageRequest),
    (V03, "message"): v03.MESSAGE,
    (V03, "task"): v03.TASK,
    (V03, "statusUpdate"): v03.STATUS_UPDATE,
    (V03, "artifactUpdate"): v03.ARTIFACT_UPDATE,
    (V03, "card"): v03.CARD,
    (V03, "send"): v03.SEND,
}
UNKNOWN = "unknown"
"""A version that does not matter: the document is the same in all."""

_SEND_MEMBERS = ("configuration", "metadata", "tenant")
_DASHED = {member: kind for kind, member in KINDS_03.items()}
_HEAD = shape(jsonrpc=TEXT, id=ValueSchema((str, int, float, Numeral)), method=TEXT)
_ERROR = shape(code=NUMBER, message=TEXT, status=TEXT, data=Free(), details=Free())


class Document(NamedTuple):
    name: str
    version: str | None
    """None where it matters and the document does not tell."""
    node: Callable[[str], Node]
    """By version: takes the whole input and gives the content."""
    card: Any = None
    """The card in the input, as it is there."""
    extended: bool = False
    """It is the answer of the operation that gives extended cards."""
    needs: str = ""
    """The member that it is about."""
    task: str = ""
    """Of a request about a task: the parameter that is its id."""
    members: tuple[str, ...] = ()
    """Of a StreamResponse: which it has. One is right."""


class NamedValue(NamedTuple):
    """A value that has a name of its own in the content."""

    name: str
    node: Node

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        taken = self.node.take(value, at, unmapped)
        return {} if taken is ABSENT else {self.name: taken}


class Rpc(NamedTuple):
    """A JSON-RPC envelope around one member."""

    member: str
    node: Node

    def take(self, value: Any, at: Place, unmapped: NamedPointers) -> Any:
        head = {name: item for name, item in value.items() if name in _HEAD.members}
        content = {"rpc": _HEAD.take(head, at, unmapped)}
        for name, item in value.items():
            if name == self.member:
                content |= self.node.take(item, below(at, name), unmapped)
            elif name not in head:
                NOTHING.take(item, below(at, name), unmapped)
        return content


def recognized(value: Any) -> Document | None:
    """None for what is no document of A2A."""
    if not isinstance(value, dict):
        return None
    if "jsonrpc" not in value:
        return _plain(value)
    if "method" in value:
        return _request(value["method"])
    if isinstance(value.get("error"), dict):
        return Document("jsonrpc-response", UNKNOWN, lambda _: Rpc("error", NamedValue("error", _ERROR)))
    return _response(value["result"]) if "result" in value else None


def _plain(value: Mapping[str, Any]) -> Document | None:
    member = KINDS_03.get(value["kind"]) if isinstance(value.get("kind"), str) else _bare(value)
    if member is not None:
        return Document(
            _DASHED[member], _told(member, value), lambda v: NamedValue(member, NODES[v, member]), needs=member
        )
    wrapped = next((name for name in value if name in MEMBERS and isinstance(value[name], dict)), None)
    if wrapped is not None:
        return _wrapped(MEMBERS[wrapped], value, value[wrapped])
    if isinstance(value.get("error"), dict):
        return Document("error", UNKNOWN, lambda _: shape(error=_ERROR))
    if _is_card(value):
        version = V10 if "supportedInterfaces" in value or "supported_interfaces" in value else V03
        return Document("agent-card", version, lambda v: NamedValue("card", NODES[v, "card"]), card=value)
    if isinstance(value.get("tasks"), list):
        return Document("task-list", V10, lambda _: NamedValue("list", node_of(v10.ListTasksResponse)))
    push = _push(value)
    return push and Document("push-config", push[0], lambda _: NamedValue("pushConfig", push[1]), task="taskId")


def _wrapped(member: str, value: Mapping[str, Any], inner: Mapping[str, Any]) -> Document:
    """A StreamResponse, or a request to send a message."""
    version = _told(member, inner)
    by_user = inner.get("role") in ("user", "ROLE_USER")
    if member == "message" and (by_user or any(name in value for name in _SEND_MEMBERS)):
        return Document("send-request", version, lambda v: NamedValue("request", NODES[v, "send"]), needs="message")
    members = MEMBERS.items()
    return Document(
        "stream-response",
        version,
        lambda v: ObjectSchema({name: MemberSchema(kept, NODES[v, kept]) for name, kept in members}),
        members=tuple(sorted({kept for name, kept in members if value.get(name) is not None})),
    )


def _request(method: Any) -> Document | None:
    if not isinstance(method, str) or not (method in v03.METHODS or method in METHODS_10):
        return None
    version = V03 if method in v03.METHODS else V10
    params = v03.METHODS[method] if version == V03 else node_of(METHODS_10[method])
    assert isinstance(params, ObjectSchema)
    task = next((name for name in ("taskId", "id") if name in params.members), "")
    needs = "message" if params in (NODES[V03, "send"], NODES[V10, "send"]) else ""
    return Document(
        "jsonrpc-request", version, lambda _: Rpc("params", NamedValue("request", params)), needs=needs, task=task
    )


def _response(result: Any) -> Document | None:
    inner = _plain(result) if isinstance(result, dict) else None
    if inner is not None and inner.name not in ("error", "send-request", "push-config"):
        node = inner.node
        card = inner.card
        return Document(
            "jsonrpc-response",
            inner.version,
            lambda v: Rpc("result", node(v)),
            card=card,
            extended=card is not None,
            members=inner.members,
        )
    kept = _other_result(result)
    return kept and Document("jsonrpc-response", kept[0], lambda _: Rpc("result", NamedValue("result", kept[1])))


def _other_result(result: Any) -> tuple[str, Node] | None:
    if result is None or result == {}:
        return UNKNOWN, Free()
    if isinstance(result, list) and all(isinstance(one, dict) and "pushNotificationConfig" in one for one in result):
        return V03, Many(v03.PUSH)
    if not isinstance(result, dict):
        return None
    return _push(result) or ((V10, node_of(v10.TaskPushNotificationConfig)) if "url" in result else None)


def _push(value: Mapping[str, Any]) -> tuple[str, Node] | None:
    """The configuration of a webhook, or a list of them. One that is to be made may be no more than a URL."""
    if "pushNotificationConfig" in value:
        return V03, v03.PUSH
    if isinstance(value.get("configs"), list):
        return V10, node_of(v10.ListTaskPushNotificationConfigsResponse)
    told = any(name in value for name in ("taskId", "task_id", "token", "authentication"))
    is_push = isinstance(value.get("url"), str) and (told or value.keys() <= {"id", "tenant", "url"})
    return (V10, node_of(v10.TaskPushNotificationConfig)) if is_push else None


def _bare(value: Mapping[str, Any]) -> str | None:
    """A member of a StreamResponse without the wrapping."""

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
    marks = ("supportedInterfaces", "supported_interfaces", "skills", "capabilities", "protocolVersion")
    return "name" in value and any(name in value for name in marks)


def _told(member: str, value: Mapping[str, Any]) -> str | None:
    """The version, by the words that only one of them has."""
    if value.get("kind") == _DASHED[member]:
        return V03
    status = value.get("status")
    said = value.get("role") if member == "message" else status.get("state") if isinstance(status, dict) else None
    if isinstance(said, str):
        if said in v03.ROLES or said in v03.STATES:
            return V03
        if said.startswith(("ROLE_", "TASK_STATE_")):
            return V10
    artifact = value.get("artifact")
    parts = artifact.get("parts") if isinstance(artifact, dict) else value.get("parts")
    found = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    if any("kind" in part for part in found):
        return V03
    return V10 if found else None
