"""WebSocket connections reach doors as HTTP requests do: through the same guard, origin check and admission.

No door of the host takes them yet, so a door of these tests proves it, on the real server.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from roost import Agent
from roost.doors.admission import A2A, POLICY_VIOLATION, speaks_any
from roost.doors.context import Context
from roost.doors.door import AGENT, CALLER, Door, Route
from roost.doors.errors import problem
from roost.doors.http import Connection, Request, Response, WebSocket
from roost.host import Host
from roost.identity.tokens import TokenRequest, make_token
from roost.protocol.errors import A2AError, RouteNotFound
from roost.server.server import Server
from roost.server.sockets import Listeners
from roost.settings import Settings
from tests.server.inprocess import GENEROUS

SECRET = "a-secret-of-these-tests"
PATIENCE_S = 60.0


class EchoDoor(Door):
    """Sends back what it is sent, for callers who may call the agent of the path."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def routes(self) -> Sequence[Route]:
        return [Route("GET", AGENT + "/echo", "Echo over a WebSocket", CALLER)]

    def claims(self, request: Request) -> bool:
        return False

    async def serve(self, request: Request) -> None:
        raise RouteNotFound

    def error(self, request: Connection, error: A2AError) -> Response:
        return problem(error)

    def claims_socket(self, socket: WebSocket) -> bool:
        return socket.place.below == "/echo"

    async def serve_socket(self, socket: WebSocket) -> None:
        socket.route = socket.place.prefix + socket.place.below
        admission = self.context.admission
        principal = await admission.caller(socket, A2A)
        call = await admission.agent(self.context, socket, principal, socket.place.agent, speaks_any)
        async with call.socket(socket):
            await socket.accept()
            while True:
                await socket.write(f"{call.principal.subject}: {await socket.read()!r}")


def desk() -> Agent:
    agent = Agent("desk")

    @agent.on_message
    async def answer(task: Any) -> str:
        return "ok"

    return agent


class Running:
    def __init__(self, host: Host, port: int) -> None:
        self.host = host
        self.port = port

    def open(self, path: str = "/agents/desk/echo", token: str = "", **headers: str) -> connect:
        given = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        return connect(f"ws://127.0.0.1:{self.port}{path}", additional_headers=given, proxy=None)

    async def refused(self, path: str = "/agents/desk/echo", token: str = "", **headers: str) -> dict[str, Any]:
        with pytest.raises(InvalidStatus) as error:
            async with self.open(path, token, **headers):
                raise AssertionError("the handshake succeeded")
        found: dict[str, Any] = json.loads(error.value.response.body)
        return {**found, "status": error.value.response.status_code}


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Running]:
    listeners = Listeners([socket.create_server(("127.0.0.1", 0))])
    host = Host([desk()], Settings(memory=True, drain_s=0, **settings), more_doors=lambda context: [EchoDoor(context)])
    server = Server(host, listeners, GENEROUS)
    task = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not server.started:
                assert not task.done(), task.result()
                await asyncio.sleep(0.01)
        yield Running(host, listeners.sockets[0].getsockname()[1])
    finally:
        host.drain()
        server.should_exit = True
        await task
        listeners.close()


async def said(connection: ClientConnection, text: str | bytes) -> str | bytes:
    await connection.send(text)
    async with asyncio.timeout(PATIENCE_S):
        return await connection.recv()


async def test_a_door_serves_a_socket_and_both_kinds_of_messages() -> None:
    async with running() as server, server.open() as connection:
        assert await said(connection, "hello") == "local: 'hello'"
        assert await said(connection, b"\x00\xff") == "local: b'\\x00\\xff'"


async def test_a_socket_that_no_door_claims_is_refused_with_404() -> None:
    async with running() as server:
        found = await server.refused("/agents/desk/nothing")
        assert (found["status"], found["error"]["details"][0]["reason"]) == (404, "ROUTE_NOT_FOUND")


async def test_a_web_page_of_another_site_is_refused_by_its_origin() -> None:
    async with running() as server:
        found = await server.refused(Origin="https://evil.example.com")
        assert (found["status"], found["code"]) == (403, "auth.forbidden")
        async with server.open(Origin=f"http://127.0.0.1:{server.port}") as connection:
            assert await said(connection, "own") == "local: 'own'"


async def test_a_foreign_host_and_forwarded_headers_are_refused_on_an_open_host() -> None:
    async with running() as server:
        assert (await server.refused(**{"X-Forwarded-For": "10.0.0.1"}))["status"] == 403


