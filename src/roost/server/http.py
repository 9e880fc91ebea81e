"""uvicorn's HTTP protocol, with one system call per response instead of two, and limits on slow and large requests.

uvicorn writes a response's head and body one after the other, and each write wakes the client:
docs/adr/0006-writer-process.md says what that costs. For the same reason no request has a timer of its own: once a
second, one sweep checks all connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from typing import Any, NamedTuple, cast

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from roost.doors.counters import REFUSED
from roost.identity.peers import NamesNobody, Peer, certified, local_user
from roost.server.refusals import (
    ConnectionRefusal,
    LongHead,
    Malformed,
    MissingHost,
    RepeatedHeader,
    SlowBody,
    SlowHead,
    TooManyConnections,
    TooManyHeaders,
    UnsupportedHTTP,
    answer,
)
from roost.server.websocket import LINGER_S, PEER, WebSocketProtocol

log = logging.getLogger("roost.server")

FLUSH_BYTES = 64 * 1024
AWAITED_BYTES = 64 * 1024
"""The longest body whose rest is awaited after an early answer, so that its connection can be used again."""
CLOSE = (b"connection", b"close")
SINGLE = frozenset(
    {
        b"host",
        b"origin",
        b"content-type",
        b"content-length",
        b"a2a-version",
        b"idempotency-key",
        b"last-event-id",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
        b"x-session-id",
    }
)
"""Headers that are refused if they occur twice: a proxy may have read the other one. Doors refuse two credentials and
two tenants themselves, in the form of their binding. X-Forwarded-For and other headers that are lists may repeat."""
NOTHING, HEAD, BODY = range(3)
UCRED = struct.Struct("iII")


class ConnectionLimits(NamedTuple):
    """The settings of the same names."""

    head_s: float
    max_headers: int
    max_head_bytes: int
    max_connections: int
    write_s: float


class ConnectionWatch:
    """The connections of one server, which are checked once a second."""

    def __init__(self, limits: ConnectionLimits, state: ServerState) -> None:
        self.limits = limits
        self.connections = cast("set[HTTPProtocol | WebSocketProtocol]", state.connections)
        self.leaving: set[HTTPProtocol | WebSocketProtocol] = set()
        """Connections that have an answer before their request has arrived, and are given time to read it."""
        self.closed = False
        self.handshakes: set[asyncio.Task[None]] = set()

    def sweep(self, now: float) -> None:
        for connection in [*self.connections]:
            connection.look(now)
        for connection in [*self.leaving]:
            connection.linger(now)

    def end_certified(self) -> None:
        """Close the connections of clients with a certificate, so that it is checked against the new authorities."""
        for connection in [*self.connections]:
            if connection.peer is not None and connection.peer.certificate is not None:
                connection.transport.close()

    def close(self) -> None:
        """Drop the connections that have no request, and let none linger from now on."""
        self.closed = True
        for handshake in self.handshakes:
            handshake.cancel()
        for connection in [*self.leaving]:
            connection.transport.abort()


class HTTPProtocol(HttpToolsProtocol):
    """One connection.

    The parser's callbacks name their base class: `super()` would be half of the time that they add to a request.
    """

    def __init__(self, config: Config, state: ServerState, app_state: dict[str, Any], watch: ConnectionWatch) -> None:
        super().__init__(config, state, app_state, asyncio.get_running_loop())
        self.watch = watch
        self.limits = watch.limits
        self.peer: Peer | None = None
        self.reading = HEAD
        self.since: float | None = None
        """The time when the sweep first found the rest of a head or body missing; None if it has arrived."""
        self.arrived = 0
        """Bytes since the last progress: the request's head so far, or what arrived between pieces of its body."""
        self.piece = 0
        """The size of the last read, in bytes."""
        self.refused = False
        self.sent = 0
        """Bytes that had been sent when the sweep last looked."""
        self.stalled: float | None = None
        """The time when the client was last seen to read; None while nothing waits for it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(cast(asyncio.Transport, LingeringTransport(transport, self.loop, self)))
        most = self.limits.max_connections
        if len(self.connections) + len(self.watch.leaving) > 2 * most:
            REFUSED["connections"] += 1
            self.refused = True
            transport.abort()
        elif len(self.connections) > most:
            self.refuse(TooManyConnections())
        else:
            self.peer = _peer(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.leaving.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        self.piece = len(data)
        if self.reading == NOTHING:
            self.arrived = self.piece
        else:
            self.arrived += self.piece
            if self.reading == BODY and not self.cycle.response_complete:
                self.since = None
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self.refuse(error.__context__ if isinstance(error.__context__, ConnectionRefusal) else Malformed())
        else:
            if self.arrived > self.limits.max_head_bytes:
                self.refuse(LongHead(self.limits.max_head_bytes))

    def _feed(self, data: bytes) -> None:
        """Parse. A WebSocket handshake takes the connection over; other upgrades are not followed.

        The parser assumes that an upgrade is followed and leaves the body: it is fed again, without the upgrade.
        Java's HTTP client asks for h2c with its first request.
        """
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = data[upgrade.args[0] :]
                if self._get_upgrade() == b"websocket" and self.parser.get_method() == b"GET":
                    self._become_websocket(rest)
                    return
                data = self._head_without_upgrade() + rest

    def _become_websocket(self, rest: bytes) -> None:
        """Hand the connection over to the WebSocket protocol, with what has been read of it."""
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        self.arrived = 0
        transport = cast(Corked, self.transport)
        transport.flush()
        protocol = WebSocketProtocol(self.config, self.server_state, self.app_state, self.watch, self.peer)
        line = b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)
        head = b"\r\n".join([line, *(b"%b: %b" % header for header in self.headers), b"", b""])
        protocol.connection_made(transport.transport)
        transport.transport.set_protocol(protocol)
        protocol.begin(head, rest)

    def _head_without_upgrade(self) -> bytes:
        line = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([line, *headers, b"", b""])

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        HttpToolsProtocol.on_message_begin(self)
        self.reading, self.since = HEAD, None
        if self.peer is not None:
            cast("dict[str, Any]", self.scope)[PEER] = self.peer

    def on_headers_complete(self) -> None:
        if len(self.headers) > self.limits.max_headers:
            raise TooManyHeaders(self.limits.max_headers)
        headers = dict(self.headers)
        if len(headers) != len(self.headers):
            self._check_repeated()
        version = self.parser.get_http_version()
        if version != "1.1":
            if version != "1.0":
                raise UnsupportedHTTP(version)
        elif b"host" not in headers:
            raise MissingHost
        most = self.limits.max_head_bytes
        if (self.piece > most or self.arrived > most) and self._head_size() > most:
            raise LongHead(most)
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise Malformed
            return
        HttpToolsProtocol.on_headers_complete(self)
        self.headers = [*self.headers]  # the parser appends trailers to its list, and they are not headers
        self.reading, self.since, self.arrived = BODY, None, 0
        if (b"content-length" in headers or b"transfer-encoding" in headers) and not self._awaits_rest(headers):
            self.cycle.default_headers = [*self.cycle.default_headers, CLOSE]  # unless it arrives before the answer

    def on_body(self, body: bytes) -> None:
        self.arrived = 0
        HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self.reading, self.arrived = NOTHING, 0
        if self.cycle.response_complete:
            self._stay()
        else:
            self.cycle.default_headers = self.server_state.default_headers
        HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        HttpToolsProtocol.on_response_complete(self)
        if self.reading != BODY:
            return
        if not self.refused and self.cycle.response_complete:
            self._await_rest()

    def _check_repeated(self) -> None:
        seen: set[bytes] = set()
        for name, _ in self.headers:
            if name in seen and name in SINGLE:
                raise RepeatedHeader(name.decode())
            seen.add(name)

    def _awaits_rest(self, headers: dict[bytes, bytes]) -> bool:
        """Say whether the connection is worth the rest of a body that nobody reads."""
        if b"transfer-encoding" in headers or self.expect_100_continue:
            return False
        return int(headers.get(b"content-length", 0)) <= AWAITED_BYTES

    def _head_size(self) -> int:
        line = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n")
        return line + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers) + len("\r\n")

    # Limits

    def look(self, now: float) -> None:
        if not self._is_read(now):
            REFUSED["write_time"] += 1
            self.transport.abort()
        elif not self._is_awaited():
            self.since = None
        elif self.since is None:
            self.since = now
        elif now - self.since >= self.limits.head_s:
            self._give_up()

    def _is_read(self, now: float) -> bool:
        """False if the client has read nothing of what it is sent for longer than the limit."""
        unsent = self.transport.get_write_buffer_size()
        before, self.sent = self.sent, cast(Corked, self.transport).written - unsent
        if not unsent:
            self.stalled = None
        elif self.stalled is None or self.sent > before:
            self.stalled = now
        return self.stalled is None or now - self.stalled < self.limits.write_s

    def linger(self, now: float) -> None:
        if not self._is_read(now):
            REFUSED["write_time"] += 1
            self.transport.abort()
        elif self.transport.get_write_buffer_size():
            return
        elif self.since is None:
            self.since = now
        elif now - self.since >= LINGER_S:
            self.transport.abort()

    def _is_awaited(self) -> bool:
        """True if the next move is the client's."""
        if self.refused or self.flow.read_paused or self.transport.is_closing():
            return False
        return self.reading == BODY or (self.reading == HEAD and not self._is_answering())

    def _give_up(self) -> None:
        if self.reading == BODY:
            self.refuse(SlowBody(self.limits.head_s))
        elif self.scope is not None:
            self.refuse(SlowHead(self.limits.head_s))
        else:  # browsers open connections in advance, and would take a refusal for the answer to their next request
            REFUSED["head_time"] += 1
            self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def refuse(self, refusal: ConnectionRefusal) -> None:
        """Read no more, and answer unless the client would take that for the answer to another request."""
        REFUSED[refusal.kind] += 1
        self.refused = True
        if self._is_answering():
            if self.reading != BODY:
                self.cycle.keep_alive = False  # the connection closes after the answers to the earlier requests
                return
            if self.cycle.response_started or self.pipeline:
                self.transport.abort()
                return
            self.cycle.disconnected = True
            self.cycle.waiting_for_100_continue = False
            self.cycle.message_event.set()
        self.transport.write(answer(refusal, self.server_state.default_headers))
        self.leave()

    # Answers before the end of the request

    def is_early(self) -> bool:
        """Say whether a request has an answer, and not all of its body has arrived."""
        if self.reading != BODY or self.refused or self.watch.closed or self.transport.is_closing():
            return False
        return self.cycle.response_started

    def leave(self) -> None:
        """Close for writing, and drop what still arrives for a short time: a reset could cost the client the answer."""
        self.refused = True
        if self.watch.closed:
            self.transport.close()
            return
        self._await_rest()
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _await_rest(self) -> None:
        """Let the sweep end the connection soon."""
        self.connections.discard(self)
        self.watch.leaving.add(self)
        self.since = None

    def _stay(self) -> None:
        """Keep the connection: the rest of the answered request has arrived in time."""
        self.watch.leaving.discard(self)
        self.connections.add(self)


