"""One small client for each binding, all with the same two calls: an operation, and a stream of events.

What goes in and what comes out is the JSON of A2A 1.0, whatever the binding.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from roost.conform.connections import Http
from roost.conform.outcome import CheckFailed
from roost.conform.wire import RawEvent, RawResponse, parsed
from roost.protocol.errors import A2AError, TooManyRequests, Unauthenticated
from roost.protocol.types import AgentInterface

JSONObject = dict[str, Any]

VERSION = "A2A-Version"
EXTENSIONS = "A2A-Extensions"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class BindingError(NamedTuple):
    """An error as the binding has it."""

    code: int | str
    """JSON-RPC's code, the HTTP status, or the name of the gRPC status."""
    message: str
    details: list[JSONObject]

    @property
    def info(self) -> JSONObject | None:
        found = [one for one in self.details if isinstance(one, dict) and one.get("@type") == ERROR_INFO]
        return found[0] if found else None


class ConformResponse(NamedTuple):
    result: JSONObject | None
    problem: BindingError | None
    headers: Mapping[str, str]
    status: int
    """HTTP's; 0 on gRPC."""
    seen: str


class StreamEvent(NamedTuple):
    id: str | None
    data: JSONObject


class ConformStream(NamedTuple):
    """Either it was refused, or there are events."""

    refused: ConformResponse | None
    events: AsyncIterator[StreamEvent]
    kind: str = ""
    """Its media type."""


class ConformClient(ABC):
    """`token` is the bearer token that every call carries, unless it is told otherwise."""

    name: str

    def __init__(self, interface: AgentInterface, token: str) -> None:
        self.interface = interface
        self.token = token
        self.required: list[str] = []
        """Extensions that every call names."""

    @abstractmethod
    async def call(
        self,
        operation: str,
        params: JSONObject,
        headers: Mapping[str, str | None] | None = None,
        token: str | None = None,
    ) -> ConformResponse: ...

    @abstractmethod
    def stream(
        self,
        operation: str,
        params: JSONObject,
        headers: Mapping[str, str | None] | None = None,
        token: str | None = None,
    ) -> AbstractAsyncContextManager[ConformStream]: ...

    @abstractmethod
    def code(self, error: type[A2AError]) -> int | str:
        """Of section 5.4, in this binding."""

    async def close(self) -> None:
        return None

    def _headers(self, headers: Mapping[str, str | None] | None, token: str | None) -> dict[str, str]:
        """None takes a header away. Extensions that are required are named beside those that are asked for."""
        secret = self.token if token is None else token
        made: dict[str, str | None] = {VERSION: "1.0"}
        if secret:
            made["Authorization"] = f"Bearer {secret}"
        if self.required:
            made[EXTENSIONS] = ", ".join(self.required)
        made |= headers or {}
        asked = made.get(EXTENSIONS)
        if asked is not None:
            made[EXTENSIONS] = ", ".join(dict.fromkeys([*self.required, *asked.split(", ")]))
        return {name: value for name, value in made.items() if value is not None}


class HttpClient(ConformClient):
    def __init__(self, interface: AgentInterface, token: str, http: Http) -> None:
        super().__init__(interface, token)
        self.http = http
        self.base = interface.url

    @abstractmethod
    def request(self, operation: str, params: JSONObject) -> tuple[str, str, bytes | None]:
        """Method, URL and body."""

    @abstractmethod
    def answer(self, reply: RawResponse) -> ConformResponse: ...

    @abstractmethod
    def event(self, data: bytes) -> JSONObject: ...

    def refusal(self, reply: RawResponse) -> ConformResponse | None:
        """Of an event that is an error."""
        return None

    content_type = "application/json"

    async def call(
        self,
        operation: str,
        params: JSONObject,
        headers: Mapping[str, str | None] | None = None,
        token: str | None = None,
    ) -> ConformResponse:
        method, url, body = self.request(operation, params)
        return self.answer(await self.http.fetch(method, url, self._all(headers, token, body), body))

    @asynccontextmanager
    async def stream(
        self,
        operation: str,
        params: JSONObject,
        headers: Mapping[str, str | None] | None = None,
        token: str | None = None,
    ) -> AsyncIterator[ConformStream]:
        method, url, body = self.request(operation, params)
        sent = {"Accept": "text/event-stream", **self._all(headers, token, body)}
        async with self.http.open(method, url, sent, body) as opened:
            if opened.status == 200 and opened.kind not in ("application/json", "application/a2a+json"):
                frames = opened.events()
                first = await anext(frames, None)
                refused = self.refusal(RawResponse(opened.status, opened.headers, first.data)) if first else None
                yield ConformStream(refused, _nothing() if refused else self._events(first, frames), opened.kind)
            else:
                answer = self.answer(await opened.read())
                if answer.problem is None:
                    raise CheckFailed(answer.seen, "a stream of server-sent events, or an error")
                yield ConformStream(answer, _nothing(), opened.kind)

    async def raw(self, body: bytes, content_type: str = "", *, path: str = "") -> RawResponse:
        """A SendMessage with this body, whatever it is."""
        headers = self._headers({"Content-Type": content_type or self.content_type}, None)
        return await self.http.fetch("POST", self.place(path), headers, body)

    @abstractmethod
    def place(self, path: str) -> str: ...

    async def _events(self, first: RawEvent | None, frames: AsyncIterator[RawEvent]) -> AsyncIterator[StreamEvent]:
        if first is not None:
            yield StreamEvent(first.id, self.event(first.data))
        async for frame in frames:
            yield StreamEvent(frame.id, self.event(frame.data))

    def _all(self, headers: Mapping[str, str | None] | None, token: str | None, body: bytes | None) -> dict[str, str]:
        made = self._headers(headers, token)
        if body is not None:
            made.setdefault("Content-Type", self.content_type)
        return made


