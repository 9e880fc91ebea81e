"""The receiver of webhooks. It accepts most calls and fails some, as real receivers do."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Self

from chaos.history import Delivery, History

DELIVERY_ID = "x-roost-delivery-id"
FAILURE_RATE = 0.1
MAX_CONSECUTIVE_FAILURES = 2
"""Consecutive failures of one webhook. Fewer than the attempts that one event has."""


class Receiver:
    """`{url}/{id}` is the webhook of the message with that id."""

    def __init__(self, history: History, rng: Random) -> None:
        self.history = history
        self.rng = rng
        self.url = ""
        self.failures: Counter[str] = Counter()
        self.accepted: set[tuple[str, bytes]] = set()
        self.connections: set[asyncio.StreamWriter] = set()
        self.server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.server is not None
        self.server.close()
        for writer in list(self.connections):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            while await self._call(reader, writer):
                pass
        self.connections.discard(writer)
        writer.close()

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        message_id = first.split(" ")[1].rpartition("/")[2]
        fails = self.failures[message_id] < MAX_CONSECUTIVE_FAILURES and self.rng.random() < FAILURE_RATE
        self.failures[message_id] = self.failures[message_id] + 1 if fails else 0
        self.history.deliveries.append(Delivery(message_id, headers[DELIVERY_ID], body, not fails))
        if fails and self.rng.random() < 0.5:
            return False
        if not fails:
            self.accepted.add((message_id, body))
        status = "500 Internal Server Error" if fails else "204 No Content"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        return True
