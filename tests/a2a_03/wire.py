"""A2A 0.3 spoken by hand, as its clients send it, and the form that its errors must have."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from tests.doors.wire import ERRORS, Frame, entries, frames

NAMES = {
    "TASK_NOT_FOUND": "TaskNotFoundError",
    "TASK_NOT_CANCELABLE": "TaskNotCancelableError",
    "UNSUPPORTED_OPERATION": "UnsupportedOperationError",
    "CONTENT_TYPE_NOT_SUPPORTED": "ContentTypeNotSupportedError",
    "EXTENSION_SUPPORT_REQUIRED": "ExtensionSupportRequiredError",
    "VERSION_NOT_SUPPORTED": "VersionNotSupportedError",
    "INVALID_JSON": "JSONParseError",
    "INVALID_PARAMS": "InvalidParamsError",
    "AGENT_NOT_FOUND": "AgentNotFoundError",
    "ROUTE_NOT_FOUND": "RouteNotFoundError",
    "METHOD_NOT_ALLOWED": "MethodNotAllowedError",
    "FORBIDDEN": "ForbiddenError",
    "UNAUTHENTICATED": "UnauthenticatedError",
    "PAYLOAD_TOO_LARGE": "PayloadTooLargeError",
    "TOO_MANY_REQUESTS": "TooManyRequestsError",
}


class Problem(NamedTuple):
    reason: str
    message: str
    field: str


def message(text: str = "hello", **more: Any) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"kind": "message", "messageId": str(uuid.uuid4()), "role": "user", "parts": parts, **more}


def sending(text: str = "hello", *, blocking: bool = True, **more: Any) -> dict[str, Any]:
    return {"message": message(text, **more), "configuration": {"blocking": blocking}}


def proto_sending(text: str = "hello", *, blocking: bool = True, **more: Any) -> dict[str, Any]:
    """The JSON of a protobuf message, which REST has."""
    said = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "content": [{"text": text}], **more}
    return {"message": said, "configuration": {"blocking": blocking}}


def problem(response: httpx.Response) -> Problem:
    """The error in the binding's own form."""
    assert response.headers["content-type"] == "application/json", response.text
    body = response.json()
    if "jsonrpc" in body:
        assert body.keys() == {"jsonrpc", "id", "error"}
        error = body["error"]
        assert error.keys() == {"code", "message", "data"}
    else:
        error = body
        assert error.keys() == {"type", "code", "message", "data"}, body
    (info,) = [detail for detail in error["data"] if detail["@type"].endswith(".ErrorInfo")]
    http, _, code, rpc_http = ERRORS[info["reason"]]
    assert error["code"] == code
    if "jsonrpc" in body:
        assert response.status_code == rpc_http
    else:
        assert (response.status_code, error["type"]) == (http, NAMES[info["reason"]])
    if response.status_code == 401:
        assert response.headers["www-authenticate"]
    fields = [
        violation["field"]
        for detail in error["data"]
        if detail["@type"].endswith(".BadRequest")
        for violation in detail["fieldViolations"]
    ]
    return Problem(info["reason"], error["message"], fields[0] if fields else "")


class Old:
    """A client that says no version, or another with `headers`."""

    def __init__(self, http: httpx.Client, base: str) -> None:
        self.http = http
        self.base = base

    def post(
        self,
        method: str,
        params: Any,
        agent: str = "hello",
        headers: Mapping[str, str] | None = None,
        request_id: Any = "r-1",
    ) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        return self.http.post(f"{self.base}/agents/{agent}", json=body, headers=headers)

    def ok(self, method: str, params: Any, agent: str = "hello", headers: Mapping[str, str] | None = None) -> Any:
        response = self.post(method, params, agent, headers)
        assert response.status_code == 200, response.text
        body = response.json()
        assert body.keys() == {"jsonrpc", "id", "result"}, body
        assert (body["jsonrpc"], body["id"]) == ("2.0", "r-1")
        return body["result"]

    def rest(self, method: str, path: str, agent: str = "hello", **more: Any) -> httpx.Response:
        return self.http.request(method, f"{self.base}/agents/{agent}/v1/{path}", **more)

    def rest_ok(self, method: str, path: str, agent: str = "hello", **more: Any) -> Any:
        response = self.rest(method, path, agent, **more)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        return response.json()

    def unchanged(self) -> Any:
        """Nothing is written while the block runs."""
        return _unchanged(self)

    def task(self, text: str = "hello", agent: str = "hello", **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.ok("message/send", sending(text, **more), agent)
        assert found["kind"] == "task"
        return found

    @contextmanager
    def stream(
        self, method: str, params: Any, agent: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[Iterator[Frame]]:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        with self.http.stream("POST", f"{self.base}/agents/{agent}", json=body, headers=headers) as response:
            yield _frames(response, rpc=True)

    @contextmanager
    def rest_stream(self, path: str, agent: str, body: Any = None, **headers: str) -> Iterator[Iterator[Frame]]:
        given: dict[str, Any] = {} if body is None else {"json": body}
        url = f"{self.base}/agents/{agent}/v1/{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with self.http.stream("POST", url, headers=named, **given) as response:
            yield _frames(response, rpc=False)


@contextmanager
def _unchanged(old: Old) -> Iterator[None]:
    before = entries(old.http, old.base)
    yield
    assert entries(old.http, old.base) == before


def _frames(response: httpx.Response, *, rpc: bool) -> Iterator[Frame]:
    assert response.status_code == 200, response.read()
    assert response.headers["content-type"] == "text/event-stream"
    for frame in frames(response.iter_raw()):
        if rpc:
            assert frame.data.keys() == {"jsonrpc", "id", "result"}, frame
            assert (frame.data["jsonrpc"], frame.data["id"]) == ("2.0", 7)
        yield Frame(frame.id, frame.data["result"]) if rpc else frame


def text_of(task: Mapping[str, Any]) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def words(found: list[Frame]) -> str:
    """The text of the artifacts in a stream, in either form."""
    events = [frame.data.get("artifactUpdate", frame.data) for frame in found]
    return "".join(part["text"] for event in events if "artifact" in event for part in event["artifact"]["parts"])