class JsonRpc(HttpClient):
    """Section 9."""

    name = "JSONRPC"

    def request(self, operation: str, params: JSONObject) -> tuple[str, str, bytes | None]:
        tenant = {"tenant": self.interface.tenant} if self.interface.tenant else {}
        body = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": operation, "params": {**tenant, **params}}
        return "POST", self.base, json.dumps(body).encode()

    def place(self, path: str) -> str:
        return self.base + path

    def answer(self, reply: RawResponse) -> ConformResponse:
        expected = "a JSON-RPC response"
        body = reply.json(expected)
        if not isinstance(body, dict) or ("result" in body) == ("error" in body):
            raise CheckFailed(reply.seen(), f"{expected} with either a result or an error")
        headers = {name.lower(): value for name, value in reply.headers.items()}
        if "result" in body:
            result = body["result"] if isinstance(body["result"], dict) else {}
            return ConformResponse(result, None, headers, reply.status, reply.seen())
        error = body["error"]
        if not isinstance(error, dict) or not isinstance(error.get("code"), int):
            raise CheckFailed(reply.seen(), "a JSON-RPC error with a code and a message")
        data = error.get("data")
        details = data if isinstance(data, list) else []
        return ConformResponse(
            None,
            BindingError(error["code"], str(error.get("message", "")), details),
            headers,
            reply.status,
            reply.seen(),
        )

    def refusal(self, reply: RawResponse) -> ConformResponse | None:
        body = parsed(reply.body, "a JSON-RPC response in an event")
        return self.answer(reply) if isinstance(body, dict) and "error" in body else None

    def event(self, data: bytes) -> JSONObject:
        body = parsed(data, "a JSON-RPC response in an event")
        if not isinstance(body, dict) or not isinstance(body.get("result"), dict):
            raise CheckFailed(body, "a JSON-RPC response with a result in every event")
        found: JSONObject = body["result"]
        return found

    def code(self, error: type[A2AError]) -> int | str:
        return error.code


ROUTES = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "ListTasks": ("GET", "/tasks"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("POST", "/tasks/{id}:subscribe"),
    "CreateTaskPushNotificationConfig": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "GetTaskPushNotificationConfig": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "ListTaskPushNotificationConfigs": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "DeleteTaskPushNotificationConfig": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "GetExtendedAgentCard": ("GET", "/extendedAgentCard"),
}


class Rest(HttpClient):
    """Section 11."""

    name = "HTTP+JSON"
    content_type = "application/a2a+json"

    def request(self, operation: str, params: JSONObject) -> tuple[str, str, bytes | None]:
        method, path = ROUTES[operation]
        values = dict(params)
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(values.pop(name)), safe=""))
        if method == "POST":
            return method, self.place(path), json.dumps(values).encode()
        query = "&".join(f"{quote(name)}={quote(_query(value), safe='')}" for name, value in values.items())
        return method, self.place(path) + (f"?{query}" if query else ""), None

    def place(self, path: str) -> str:
        tenant = f"/{quote(self.interface.tenant, safe='')}" if self.interface.tenant else ""
        return self.base.rstrip("/") + tenant + (path or "/message:send")

    def answer(self, reply: RawResponse) -> ConformResponse:
        headers = {name.lower(): value for name, value in reply.headers.items()}
        if 200 <= reply.status < 300:
            body = reply.json("an answer") if reply.body else {}
            if isinstance(body, dict) and isinstance(body.get("error"), dict) and "code" in body["error"]:
                raise CheckFailed(reply.seen(), "an error with its own HTTP status, not with a status of success")
            return ConformResponse(body if isinstance(body, dict) else {}, None, headers, reply.status, reply.seen())
        try:
            error = json.loads(reply.body)["error"]
            details = error.get("details")
            problem = BindingError(
                reply.status, str(error.get("message", "")), details if isinstance(details, list) else []
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            problem = BindingError(reply.status, "", [])
        return ConformResponse(None, problem, headers, reply.status, reply.seen())

    def event(self, data: bytes) -> JSONObject:
        body = parsed(data, "a StreamResponse in an event")
        if not isinstance(body, dict):
            raise CheckFailed(body, "a StreamResponse in every event")
        return body

    def code(self, error: type[A2AError]) -> int | str:
        return error.http


def limited(client: ConformClient, answer: ConformResponse) -> bool:
    """Whether the host takes no more for now."""
    code = None if answer.problem is None else answer.problem.code
    return answer.status == 429 or code == client.code(TooManyRequests)


def unauthenticated(client: ConformClient, answer: ConformResponse) -> bool:
    return answer.status == 401 or (answer.problem is not None and answer.problem.code == client.code(Unauthenticated))


def _query(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


async def _nothing() -> AsyncIterator[StreamEvent]:
    return
    yield