async def test_a_credential_in_the_url_is_refused() -> None:
    async with running() as server:
        assert (await server.refused("/agents/desk/echo?token=abc"))["status"] == 400


async def test_a_credential_is_needed_where_agents_need_one(caplog: pytest.LogCaptureFixture) -> None:
    async with running(token=SECRET) as server:
        found = await server.refused()
        assert (found["status"], found["code"]) == (401, "auth.required")
        assert (await server.refused(token="wrong"))["status"] == 401
        async with server.open(token=SECRET) as connection:
            assert await said(connection, "me") == "ROOST_TOKEN: 'me'"
    assert "handshake" not in caplog.text, "a refusal is no error of the host"


async def test_an_agent_that_is_not_there_is_404() -> None:
    async with running() as server:
        assert (await server.refused("/agents/nobody/echo"))["status"] == 404


async def test_the_rate_of_the_surface_holds_for_handshakes() -> None:
    async with running(quotas="surface:a2a.rate=2") as server:
        for _ in range(2):
            async with server.open() as connection:
                assert await said(connection, "hello") == "local: 'hello'"
        found = await server.refused()
        assert (found["status"], found["code"]) == (429, "quota.exceeded")


async def test_an_open_socket_counts_as_a_stream() -> None:
    async with running(quotas="agent:desk.streams=1") as server:
        async with server.open():
            assert (await server.refused())["status"] == 429
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with server.open() as connection:
                        assert await said(connection, "again") == "local: 'again'"
                    break
                except InvalidStatus:  # the host has not noticed yet that the first one is closed
                    await asyncio.sleep(0.01)


async def test_a_socket_ends_with_the_credential_that_opened_it() -> None:
    async with running(token=SECRET) as server:
        assert server.host.identity is not None
        identity = server.host.identity
        async with server.open(token=SECRET) as connection:
            assert await said(connection, "me") == "ROOST_TOKEN: 'me'"
            [token] = identity.token_cache.tokens()
            assert await identity.token_cache.store.revoke_token(token.id, 1)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(ConnectionClosed):
                    await connection.recv()
            assert connection.close_code == POLICY_VIOLATION


async def test_a_socket_of_an_open_host_ends_when_a_credential_is_needed() -> None:
    async with running() as server:
        assert server.host.identity is not None
        identity = server.host.identity
        async with server.open() as connection:
            assert await said(connection, "me") == "local: 'me'"
            assert await identity.token_cache.store.add_token(make_token(TokenRequest("first", ["agent:*"])).token)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(ConnectionClosed):
                    await connection.recv()
            assert connection.close_code == POLICY_VIOLATION
            assert "needs a credential" in str(connection.close_reason)


async def test_a_socket_ends_when_the_host_stops() -> None:
    async with running() as server:
        connection = await server.open()
        assert await said(connection, "hello") == "local: 'hello'"
    async with asyncio.timeout(PATIENCE_S):
        await connection.wait_closed()


async def test_requests_on_other_upgrades_are_served_as_if_there_were_none() -> None:
    async with running() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"200"
        writer.close()


async def test_a_handshake_by_another_method_than_get_is_served_as_a_plain_request() -> None:
    async with running() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        writer.write(b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n" + upgrade + b"\r\n")
        answer = await asyncio.wait_for(reader.readline(), PATIENCE_S)
        assert answer.split()[1] == b"405"
        writer.close()


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_client_that_sends_on_after_a_denied_handshake_can_read_why_and_is_left(token: str) -> None:
    async with running(token=SECRET) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        credential = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(
            f"GET /agents/desk/echo HTTP/1.1\r\nHost: localhost\r\n{credential}Connection: Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        writer.write(bytes(3_000_000))
        async with asyncio.timeout(PATIENCE_S):
            await writer.drain()
            said = await reader.read()
            assert said.startswith(b"HTTP/1.1 401 ")
            assert b"\r\nConnection: close\r\n" in said
            with suppress(ConnectionError):
                while True:
                    writer.write(b"more")
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.transport.abort()


async def test_a_handshake_with_a_body_is_refused() -> None:
    async with running(token=SECRET) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            b"GET /agents/desk/echo HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nContent-Length: 7000000\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        writer.write(bytes(3_000_000))
        async with asyncio.timeout(PATIENCE_S):
            await writer.drain()
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.transport.abort()
