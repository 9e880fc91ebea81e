"""A client for each binding over HTTP. Every client has the same two calls: one operation, and one stream of events.

Parameters and results are the JSON of A2A 1.0, whatever the binding.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from roost.conform.connections import Http
from roost.conform.outcome import CheckFailed
from roost.conform.wire import RawEvent, RawResponse, parsed
from roost.protocol.errors import A2AError, TooManyRequests, Unauthenticated
from roost.protocol.types import AgentInterface

JSONObject = dict[str, Any]
Headers = Mapping[str, str | None]
"""Headers of a request. None removes a header that the client would send."""

VERSION = "A2A-Version"
EXTENSIONS = "A2A-Extensions"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
JSON_TYPES = ("application/json", "application/a2a+json")


class BindingError(NamedTuple):
    """An error in the form of its binding."""

    code: int | str
    """The code of JSON-RPC, the HTTP status, or the name of the gRPC status."""
    message: str
    details: list[JSONObject]

    @property
    def info(self) -> JSONObject | None:
        """The google.rpc.ErrorInfo among the details."""
        found = [one for one in self.details if isinstance(one, dict) and one.get("@type") == ERROR_INFO]
        return found[0] if found else None


class ConformResponse(NamedTuple):
    """The response to an operation: a result or an error."""

    result: JSONObject | None
    error: BindingError | None
    headers: Mapping[str, str]
    """The headers, with names in lower case; empty on gRPC."""
    status: int
    """The HTTP status; 0 on gRPC."""
    seen: str
    """The response as a report shows it."""


class StreamEvent(NamedTuple):
    """An event of a stream, with the JSON of a StreamResponse."""

    id: str | None
    """The id of the server-sent event; None on gRPC."""
    data: JSONObject


class ConformStream(NamedTuple):
    """The response to an operation that streams: an error, or events."""

    refused: ConformResponse | None
    events: AsyncIterator[StreamEvent]
    kind: str = ""
    """The media type of the response; empty on gRPC."""


class ConformClient(ABC):
    """Calls one interface of the host.

    Every call carries the bearer token, unless another one is given, and names the required extensions.
    """

    name: str
    """The name of the binding, as a card has it."""

    def __init__(self, interface: AgentInterface, token: str, required: Sequence[str]) -> None:
        self.interface = interface
        self.token = token
        self.required = [*required]
        """The URIs of the extensions that every call names."""

    @abstractmethod
    async def call(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> ConformResponse: ...

    @abstractmethod
    def stream(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> AbstractAsyncContextManager[ConformStream]: ...

    @abstractmethod
    def code(self, error: type[A2AError]) -> int | str:
        """Return the code of an error in this binding (section 5.4)."""

    async def close(self) -> None:
        return None

    def _headers(self, headers: Headers | None, token: str | None) -> dict[str, str]:
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
    content_type = "application/json"

    def __init__(self, interface: AgentInterface, token: str, required: Sequence[str], http: Http) -> None:
        super().__init__(interface, token, required)
        self.http = http
        self.base = interface.url

    @abstractmethod
    def request(self, operation: str, params: JSONObject) -> tuple[str, str, bytes | None]:
        """Return the method, the URL and the body of a request."""

    @abstractmethod
    def parse(self, raw: RawResponse) -> ConformResponse:
        """Parse a response. CheckFailed if it has not the form of the binding."""

    @abstractmethod
    def parse_event(self, data: bytes) -> JSONObject:
        """Parse the data of an event. CheckFailed if it has not the form of the binding."""

    def parse_error_event(self, raw: RawResponse) -> ConformResponse | None:
        """Parse the first event of a stream if it is an error."""
        return None

    @abstractmethod
    def url(self, path: str) -> str:
        """Return the URL of a path below the interface; of SendMessage if the path is empty."""

    async def call(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> ConformResponse:
        method, url, body = self.request(operation, params)
        return self.parse(await self.http.fetch(method, url, self._with_type(headers, token, body), body))

    @asynccontextmanager
    async def stream(
        self, operation: str, params: JSONObject, headers: Headers | None = None, token: str | None = None
    ) -> AsyncIterator[ConformStream]:
        method, url, body = self.request(operation, params)
        sent = {"Accept": "text/event-stream", **self._with_type(headers, token, body)}
        async with self.http.open(method, url, sent, body) as opened:
            if opened.status == 200 and opened.kind not in JSON_TYPES:
                events = opened.events()
                first = await anext(events, None)
                refused = (
                    self.parse_error_event(RawResponse(opened.status, opened.headers, first.data)) if first else None
                )
                yield ConformStream(refused, _nothing() if refused else self._events(first, events), opened.kind)
            else:
                response = self.parse(await opened.read())
                if response.error is None:
                    raise CheckFailed(response.seen, "a stream of server-sent events, or an error")
                yield ConformStream(response, _nothing(), opened.kind)

    async def send_raw(self, body: bytes, content_type: str = "", *, path: str = "") -> RawResponse:
        """Send a SendMessage with this body, whatever it is, and return the response as it came."""
        headers = self._headers({"Content-Type": content_type or self.content_type}, None)
        return await self.http.fetch("POST", self.url(path), headers, body)

    async def _events(self, first: RawEvent | None, events: AsyncIterator[RawEvent]) -> AsyncIterator[StreamEvent]:
        if first is not None:
            yield StreamEvent(first.id, self.parse_event(first.data))
        async for event in events:
            yield StreamEvent(event.id, self.parse_event(event.data))

    def _with_type(self, headers: Headers | None, token: str | None, body: bytes | None) -> dict[str, str]:
        made = self._headers(headers, token)
        if body is not None:
            made.setdefault("Content-Type", self.content_type)
        return made


class JsonRpc(HttpClient):
    """The JSON-RPC binding (section 9)."""

    name = "JSONRPC"

    def request(self, operation: str, params: JSONObject) -> tuple[str, str, bytes | None]:
        tenant = {"tenant": self.interface.tenant} if self.interface.tenant else {}
        body = {"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": operation, "params": {**tenant, **params}}
        return "POST", self.base, json.dumps(body).encode()

    def url(self, path: str) -> str:
        return self.base + path

    def parse(self, raw: RawResponse) -> ConformResponse:
        expected = "a JSON-RPC response"
        body = raw.json(expected)
        if not isinstance(body, dict) or ("result" in body) == ("error" in body):
            raise CheckFailed(raw.seen(), f"{expected} with either a result or an error")
        headers = {name.lower(): value for name, value in raw.headers.items()}
        if "result" in body:
            result = body["result"] if isinstance(body["result"], dict) else {}
            return ConformResponse(result, None, headers, raw.status, raw.seen())
        error = body["error"]
        if not isinstance(error, dict) or not isinstance(error.get("code"), int):
            raise CheckFailed(raw.seen(), "a JSON-RPC error with a code and a message")
        data = error.get("data")
        found = BindingError(error["code"], str(error.get("message", "")), data if isinstance(data, list) else [])
        return ConformResponse(None, found, headers, raw.status, raw.seen())

    def parse_error_event(self, raw: RawResponse) -> ConformResponse | None:
        body = parsed(raw.body, "a JSON-RPC response in an event")
        return self.parse(raw) if isinstance(body, dict) and "error" in body else None

    def parse_event(self, data: bytes) -> JSONObject:
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
    """The HTTP+JSON binding (section 11)."""

    name = "HTTP+JSON"
    content_type = "application/a2a+json"

    def request(self, operation: str, params: JSONObject) -> tuple[str, str, bytes | None]:
        method, path = ROUTES[operation]
        values = dict(params)
        for name in ("taskId", "id"):
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(values.pop(name)), safe=""))
        if method == "POST":
            return method, self.url(path), json.dumps(values).encode()
        query = "&".join(f"{quote(name)}={quote(_query(value), safe='')}" for name, value in values.items())
        return method, self.url(path) + (f"?{query}" if query else ""), None

    def url(self, path: str) -> str:
        tenant = f"/{quote(self.interface.tenant, safe='')}" if self.interface.tenant else ""
        return self.base.rstrip("/") + tenant + (path or "/message:send")

    def parse(self, raw: RawResponse) -> ConformResponse:
        headers = {name.lower(): value for name, value in raw.headers.items()}
        if 200 <= raw.status < 300:
            body = raw.json("a response") if raw.body else {}
            if isinstance(body, dict) and isinstance(body.get("error"), dict) and "code" in body["error"]:
                raise CheckFailed(raw.seen(), "an error with the HTTP status of an error")
            return ConformResponse(body if isinstance(body, dict) else {}, None, headers, raw.status, raw.seen())
        return ConformResponse(None, self._error(raw), headers, raw.status, raw.seen())

    def _error(self, raw: RawResponse) -> BindingError:
        try:
            error = json.loads(raw.body)["error"]
            message, details = str(error.get("message", "")), error.get("details")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return BindingError(raw.status, "", [])
        return BindingError(raw.status, message, details if isinstance(details, list) else [])

    def parse_event(self, data: bytes) -> JSONObject:
        body = parsed(data, "a StreamResponse in an event")
        if not isinstance(body, dict):
            raise CheckFailed(body, "a StreamResponse in every event")
        return body

    def code(self, error: type[A2AError]) -> int | str:
        return error.http


def limited(client: ConformClient, response: ConformResponse) -> bool:
    """Return whether the host accepts no more requests for now."""
    code = None if response.error is None else response.error.code
    return response.status == 429 or code == client.code(TooManyRequests)


def unauthenticated(client: ConformClient, response: ConformResponse) -> bool:
    """Return whether the host asks for a credential."""
    code = None if response.error is None else response.error.code
    return response.status == 401 or code == client.code(Unauthenticated)


def _query(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


async def _nothing() -> AsyncIterator[StreamEvent]:
    return
    yield
