"""HTTP and WebSocket as the doors see them: a request, a connection, and the ways to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from roost.engine.bodies import BodyReader
from roost.identity.peers import Peer
from roost.protocol.errors import InvalidParams, PayloadTooLarge

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
REPLAYED = (b"idempotent-replayed", b"true")
"""The header of a response to a repeated message, which is the same as the first one."""
MAX_QUERY = 16 * 1024
PIECE = 64 * 1024
"""Bytes of a body that are written at once. Then the client has to read, before there is more."""
MAX_REASON = 123
"""Bytes of the reason in a WebSocket close frame (RFC 6455)."""
NOT_KEPT: Headers = [(b"cache-control", b"no-store")]
"""Responses for one caller must not be stored by caches."""


class ClientGone(Exception):
    """The client left before its request was read."""


class RequestHead:
    """The part of a request that is known before its body, at any door: its headers and its sender."""

    __slots__ = ("client", "extensions", "fields", "headers", "method", "peer", "reader", "route")

    def __init__(self, method: str, route: str, fields: Headers, client: str | None, peer: Peer | None) -> None:
        self.method = method
        self.route = route
        """The template of the route, for metrics and logs."""
        self.fields = fields
        """The headers as received. A name may occur more than once."""
        self.headers: dict[bytes, bytes] = dict(fields)
        self.client = client
        """The address of the sender; None on a Unix socket."""
        self.peer = peer
        self.extensions: list[str] = []
        """URIs of the extensions that this request activates. Only Admission writes this; the response echoes it."""
        self.reader: BodyReader | None = None
        """The client as the reader of large bodies. Only Call writes this; the body is released after the response."""

    async def left(self) -> None:
        """Wait until the client has left, then raise ClientGone. A gRPC call is cancelled instead."""
        await asyncio.get_running_loop().create_future()

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    def header_list(self, name: bytes) -> list[str]:
        """Return all values of a header that may be repeated or comma separated."""
        values = [value for key, value in self.fields if key == name]
        return [item.strip() for value in values for item in value.decode("latin-1").split(",") if item.strip()]


class Place(NamedTuple):
    """The agent that a path belongs to, and the rest of the path."""

    agent: str
    """Empty where the path belongs to no agent."""
    below: str
    """The path below the agent's base path."""
    prefix: str
    """The template of that base path; empty for the agent that the root path serves."""


class Connection(RequestHead):
    """The common part of HTTP requests and WebSocket connections."""

    __slots__ = ("held", "path", "place", "receive", "response_headers", "scope", "send", "status")

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, path: str, place: Place, common: Headers, method: str
    ) -> None:
        client = scope.get("client")
        super().__init__(method, "unmatched", scope["headers"], client[0] if client else None, scope.get("roost.peer"))
        self.scope = scope
        self.receive = receive
        self.send = send
        self.path = path
        self.place = place
        self.response_headers: Headers = list(common)
        """Headers that every response to this request carries, errors included."""
        self.status = 0
        """The status of the response. Once it is set, no error can be sent any more."""
        self.held: Callable[[], None] | None = None
        """Gives back the room that a large body takes. Only RequestReader writes this."""

    async def left(self) -> None:
        while (await self.receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
            pass
        raise ClientGone

    @property
    def query(self) -> dict[str, str]:
        raw: bytes = self.scope.get("query_string", b"")
        if not raw:
            return {}
        if len(raw) > MAX_QUERY:
            raise InvalidParams(f"the query is longer than {MAX_QUERY} bytes", field="query")
        try:
            return dict(parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64))
        except ValueError as error:
            raise InvalidParams(f"the query cannot be read: {error}", field="query") from None


class Request(Connection):
    """An HTTP request."""

    __slots__ = ()

    def let_go(self) -> None:
        """Give back the room for the body, which has been decoded."""
        if self.held is not None:
            held, self.held = self.held, None
            held()

    async def body(self, limit: int, room: Callable[[int, int], Awaitable[None]] | None = None) -> bytes:
        """Read the body. `room` is told how much of a large one has arrived, and waits until there is room for it."""
        length = self.headers.get(b"content-length")
        expected = int(length) if length is not None and length.isdigit() else limit
        if expected > limit:
            raise PayloadTooLarge(f"The body has {expected} bytes; at most {limit} are read")
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise PayloadTooLarge(f"The body is longer than {limit} bytes")
            if not message.get("more_body"):
                return b"".join((*pieces, piece)) if pieces else piece
            pieces.append(piece)
            if size > PIECE and room is not None:
                await room(size, expected)


