"""One method for each thing that a command asks of a host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from roost.cli.errors import USAGE, CommandFailed, CommandRefused
from roost.cli.options import command
from roost.cli.transport import SILENCE_S, Transport, checked_url, frames
from roost.protocol.codec import encode
from roost.protocol.types import AgentCard, ListTasksResponse, SendMessageRequest, StreamResponse, Task

T = TypeVar("T")

CARD = "/.well-known/agent-card.json"
DOWNLOAD_S = 300.0
"""Seconds that a host may take before it sends the first bytes of an export, or the next."""


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
    """One event of a stream. The Task that a resumed stream begins with has no id, because it is not new."""

    id: int | None
    data: bytes
    response: StreamResponse


class HostClient:
    def __init__(self, url: str, token: str, tenant: str = "") -> None:
        self.url = checked_url(url)
        self.tenant = tenant
        self.http = Transport(self.url, call_headers(token, tenant))

    def directory(self) -> bytes:
        return self._call("GET", "/agents/")

    def agents(self) -> list[AgentEntry]:
        return self.parsed(AgentDirectory, self.directory()).agents

    def card(self, agent: str) -> bytes:
        """The agent's card, or the card at the root path where no agent is named."""
        return self._call("GET", _at(agent) + CARD if agent else CARD)

    def task(self, agent: str, task_id: str) -> bytes:
        return self._call("GET", _at(agent, task_id))

    def cancel(self, agent: str, task_id: str) -> bytes:
        return self._call("POST", f"{_at(agent, task_id)}:cancel", body=b"{}")

    def tasks(self, agent: str, query: dict[str, str]) -> Iterator[Task]:
        """The tasks, newest first. Further pages are fetched when they are needed."""
        token = ""
        while True:
            body = self._call("GET", f"{_at(agent)}/tasks", query={**query, "pageToken": token} if token else query)
            page = self.parsed(ListTasksResponse, body)
            yield from page.tasks
            token = page.next_page_token
            if not token:
                return

    def send(self, agent: str, request: SendMessageRequest) -> Iterator[ReceivedEvent]:
        if self.tenant:
            request.message.metadata = {**(request.message.metadata or {}), "tenant_id": self.tenant}
        return self._events("POST", f"{_at(agent)}/message:stream", {}, encode(request))

    def subscribe(self, agent: str, task_id: str, last: int | None) -> Iterator[ReceivedEvent]:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        return self._events("GET", f"{_at(agent, task_id)}:subscribe", headers, None)

    def download(self, path: str, query: dict[str, str], file: IO[bytes]) -> None:
        with self.http.open("GET", path, query=query, read_s=DOWNLOAD_S) as response:
            if response.status >= 300:
                raise self._problem(response.status, response.read())
            for piece in response.iter_stream():
                file.write(piece)

    def _problem(self, status: int, body: bytes) -> CommandFailed:
        """The error that the admin surface answered with."""
        try:
            said = msgspec.json.decode(body, type=_Problem).detail
        except msgspec.DecodeError:
            said = self._foreign(status)
        return CommandFailed(said + self._advice(status, ""))

    def parsed(self, kind: type[T], body: bytes) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise CommandFailed(f"{self.url} does not answer as a Roost host does: {error}. Is --url right?") from None

    def parsed_card(self, agent: str = "") -> AgentCard:
        return self.parsed(AgentCard, self.card(agent))

    def _call(self, method: str, path: str, query: dict[str, str] | None = None, body: bytes | None = None) -> bytes:
        with self.http.open(method, path, query=query, body=body) as response:
            answer = response.read()
        if response.status >= 300:
            raise self._refused(response.status, answer)
        return answer

    def _events(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Iterator[ReceivedEvent]:
        with self.http.open(method, path, headers=headers, body=body, read_s=SILENCE_S) as response:
            if response.status >= 300:
                raise self._refused(response.status, response.read())
            for frame in frames(response.iter_stream()):
                yield ReceivedEvent(frame.id, frame.data, self.parsed(StreamResponse, frame.data))

    def _refused(self, status: int, body: bytes) -> CommandFailed:
        try:
            error = msgspec.json.decode(body, type=_ErrorBody).error
        except msgspec.DecodeError:
            return CommandFailed(self._foreign(status))
        reason = next((detail.reason for detail in error.details if detail.reason), "")
        if reason == "AGENT_NOT_FOUND":
            return CommandRefused(f"{error.message.partition(';')[0]}; {self.url} has {self.names()}", status, reason)
        said = f"{error.message} ({reason})" if reason else error.message
        return CommandRefused(said + self._advice(status, reason), status, reason)

    def _foreign(self, status: int) -> str:
        return f"{self.url} answers, but not as a Roost host does (HTTP {status}). Is --url right?"

    def names(self) -> str:
        return ", ".join(agent.name for agent in self.agents())

    def _advice(self, status: int, reason: str) -> str:
        if reason == "TASK_NOT_FOUND":
            return f"; {command(self.url, 'tasks')} lists the tasks"
        if status == 401:
            return "; give a credential with --token or ROOST_TOKEN"
        return ""


def call_headers(token: str, tenant: str) -> dict[str, str]:
    """The headers of every call: the version, who calls, and for which tenant."""
    headers = {"A2A-Version": "1.0"}
    if tenant:
        from roost.extensions.multi_tenant import URI

        headers |= {"X-Tenant-Id": _checked_token(tenant), "A2A-Extensions": URI}
    if token.strip():
        headers["Authorization"] = f"Bearer {_checked_token(token.strip())}"
    return headers


def default_agent(client: HostClient) -> str:
    """The host's only agent, or the one that its root path serves."""
    agents = client.agents()
    if len(agents) == 1:
        return agents[0].name
    from roost.fleet.cards import FLEET

    card = client.parsed_card()
    if card.supported_interfaces and all(extension.uri != FLEET for extension in card.capabilities.extensions):
        return card.supported_interfaces[0].tenant
    raise CommandFailed(f"{client.url} has several agents: {client.names()}. Name one: roost send AGENT TEXT", USAGE)


def agent_of(client: HostClient, task_id: str) -> str:
    """The agent that has the task."""
    for agent in client.agents():
        try:
            client.task(agent.name, task_id)
        except CommandRefused as error:
            if error.reason != "TASK_NOT_FOUND":
                raise
        else:
            return agent.name
    raise CommandFailed(
        f"no agent at {client.url} has a task {task_id!r}; {command(client.url, 'tasks')} lists the tasks"
    )


def _at(agent: str, task_id: str = "") -> str:
    place = f"/agents/{quote(agent, safe='')}"
    return f"{place}/tasks/{quote(task_id, safe='')}" if task_id else place


def _checked_token(token: str) -> str:
    """The token, or an error that does not show it, as one from the HTTP library would."""
    if not all("!" <= character <= "~" for character in token):
        raise CommandFailed(
            "the token has characters that a header cannot carry; check that it was copied completely", USAGE
        )
    return token
