"""Both bindings spoken by hand: what a client would send, byte for byte, and what an error must look like."""

from __future__ import annotations

import itertools
import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import PATIENCE_S, eventually

VERSION = {"A2A-Version": "1.0"}
KEEP_ALIVE = b": keep-alive\n"

ERRORS: dict[str, tuple[int, str, int, int]] = {
    # Specification 1.0.1, section 5.4: HTTP status, gRPC status, JSON-RPC code; and the status of its HTTP answer.
    "TASK_NOT_FOUND": (404, "NOT_FOUND", -32001, 200),
    "TASK_NOT_CANCELABLE": (400, "FAILED_PRECONDITION", -32002, 200),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (400, "FAILED_PRECONDITION", -32003, 200),
    "UNSUPPORTED_OPERATION": (400, "FAILED_PRECONDITION", -32004, 200),
    "CONTENT_TYPE_NOT_SUPPORTED": (400, "INVALID_ARGUMENT", -32005, 200),
    "EXTENSION_SUPPORT_REQUIRED": (400, "FAILED_PRECONDITION", -32008, 200),
    "VERSION_NOT_SUPPORTED": (400, "FAILED_PRECONDITION", -32009, 200),
    # Section 9.5
    "INVALID_JSON": (400, "INVALID_ARGUMENT", -32700, 200),
    "INVALID_REQUEST": (400, "INVALID_ARGUMENT", -32600, 200),
    "METHOD_NOT_FOUND": (404, "NOT_FOUND", -32601, 200),
    "INVALID_PARAMS": (400, "INVALID_ARGUMENT", -32602, 200),
    # The host's own: the call reached no method, and HTTP says so on both bindings.
    "AGENT_NOT_FOUND": (404, "NOT_FOUND", -32020, 404),
    "ROUTE_NOT_FOUND": (404, "NOT_FOUND", -32021, 404),
    "METHOD_NOT_ALLOWED": (405, "UNIMPLEMENTED", -32022, 405),
    "FORBIDDEN": (403, "PERMISSION_DENIED", -32023, 403),
    "UNAUTHENTICATED": (401, "UNAUTHENTICATED", -32025, 401),
    "PAYLOAD_TOO_LARGE": (413, "RESOURCE_EXHAUSTED", -32024, 413),
    "TOO_MANY_REQUESTS": (429, "RESOURCE_EXHAUSTED", -32029, 429),
    "UNAVAILABLE": (503, "UNAVAILABLE", -32030, 503),
}

T = TypeVar("T")

_numbers = itertools.count(1)


class Problem(NamedTuple):
    """An error in either form, after its form was checked."""

    reason: str
    message: str
    fields: list[str]
    metadata: dict[str, str]
    id: Any


class Frame(NamedTuple):
    """One server-sent event."""

    id: int | None
    data: dict[str, Any]


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}], **more}


