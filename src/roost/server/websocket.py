"""uvicorn's WebSocket protocol, held to the limits of HTTP connections and with the peer that HTTP requests have."""

from __future__ import annotations

import asyncio
from asyncio.transports import BaseTransport
from typing import TYPE_CHECKING, Any, cast

from uvicorn import Config
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from roost.doors.counters import REFUSED
from roost.identity.peers import Peer
from roost.server.refusals import Malformed, answer

if TYPE_CHECKING:
    from roost.server.http import ConnectionWatch

PEER = "roost.peer"
LINGER_S = 1.0
"""Seconds for which what a refused client still sends is read and dropped, since a reset could cost it the answer."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A connection that was upgraded from HTTP. `peer` is the peer of the HTTP connection."""

    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], watch: ConnectionWatch, peer: Peer | None
    ) -> None:
        super().__init__(config, state, app_state)
        self.watch = watch
        self.peer = peer
        self.unsent = 0
        """Bytes that the client had not read when the sweep last looked."""
        self.stalled: float | None = None
        """The monotonic time since when the client has read none of them."""
        self.rest = b""
        """Bytes that arrived before the handshake was accepted."""
        self.was_accepted = False
        self.refused = False
        """The handshake was denied: what still arrives is dropped."""
        self.since: float | None = None
        """The monotonic time when the sweep first saw that it was."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, HandshakeTransport(cast(asyncio.Transport, transport), self)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.leaving.discard(self)
        self.connections.add(self)  # uvicorn removes it, and fails if it is not there
        super().connection_lost(exc)

    def begin(self, head: bytes, rest: bytes) -> None:
        """Begin the handshake. What the client sends after its head is read when the handshake has been accepted."""
        super().data_received(head)
        if self.handshake_initiated:
            if not self.refused:
                self.rest = rest
                self.transport.pause_reading()
            return
        REFUSED["malformed"] += 1  # uvicorn does not look whether its parser has given up
        self.handshake_complete = self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()) or answer(Malformed(), self.default_headers))
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.refused:
            super().data_received(data)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.peer is not None and not self.close_sent:
            cast("dict[str, Any]", self.scope)[PEER] = self.peer  # the application's task has not run yet

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.accept":
            self.was_accepted = True
            self.transport.resume_reading()
            if self.rest:
                self.data_received(self.rest)
                self.rest = b""
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # a refusal completes it too; otherwise uvicorn logs an error

    def look(self, now: float) -> None:
        """End a connection whose client has read nothing for too long."""
        before, self.unsent = self.unsent, self.transport.get_write_buffer_size()
        if not self.unsent or self.unsent < before:
            self.stalled = None
        elif self.stalled is None:
            self.stalled = now
        elif now - self.stalled >= self.watch.limits.write_s:
            REFUSED["write_time"] += 1
            self.transport.abort()

    def leave(self) -> None:
        """Close for writing, and drop what still arrives for a short time: a reset could cost the client the answer."""
        self.refused = True
        self.connections.discard(self)
        self.watch.leaving.add(self)
        self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def linger(self, now: float) -> None:
        if self.since is None:
            self.since = now
        elif now - self.since >= LINGER_S:
            self.transport.abort()


class HandshakeTransport:
    """The transport of a WebSocket connection. After a denied handshake it does not close at once."""

    def __init__(self, transport: asyncio.Transport, connection: WebSocketProtocol) -> None:
        self.transport = transport
        self.connection = connection
        self.write = transport.write

    def close(self) -> None:
        connection = self.connection
        if connection.was_accepted or connection.watch.closed or self.transport.is_closing():
            self.transport.close()
        elif not connection.refused:
            connection.leave()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)
