"""The HTTP calls: one method for each thing that a command asks of a host."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct

from roost.addresses import is_loopback
from roost.cli.errors import USAGE, CommandFailed, CommandRefused, Dropped, Unreachable
from roost.cli.options import command
from roost.cli.sse import frames
from roost.engine.tenancy import EXTENSION as MULTI_TENANT
from roost.protocol.codec import encode
from roost.protocol.types import AgentCard, ListTasksResponse, SendMessageRequest, StreamResponse, Task

T = TypeVar("T")

UNIX = "unix:"
CARD = "/.well-known/agent-card.json"
CONNECT_S = 5.0
ANSWER_S = 30.0
DOWNLOAD_S = 300.0
SILENCE_S = 45.0
"""A stream that is silent for three of the host's heartbeats is dead."""


class AgentEntry(Struct):
    """One agent in the host's directory."""

    name: str
    description: str = ""


class AgentDirectory(Struct):
    agents: list[AgentEntry]


class _ErrorInfo(Struct):
    reason: str = ""


class _Error(Struct):
    message: str
    details: list[_ErrorInfo] = []


class _ErrorBody(Struct):
    error: _Error


class _Problem(Struct):
    detail: str


class ReceivedEvent(NamedTuple):
    """One event of a stream. Without an id it says nothing new: it is the Task that a resumed stream begins with."""

    id: int | None
    data: bytes
    response: StreamResponse


class HostClient:
    def __init__(self, url: str, token: str, tenant: str = "") -> None:
        self.url = _checked_url(url)
        self.tenant = tenant
        given = _options(self.url, token, tenant)
        unix = httpx.HTTPTransport(uds=self.url.removeprefix(UNIX)) if self.url.startswith(UNIX) else None
        self.http = httpx.Client(transport=unix, **given)

    def directory(self) -> bytes:
        return self._call("GET", "/agents/")

    def agents(self) -> list[AgentEntry]:
        return self.parsed(AgentDirectory, self.directory()).agents

    def card(self, agent: str) -> bytes:
        """The agent's card, or what the root path has where no agent is named."""
        return self._call("GET", _at(agent) + CARD if agent else CARD)

    def task(self, agent: str, task_id: str) -> bytes:
        return self._call("GET", _at(agent, task_id))

    def cancel(self, agent: str, task_id: str) -> bytes:
        return self._call("POST", f"{_at(agent, task_id)}:cancel", json={})

    def tasks(self, agent: str, query: dict[str, str]) -> Iterator[Task]:
        """Newest first, over as many pages as are asked for."""
        token = ""
        while True:
            body = self._call("GET", f"{_at(agent)}/tasks", params={**query, "pageToken": token} if token else query)
            page = self.parsed(ListTasksResponse, body)
            yield from page.tasks
            token = page.next_page_token
            if not token:
                return

    def send(self, agent: str, request: SendMessageRequest) -> Iterator[ReceivedEvent]:
        if self.tenant:
            request.message.metadata = {**(request.message.metadata or {}), "tenant_id": self.tenant}
        body = encode(request)
        return self._events("POST", f"{_at(agent)}/message:stream", {"Content-Type": "application/json"}, body)

    def subscribe(self, agent: str, task_id: str, last: int | None) -> Iterator[ReceivedEvent]:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        return self._events("GET", f"{_at(agent, task_id)}:subscribe", headers, None)

    def download(self, path: str, query: dict[str, str], file: IO[bytes]) -> None:
        with self._reported(), self.http.stream("GET", path, params=query, timeout=DOWNLOAD_S) as response:
            if response.status_code >= 300:
                response.read()
                raise self._problem(response)
            for piece in response.iter_bytes():
                file.write(piece)

    def _problem(self, response: httpx.Response) -> CommandFailed:
        """An error of the admin surface."""
        try:
            said = msgspec.json.decode(response.content, type=_Problem).detail
        except msgspec.DecodeError:
            said = f"{self.url} answers, but not as a Roost host does (HTTP {response.status_code}). Is --url right?"
        return CommandFailed(said + self._advice(response.status_code, ""))

    def parsed(self, kind: type[T], body: bytes) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise CommandFailed(f"{self.url} does not answer as a Roost host does: {error}. Is --url right?") from None

    def parsed_card(self, agent: str = "") -> AgentCard:
        return self.parsed(AgentCard, self.card(agent))

    def _call(self, method: str, path: str, **given: Any) -> bytes:
        with self._reported():
            response = self.http.request(method, path, **given)
        if response.status_code >= 300:
            raise self._refused(response)
        return response.content

    def _events(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Iterator[ReceivedEvent]:
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S)
        with (
            self._reported(),
            self.http.stream(method, path, headers=headers, content=body, timeout=timeout) as response,
        ):
            if response.status_code >= 300:
                response.read()
                raise self._refused(response)
            for frame in frames(response.iter_bytes()):
                yield ReceivedEvent(frame.id, frame.data, self.parsed(StreamResponse, frame.data))

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            why = f" ({error})" if "SSL" in str(error) else ""
            raise Unreachable(
                f"nothing answers at {self.url}{why}; start it with `roost serve ...` or set --url"
            ) from None
        except httpx.HTTPError as error:
            raise Dropped(f"the connection to {self.url} was lost: {error or type(error).__name__}") from None

    def _refused(self, response: httpx.Response) -> CommandFailed:
        status = response.status_code
        try:
            error = msgspec.json.decode(response.content, type=_ErrorBody).error
        except msgspec.DecodeError:
            return CommandFailed(f"{self.url} answers, but not as a Roost host does (HTTP {status}). Is --url right?")
        reason = next((detail.reason for detail in error.details if detail.reason), "")
        if reason == "AGENT_NOT_FOUND":
            return CommandRefused(f"{error.message.partition(';')[0]}; {self.url} has {self.names()}", status, reason)
        said = f"{error.message} ({reason})" if reason else error.message
        return CommandRefused(said + self._advice(status, reason), status, reason)

    def names(self) -> str:
        return ", ".join(agent.name for agent in self.agents())

    def _advice(self, status: int, reason: str) -> str:
        if reason == "TASK_NOT_FOUND":
            return f"; {command(self.url, 'tasks')} lists those there are"
        if status == 401:
            return "; give a credential with --token or ROOST_TOKEN"
        return ""


