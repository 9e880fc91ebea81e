"""The server of `roost serve` in this process, around an app that tells what it was asked.

async with serving() as server:
    async with connected(server) as client:
        client.write(b"GET / HTTP/1.1\\r\\n\\r\\n")
        (await client.answer()).status

The limits are so generous that no test meets one by being slow; `pass_time` tells the server that time has passed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

from roost.server.http import ConnectionLimits
from roost.server.server import Server
from roost.server.sockets import Listeners
from roost.server.tls import TLS
from tests.waiting import PATIENCE_S, until

LARGE = 32 * 1024 * 1024
"""Bytes of the answer to /large: more than any buffer of a socket takes."""
GENEROUS = ConnectionLimits(
    head_s=PATIENCE_S, max_headers=100, max_head_bytes=32 * 1024, max_connections=1000, write_s=PATIENCE_S
)


class App:
    """Answers with what it was asked, once `gate` is open; at paths that begin with /early before it reads the body."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.read = 0
        """Bytes of the last body, as far as it was read."""
        self.gone = asyncio.Event()
        """A client left, or was sent away, before its body was read."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        self.scopes.append(scope)
        await self.gate.wait()
        size, more = 0, not scope["path"].startswith("/early")
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
                return
            size, more = size + len(message["body"]), message["more_body"]
            self.read = size
        body = json.dumps({"path": scope["path"], "bytes": size}).encode()
        if scope["path"].endswith("/large"):
            body = bytes(LARGE)
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Clock:
    """Stands in for the module `time` where the server looks at its connections."""

    passed_s = 0.0
    """Seconds that the server was told have passed, beside those that have."""

    def monotonic(self) -> float:
        return time.monotonic() + self.passed_s


class Running(Server):
    app: App
    clock: Clock

    def pass_time(self, seconds: float = PATIENCE_S) -> None:
        """Look at every connection as it is, and once more as the server would so much later."""
        self.watch.sweep(self.clock.monotonic())
        self.clock.passed_s += seconds
        self.watch.sweep(self.clock.monotonic())

    async def until_received(self, size: int) -> None:
        """Wait until so many bytes have come of the head or the body that it waits for."""
        await until(lambda: sum(connection.arrived for connection in self.watch.connections) >= size)

    @property
    def address(self) -> Any:
        return self.listeners.sockets[0].getsockname()


@asynccontextmanager
async def serving(
    *, listeners: Listeners | None = None, tls: TLS | None = None, **limits: float
) -> AsyncIterator[Running]:
    app = App()
    listeners = listeners or Listeners([socket.create_server(("127.0.0.1", 0))])
    server = Running(app, listeners, GENEROUS._replace(**limits), tls)
    server.app, server.clock = app, Clock()
    with patch("roost.server.server.time", server.clock):
        task = asyncio.create_task(server.serve())
        await until(lambda: server.started or task.done())
        assert not task.done(), task.result()
        try:
            yield server
        finally:
            app.gate.set()
            server.should_exit = True
            await task
            listeners.close()


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def get(self, path: str) -> Answer:
        self.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await self.answer()

    async def answer(self) -> Answer:
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(head[0].split()[1]), headers, body)

    async def rest(self) -> bytes:
        """All that is still sent until the server closes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def closed(self) -> bool:
        """The server closes without another byte."""
        try:
            return await self.rest() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def connected(server: Running, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    address = server.address
    if isinstance(address, str):
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        name = "localhost" if tls is not None else None
        reader, writer = await asyncio.open_connection(*address[:2], ssl=tls, server_hostname=name)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


async def until_cut(server: Running) -> None:
    """Let so much time pass that a client that says nothing is sent away: as long as a head may take."""
    known = len(server.watch.connections)
    async with connected(server) as silent:
        await until(lambda: len(server.watch.connections) > known)
        server.pass_time()
        assert await silent.closed()
