"""A gRPC client with the parts of HTTP/2 that a call needs."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

from benchmarks.grpc_load import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WIDE,
    WINDOW_UPDATE,
    frame,
)


class GrpcConnection(asyncio.Protocol):
    """A connection that carries one gRPC call at a time; `ended` gets the last message, or None if it was lost."""

    def __init__(self) -> None:
        self.buffer = b""
        self.message = b""
        self.stream = -1
        self.answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        settings = struct.pack(">HI", INITIAL_WINDOW, WIDE)
        window = struct.pack(">I", WIDE - 65_535)
        self.transport.write(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, window))

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._end(None)

    def call(self, headers: bytes, request: bytes) -> asyncio.Future[bytes | None]:
        self.answer = asyncio.get_running_loop().create_future()
        self.stream += 2
        self.message = b""
        data = b"\0" + struct.pack(">I", len(request)) + request
        assert self.transport is not None
        self.transport.write(
            frame(HEADERS, END_HEADERS, self.stream, headers) + frame(DATA, END_STREAM, self.stream, data)
        )
        return self.answer

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer + data if self.buffer else data
        at = 0
        while len(buffer) - at >= 9:
            end = at + 9 + int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) < end:
                break
            self._got(buffer[at + 3], buffer[at + 4], buffer[at + 9 : end])
            at = end
        self.buffer = buffer[at:]

    def _got(self, kind: int, flags: int, payload: bytes) -> None:
        assert self.transport is not None
        if kind == DATA:
            self.message += payload
        elif kind == SETTINGS and not flags & ACK:
            self.transport.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.transport.write(frame(PING, ACK, 0, payload))
        elif kind in (RST_STREAM, GOAWAY):
            self.transport.close()
        elif kind == HEADERS and flags & END_STREAM:
            self._end(self.message[5:])

    def _end(self, answer: bytes | None) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)
