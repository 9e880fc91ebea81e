"""A2A documents as they are on the wire, and helpers that inspect events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from roost.evidence.events import EvidenceEvent

V10_MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}], "contextId": "c-1"}
V10_TASK = {
    "id": "t-1",
    "contextId": "c-1",
    "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-02-27T10:00:00.250+01:00"},
    "artifacts": [{"artifactId": "a-1", "parts": [{"raw": "aGk=", "filename": "hi", "mediaType": "text/plain"}]}],
    "history": [V10_MESSAGE],
    "metadata": {"any": {"thing": [1, 2.5, None]}},
}
V10_STATUS = {"taskId": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}}
V10_ARTIFACT = {"taskId": "t-1", "contextId": "c-1", "artifact": V10_TASK["artifacts"][0], "append": True}
V10_CARD = {
    "name": "Full",
    "description": "Does things",
    "version": "1",
    "supportedInterfaces": [{"url": "https://a.example", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    "capabilities": {"streaming": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [{"id": "s", "name": "S", "description": "s", "tags": ["x"]}],
}

V03_MESSAGE = {
    "kind": "message",
    "messageId": "m-1",
    "role": "user",
    "contextId": "c-1",
    "parts": [
        {"kind": "text", "text": "hello", "metadata": {"lang": "en"}},
        {"kind": "file", "file": {"uri": "https://a.example/x", "name": "x", "mimeType": "text/plain"}},
        {"kind": "file", "file": {"bytes": "aGk="}},
        {"kind": "data", "data": {"n": [1]}},
    ],
}
V03_TASK = {
    "kind": "task",
    "id": "t-1",
    "contextId": "c-1",
    "status": {"state": "input-required", "timestamp": "2026-02-27T10:00:00Z", "message": V03_MESSAGE},
    "artifacts": [{"artifactId": "a-1", "parts": [{"kind": "text", "text": "out"}]}],
    "history": [V03_MESSAGE],
}
V03_STATUS = {
    "kind": "status-update",
    "taskId": "t-1",
    "contextId": "c-1",
    "status": {"state": "completed"},
    "final": True,
}
V03_ARTIFACT = {
    "kind": "artifact-update",
    "taskId": "t-1",
    "contextId": "c-1",
    "artifact": V03_TASK["artifacts"][0],
    "lastChunk": True,
}
V03_CARD = {
    "protocolVersion": "0.3.0",
    "name": "Old",
    "description": "Does things",
    "url": "https://a.example",
    "version": "1",
    "capabilities": {"streaming": True, "stateTransitionHistory": False},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X"}},
    "security": [{"key": []}],
    "skills": [{"id": "s", "name": "S", "description": "s", "tags": ["x"]}],
    "supportsAuthenticatedExtendedCard": True,
}


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


def plain(event: EvidenceEvent) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event.line())
    return found


def data(event: EvidenceEvent) -> dict[str, Any]:
    found: dict[str, Any] = plain(event)["data"]
    return found


def unmapped(event: EvidenceEvent) -> list[str]:
    found = data(event)["unmapped"]
    assert found["count"] == len(found["pointers"]), "more than are named"
    return list(found["pointers"])


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the RFC 6901 pointers and values of all leaves: scalars, and empty objects and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not items or not value:
        yield at, value
        return
    for key, item in items:
        yield from leaves(item, f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}")