def sending(text: str = "hello", *, configuration: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """SendMessageRequest; `more` goes into the message."""
    body: dict[str, Any] = {"message": message(text, **more)}
    return body if configuration is None else {**body, "configuration": configuration}


class Door(ABC):
    """One binding. `call` sends and returns the HTTP answer, `ok` the result, `refused` the error."""

    name: str

    def __init__(self, http: httpx.Client, base: str) -> None:
        self.http = http
        self.base = base

    @abstractmethod
    def request(self, operation: str, params: Mapping[str, Any], agent: str = "hello") -> httpx.Request: ...

    @abstractmethod
    def raw(self, body: bytes, agent: str = "hello", path: str = "") -> httpx.Request:
        """A request to send a message, with this body."""

    @abstractmethod
    def result(self, response: httpx.Response) -> dict[str, Any]: ...

    @abstractmethod
    def unwrap(self, data: dict[str, Any]) -> dict[str, Any]:
        """The StreamResponse of a server-sent event."""

    @staticmethod
    @abstractmethod
    def problem(response: httpx.Response) -> Problem: ...

    def call(
        self,
        operation: str,
        params: Mapping[str, Any],
        agent: str = "hello",
        headers: Mapping[str, str | None] | None = None,
    ) -> httpx.Response:
        return self.http.send(changed(self.request(operation, params, agent), headers))

    def ok(
        self,
        operation: str,
        params: Mapping[str, Any],
        agent: str = "hello",
        headers: Mapping[str, str | None] | None = None,
    ) -> dict[str, Any]:
        response = self.call(operation, params, agent, headers)
        assert response.status_code == 200, response.text
        return self.result(response)

    def refused(
        self,
        operation: str,
        params: Mapping[str, Any],
        agent: str = "hello",
        headers: Mapping[str, str | None] | None = None,
    ) -> Problem:
        return self.refuses(changed(self.request(operation, params, agent), headers))

    def refuses(self, request: httpx.Request) -> Problem:
        """The error, in the binding's own form, and not one entry was written."""
        before = entries(self.http, self.base)
        found = self.problem(self.http.send(request))
        assert entries(self.http, self.base) == before
        return found

    def task(self, text: str = "hello", agent: str = "hello", **more: Any) -> dict[str, Any]:
        """A new task, as it is when it ends or pauses."""
        found: dict[str, Any] = self.ok("SendMessage", sending(text, **more), agent)["task"]
        return found

    def begin(self, text: str, agent: str, **more: Any) -> dict[str, Any]:
        """A new task that goes on."""
        params = sending(text, configuration={"returnImmediately": True}, **more)
        found: dict[str, Any] = self.ok("SendMessage", params, agent)["task"]
        return found

    def get(self, task_id: str, agent: str = "hello") -> dict[str, Any]:
        return self.ok("GetTask", {"id": task_id}, agent)

    def until(self, task_id: str, agent: str, *states: str) -> dict[str, Any]:
        """The task, once it is in one of the states."""

        def settled() -> dict[str, Any] | None:
            task = self.get(task_id, agent)
            return task if task["status"]["state"].removeprefix("TASK_STATE_") in states else None

        return eventually(settled)

    @contextmanager
    def open(
        self,
        operation: str,
        params: Mapping[str, Any],
        agent: str,
        headers: Mapping[str, str | None] | None = None,
    ) -> Iterator[Iterator[Frame]]:
        """The frames of a stream, as they come."""
        request = changed(self.request(operation, params, agent), headers)
        response = self.http.send(request, stream=True)
        try:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"] == "text/event-stream"
            yield (Frame(frame.id, self.unwrap(frame.data)) for frame in frames(response.iter_raw()))
        finally:
            response.close()

    def stream(
        self,
        operation: str,
        params: Mapping[str, Any],
        agent: str,
        headers: Mapping[str, str | None] | None = None,
    ) -> list[Frame]:
        """All frames of a stream that ends by itself."""
        with self.open(operation, params, agent, headers) as found:
            return list(found)


class Rest(Door):
    name = "HTTP+JSON"

    def request(self, operation: str, params: Mapping[str, Any], agent: str = "hello") -> httpx.Request:
        values = dict(params)
        method, path, in_body = {
            "SendMessage": ("POST", "/message:send", True),
            "SendStreamingMessage": ("POST", "/message:stream", True),
            "GetTask": ("GET", "/tasks/{id}", False),
            "ListTasks": ("GET", "/tasks", False),
            "CancelTask": ("POST", "/tasks/{id}:cancel", True),
            "SubscribeToTask": ("POST", "/tasks/{id}:subscribe", True),
            "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs", True),
            "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}", False),
            "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs", False),
            "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}", False),
            "GetExtendedAgentCard": ("GET", "/extendedAgentCard", False),
        }[operation]
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(values.pop(name)), safe=""))
        url = f"{self.base}/agents/{agent}{path}"
        if in_body:
            return self.http.build_request(method, url, json=values, headers=VERSION)
        query = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        return self.http.build_request(method, url, params=query, headers=VERSION)

    def raw(self, body: bytes, agent: str = "hello", path: str = "/message:send") -> httpx.Request:
        headers = {**VERSION, "Content-Type": "application/a2a+json"}
        url = f"{self.base}/agents/{agent}{path or '/message:send'}"
        return self.http.build_request("POST", url, content=body, headers=headers)

    def result(self, response: httpx.Response) -> dict[str, Any]:
        assert response.headers["content-type"] == "application/a2a+json"
        found: dict[str, Any] = response.json()
        return found

    def unwrap(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    @staticmethod
    def problem(response: httpx.Response) -> Problem:
        """google.rpc.Status as JSON, with an ErrorInfo (section 11.6)."""
        assert response.headers["content-type"] == "application/a2a+json", response.text
        body = response.json()
        assert body.keys() == {"error"}
        error = body["error"]
        assert error.keys() == {"code", "status", "message", "details"}
        found = _problem(error["message"], error["details"], None)
        http, grpc, _, _ = ERRORS[found.reason]
        assert (response.status_code, error["code"], error["status"]) == (http, http, grpc)
        return found


class Rpc(Door):
    name = "JSONRPC"

    def request(self, operation: str, params: Mapping[str, Any], agent: str = "hello") -> httpx.Request:
        body = {"jsonrpc": "2.0", "id": next(_numbers), "method": operation, "params": params}
        return self.http.build_request("POST", f"{self.base}/agents/{agent}", json=body, headers=VERSION)

    def raw(self, body: bytes, agent: str = "hello", path: str = "") -> httpx.Request:
        headers = {**VERSION, "Content-Type": "application/json"}
        return self.http.build_request("POST", f"{self.base}/agents/{agent}{path}", content=body, headers=headers)

    def result(self, response: httpx.Response) -> dict[str, Any]:
        assert response.headers["content-type"] == "application/json"
        body = response.json()
        assert body.keys() == {"jsonrpc", "id", "result"}, body
        assert (body["jsonrpc"], body["id"]) == ("2.0", json.loads(response.request.content)["id"])
        found: dict[str, Any] = body["result"]
        return found

    def unwrap(self, data: dict[str, Any]) -> dict[str, Any]:
        assert data.keys() == {"jsonrpc", "id", "result"}, data
        assert data["jsonrpc"] == "2.0"
        found: dict[str, Any] = data["result"]
        return found

    @staticmethod
    def problem(response: httpx.Response) -> Problem:
        """A JSON-RPC error whose data is a list of typed objects (section 9.5)."""
        assert response.headers["content-type"] == "application/json", response.text
        body = response.json()
        assert body.keys() == {"jsonrpc", "id", "error"}, body
        assert body["jsonrpc"] == "2.0"
        error = body["error"]
        assert error.keys() == {"code", "message", "data"}
        found = _problem(error["message"], error["data"], body["id"])
        _, _, code, status = ERRORS[found.reason]
        assert (response.status_code, error["code"]) == (status, code)
        return found


def _problem(text: str, details: list[dict[str, Any]], request_id: Any) -> Problem:
    assert isinstance(text, str)
    assert text
    assert all(detail["@type"].startswith("type.googleapis.com/google.rpc.") for detail in details)
    (info,) = [detail for detail in details if detail["@type"].endswith(".ErrorInfo")]
    _, _, code, _ = ERRORS[info["reason"]]
    assert info["domain"] == ("roost" if -32099 <= code <= -32020 else "a2a-protocol.org")
    violations = [
        violation
        for detail in details
        if detail["@type"].endswith(".BadRequest")
        for violation in detail["fieldViolations"]
    ]
    assert all(violation["description"] for violation in violations)
    fields = [violation["field"] for violation in violations]
    return Problem(info["reason"], text, fields, info.get("metadata", {}), request_id)


def changed(request: httpx.Request, headers: Mapping[str, str | None] | None) -> httpx.Request:
    """Return the request with changed headers; None removes a header."""
    for name, value in (headers or {}).items():
        if value is None:
            request.headers.pop(name, None)
        else:
            request.headers[name] = value
    return request


def frames(chunks: Iterator[bytes]) -> Iterator[Frame]:
    """Server-sent events as this host writes them: `id` and `data` lines, LF, comments between."""
    rest = b""
    for chunk in chunks:
        assert b"\r" not in chunk
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            comments = block.count(KEEP_ALIVE)
            assert comments < 2, "nothing happened between two signs of life"
            lines = dict(line.split(b": ", 1) for line in block.removeprefix(KEEP_ALIVE).split(b"\n"))
            assert lines.keys() <= {b"id", b"data"}, block
            yield Frame(int(lines[b"id"]) if b"id" in lines else None, json.loads(lines[b"data"]))
    assert rest in (b"", KEEP_ALIVE)


@contextmanager
def unread(request: httpx.Request) -> Iterator[Callable[[], list[Frame]]]:
    """A client that has sent its request and reads nothing of the stream until it is told to."""
    lines = [f"{request.method} {request.url.raw_path.decode()} HTTP/1.1", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name != "connection"]

    def read() -> list[Frame]:
        pieces = []
        while piece := client.recv(1 << 20):
            pieces.append(piece)
        return list(frames(iter(_chunks(b"".join(pieces)))))

    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE_S)
        client.connect((request.url.host, request.url.port))
        client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + request.content)
        yield read


def _chunks(answer: bytes) -> Iterator[bytes]:
    """Decode the body of a chunked response."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"transfer-encoding: chunked" in head.lower()
    at = 0
    while at < len(rest):
        end = rest.index(b"\r\n", at)
        length = int(rest[at:end], 16)
        yield rest[end + 2 : end + 2 + length]
        at = end + 2 + length + 2


def metrics(http: httpx.Client, base: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series of /metrics, as Prometheus would read it."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(http.get(f"{base}/metrics").text)
        for sample in family.samples
    }


def entries(http: httpx.Client, base: str) -> float:
    """How many journal entries were committed."""
    return metrics(http, base)["roost_entries_total", frozenset()]


def streams(http: httpx.Client, base: str) -> float:
    """How many streams are open."""
    return metrics(http, base)["roost_open_streams", frozenset()]


def text_of(task: Mapping[str, Any]) -> str:
    """The text of a task's artifacts."""
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def kind_of(data: Mapping[str, Any]) -> str:
    """Describe a StreamResponse in a word: its member, or the state of a status."""
    (kind,) = data
    return data[kind]["status"]["state"].removeprefix("TASK_STATE_") if kind == "statusUpdate" else kind
