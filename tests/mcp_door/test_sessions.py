"""The end of a session, beside what else its client sends."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from roost import Agent
from roost.doors import mcp_sessions
from roost.doors.mcp import MCPDoor
from roost.doors.mcp_tools import SESSION
from roost.host import asgi
from tests.waiting import PATIENCE_S

NOTIFICATION = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Manager:
    """In the place of the SDK's: it confirms a notification at once, and passes it on when the test says so."""

    def __init__(self) -> None:
        self.confirmed = asyncio.Event()
        self.pass_on = asyncio.Event()
        self.passed: list[tuple[str, bytes]] = []

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        if scope["method"] == "POST":
            self.confirmed.set()
            await self.pass_on.wait()
        self.passed.append((scope["method"], dict(scope["headers"])[SESSION]))


async def test_a_session_ends_after_it_has_received_its_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK reports an error where it has confirmed a notification to a session that ends before it is passed on."""
    monkeypatch.setattr(mcp_sessions, "LAST_RESULTS_S", PATIENCE_S)
    agent, manager = Agent("some"), Manager()

    @agent.on_message
    async def answer(task: Any) -> str:
        return "something"

    host = asgi(agent)
    await host.start()
    try:
        assert host.app is not None
        (door,) = [door for door in host.app.doors if isinstance(door, MCPDoor)]
        sessions = await door._opened()
        real, sessions.manager = sessions.manager, manager  # type: ignore[assignment]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://localhost") as http:

            def ask(method: str, session: str, **body: Any) -> asyncio.Task[httpx.Response]:
                headers = {SESSION.decode(): session}
                return asyncio.create_task(http.request(method, "/mcp", headers=headers, **body))

            notifying = ask("POST", "one", json=NOTIFICATION)
            await manager.confirmed.wait()
            ending = ask("DELETE", "one")
            await ask("DELETE", "other")
            assert manager.passed == [("DELETE", b"other")]
            manager.pass_on.set()
            assert [(await asked).status_code for asked in (notifying, ending)] == [202, 202]
        assert manager.passed == [("DELETE", b"other"), ("POST", b"one"), ("DELETE", b"one")]
        sessions.manager = real
    finally:
        await host.close()
