"""uvicorn's fast HTTP protocol, with one system call for a response where it makes two.

uvicorn writes a response's head and its body one after the other, and each write wakes the
client: see docs/adr/0006-writer-process.md for what that costs.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

FLUSH_BYTES = 64 * 1024


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(cast(asyncio.Transport, Corked(transport, self.loop)))


class Corked:
    """A transport that hands on what is written in one turn of the event loop at its end, together."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self.loop = loop
        self.pending: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> None:
        if not self.pending:
            self.loop.call_soon(self.flush)
        self.pending.append(data)
        self.size += len(data)
        if self.size > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.pending:
            data, self.pending, self.size = b"".join(self.pending), [], 0
            if not self.transport.is_closing():  # uvloop raises where the client has gone in between
                self.transport.write(data)

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)