class WebSocket(Connection):
    """A WebSocket connection. `status` is 101 once it has been accepted."""

    __slots__ = ("_ended",)

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, path: str, place: Place, common: Headers, method: str
    ) -> None:
        super().__init__(scope, receive, send, path, place, common, method)
        self._ended = False

    async def accept(self, subprotocol: str | None = None) -> None:
        message = await self.receive()
        if message["type"] != "websocket.connect":
            raise ClientGone
        self.status = 101
        headers = list(self.response_headers)
        await self.send({"type": "websocket.accept", "subprotocol": subprotocol, "headers": headers})

    async def read(self) -> str | bytes:
        """Return the next message of the client. Raise ClientGone when the connection has ended."""
        message = await self.receive()
        if message["type"] == "websocket.disconnect":
            self._ended = True
            raise ClientGone
        text: str | None = message.get("text")
        return message["bytes"] if text is None else text

    async def write(self, message: str | bytes) -> None:
        if self._ended:
            raise ClientGone
        key = "text" if isinstance(message, str) else "bytes"
        try:
            await self.send({"type": "websocket.send", key: message})
        except OSError:
            self._ended = True
            raise ClientGone from None

    async def deny(self, response: Response) -> None:
        """Refuse the handshake with an HTTP response."""
        self._ended = True
        self.status = response.status
        headers = [*response.headers, *self.response_headers, (b"content-type", response.content_type)]
        if "websocket.http.response" in self.scope.get("extensions", {}):
            start = {"type": "websocket.http.response.start", "status": response.status, "headers": headers}
            await self.send(start)
            await self.send({"type": "websocket.http.response.body", "body": response.body})
        else:
            await self.send({"type": "websocket.close"})

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if not self._ended:
            self._ended = True
            cut = reason.encode()[:MAX_REASON].decode(errors="ignore")
            await self.send({"type": "websocket.close", "code": code, "reason": cut})


class Response(NamedTuple):
    status: int
    body: bytes
    content_type: bytes = JSON
    headers: Headers = []
    before: bytes = b""
    """Bytes that are sent before the body, where that is too large to be copied into another one."""
    after: bytes = b""


async def respond(request: Request, response: Response) -> None:
    headers: Headers = [*(response.headers or NOT_KEPT), *request.response_headers]
    size = len(response.before) + len(response.body) + len(response.after)
    if size > PIECE and request.reader is not None:
        request.reader.admit(size)
    if response.status not in (204, 304):  # their length would be that of a body which is not sent
        headers += [(b"content-type", response.content_type), (b"content-length", b"%d" % size)]
    headers += activated(request)
    request.status = response.status
    await request.send({"type": "http.response.start", "status": response.status, "headers": headers})
    if request.method == "HEAD":
        await request.send({"type": "http.response.body", "body": b""})
    elif size <= PIECE:
        await request.send({"type": "http.response.body", "body": response.before + response.body + response.after})
    else:
        await send_body(request.send, pieces_of(response.before, response.body, response.after))


async def send_body(send: Send, pieces: Iterable[bytes], *, more: bool = False) -> None:
    """Write a large body piece by piece, as its client reads it. Others have a turn after each piece."""
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)
    if not more:
        await send({"type": "http.response.body", "body": b""})


def pieces_of(*parts: bytes) -> Iterator[bytes]:
    """Divide a body. The pieces are copies, so that one which waits to be sent does not keep the whole."""
    for part in parts:
        for start in range(0, len(part), PIECE):
            yield part[start : start + PIECE]


def paced(send: Send) -> Send:
    """A `send` that writes large bodies piece by piece, for applications of others."""

    async def written(message: MutableMapping[str, Any]) -> None:
        body = message.get("body", b"")
        if len(body) <= PIECE:
            await send(message)
        else:
            await send_body(send, pieces_of(body), more=message.get("more_body", False))

    return written


def activated(request: RequestHead) -> Headers:
    """The header that names the activated extensions, if there are any."""
    if not request.extensions:
        return []
    return [(b"a2a-extensions", ", ".join(request.extensions).encode("latin-1", "replace"))]


def preferred_json(request: RequestHead) -> bytes:
    """Return application/a2a+json unless the client prefers application/json."""
    accept = request.headers.get(b"accept")
    if accept is None or JSON not in accept:
        return A2A_JSON
    ranks: dict[bytes, float] = {}
    for item in accept.split(b","):
        kind, *parameters = (piece.strip() for piece in item.split(b";"))
        quality = next((piece[2:] for piece in parameters if piece.startswith(b"q=")), b"1")
        try:
            ranks[kind] = float(quality)
        except ValueError:
            ranks[kind] = 0.0
    return A2A_JSON if ranks.get(A2A_JSON, 0.0) >= ranks.get(JSON, 0.0) else JSON