def async_client(url: str, token: str, tenant: str) -> httpx.AsyncClient:
    """The same connection, for a command that does several things at once."""
    url = _checked_url(url)
    unix = httpx.AsyncHTTPTransport(uds=url.removeprefix(UNIX)) if url.startswith(UNIX) else None
    return httpx.AsyncClient(transport=unix, **_options(url, token, tenant))


def _options(url: str, token: str, tenant: str) -> dict[str, Any]:
    headers = {"A2A-Version": "1.0"}
    if tenant:
        headers |= {"X-Tenant-Id": _checked_token(tenant), "A2A-Extensions": MULTI_TENANT}
    if token.strip():
        headers["Authorization"] = f"Bearer {_checked_token(token.strip())}"
    given: dict[str, Any] = {"headers": headers, "timeout": httpx.Timeout(ANSWER_S, connect=CONNECT_S)}
    if url.startswith(UNIX):
        return {**given, "base_url": "http://localhost"}
    return {
        **given,
        "base_url": url,
        "trust_env": not _local(url),  # proxies are for other machines
        "verify": _authorities() if url.startswith("https:") else False,  # they take 50 ms to load
    }


def _at(agent: str, task_id: str = "") -> str:
    place = f"/agents/{quote(agent, safe='')}"
    return f"{place}/tasks/{quote(task_id, safe='')}" if task_id else place


def _checked_url(url: str) -> str:
    if url.startswith(UNIX) and len(url) > len(UNIX):
        return url
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise CommandFailed(f"{url!r} cannot be --url: {error}", USAGE) from None
    if parsed.userinfo:
        raise CommandFailed("--url must not hold a password: use --token or ROOST_TOKEN", USAGE)
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise CommandFailed(f"{url!r} cannot be --url: give http(s)://host[:port] or unix:PATH", USAGE)
    return url.rstrip("/")


def _authorities() -> ssl.SSLContext | bool:
    """Those of the user's own, where a variable names them, for a host on this machine too."""
    own = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=own) if own else True
    except OSError as error:
        raise CommandFailed(f"SSL_CERT_FILE: cannot read {own}: {error.strerror or error}", USAGE) from None


def _checked_token(token: str) -> str:
    """What a header cannot carry would come back in an error message, and be seen."""
    if not all("!" <= character <= "~" for character in token):
        raise CommandFailed("the token has characters that a header cannot carry; was it copied whole?", USAGE)
    return token


def _local(url: str) -> bool:
    return is_loopback(httpx.URL(url).host)
