"""Test an agent without a socket: `async with roost.testing.client(agent) as client`.

Messages go through the real door and the real engine. The journal is in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from roost.agents.agent import Hostable
from roost.agents.task import Content, as_parts
from roost.engine.ids import new_id
from roost.host import Host, asgi
from roost.protocol.codec import convert, decoder, encode
from roost.protocol.types import (
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    StreamResponse,
    Task,
)

BASE = "http://127.0.0.1"


class CallFailed(Exception):
    """The host answered with an error."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        self.status = status
        self.error = error
        self.reason: str = error["details"][0]["reason"]
        super().__init__(f"{status} {self.reason}: {error['message']}")


class InProcessClient:
    """A client of one agent of a host in this process."""

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        self.http = http
        self.agent = agent

    async def send(
        self, says: Content, *, task: Task | str = "", context: str = "", wait: bool = True
    ) -> Task | Message:
        """Send a message and return the task when it has ended or asks a question; a direct reply is a Message.

        With wait=False the task is returned as soon as it is accepted.
        """
        body = self._body(says, task, context, wait)
        answer = decoder(SendMessageResponse)((await self._call("POST", "message:send", body)).content)
        found = answer.task or answer.message
        assert found is not None
        return found

    async def stream(self, says: Content, *, task: Task | str = "", context: str = "") -> list[StreamResponse]:
        """Send a message and return the events of the stream when it has ended."""
        response = await self._call("POST", "message:stream", self._body(says, task, context, True))
        lines = response.content.split(b"\n")
        return [decoder(StreamResponse)(line[6:]) for line in lines if line.startswith(b"data: ")]

    async def get(self, task: Task | str) -> Task:
        return decoder(Task)((await self._call("GET", f"tasks/{_id(task)}")).content)

    async def cancel(self, task: Task | str) -> Task:
        return decoder(Task)((await self._call("POST", f"tasks/{_id(task)}:cancel", b"{}")).content)

    def _body(self, content: Content, task: Task | str, context: str, wait: bool) -> bytes:
        message = Message(
            message_id=new_id(), role=Role.USER, parts=as_parts(content), task_id=_id(task), context_id=context
        )
        return encode(
            SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=not wait))
        )

    async def _call(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        response = await self.http.request(method, f"/agents/{self.agent}/{path}", content=body)
        if response.is_error:
            raise CallFailed(response.status_code, convert(dict[str, Any], response.json()["error"]))
        return response


@asynccontextmanager
async def client(agent: Hostable, *, data: str | None = None) -> AsyncIterator[InProcessClient]:
    """Start a host that serves this agent only, and yield its client. With `data`, the journal is in that folder."""
    host: Host = asgi(agent, public_url=BASE, data=data)
    await host.start()
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    transport = httpx.ASGITransport(host)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers, timeout=60) as http:
            yield InProcessClient(http, agent.id)
    finally:
        await host.close()


def _id(task: Task | str) -> str:
    return task if isinstance(task, str) else task.id