def _peer(transport: asyncio.Transport) -> Peer | None:
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if tls is not None:
        der = tls.getpeercert(binary_form=True) if tls.context.verify_mode != ssl.CERT_NONE else None
        try:
            return None if der is None else certified(der)
        except NamesNobody as error:
            log.warning("ignoring a client certificate: %s", error)
            return None
    connection: socket.socket | None = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    _, uid, _ = UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))
    return local_user(uid)


class Corked:
    """A transport that collects what is written in one turn of the event loop, and sends it together at its end."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.transport = transport
        self.loop = loop
        self.pending: list[bytes] = []
        self.size = 0
        self.written = 0
        """Bytes that the transport has been given."""

    def write(self, data: bytes) -> None:
        if len(data) >= FLUSH_BYTES:
            self.flush()
            self._pass(data)
            return
        if not self.pending:
            self.loop.call_soon(self.flush)
        self.pending.append(data)
        self.size += len(data)
        if self.size > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.pending:
            data, self.pending, self.size = b"".join(self.pending), [], 0
            self._pass(data)

    def _pass(self, data: bytes) -> None:
        if not self.transport.is_closing():  # uvloop raises if the client has disconnected meanwhile
            self.written += len(data)
            self.transport.write(data)

    def write_eof(self) -> None:
        self.flush()
        if not self.transport.is_closing():
            self.transport.write_eof()

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class LingeringTransport(Corked):
    """A transport that does not close while its client still sends a request that has its answer."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, connection: HTTPProtocol) -> None:
        super().__init__(transport, loop)
        self.connection = connection

    def close(self) -> None:
        if self.connection.is_early():
            self.connection.leave()
        else:
            super().close()
