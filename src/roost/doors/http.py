"""HTTP as the doors see it: a request that has been read, and the ways to answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from roost.identity.peers import Peer
from roost.protocol.errors import InvalidParams, PayloadTooLarge

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
REPLAYED = (b"idempotent-replayed", b"true")
"""The message had been here before: this is the answer that it had then."""
MAX_QUERY = 16 * 1024
NOT_KEPT: Headers = [(b"cache-control", b"no-store")]
"""What is somebody's own is in no cache."""


class ClientGone(Exception):
    """The client left before its request was read."""


class RequestHead:
    """What a request says of itself before its body, at whichever door: its headers, and who is at the other end."""

    __slots__ = ("client", "extensions", "fields", "headers", "method", "peer", "route")

    def __init__(self, method: str, route: str, fields: Headers, client: str | None, peer: Peer | None) -> None:
        self.method = method
        self.route = route
        """The route's template, for metrics."""
        self.fields = fields
        """The headers as they came: one may be there twice."""
        self.headers: dict[bytes, bytes] = dict(fields)
        self.client = client
        """The address of the other end; None on a Unix socket."""
        self.peer = peer
        self.extensions: list[str] = []
        """URIs that the client asked for and the agent has: echoed in the answer."""

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    def header_list(self, name: bytes) -> list[str]:
        """All values of a header that may be repeated or comma separated."""
        values = [value for key, value in self.fields if key == name]
        return [item.strip() for value in values for item in value.decode("latin-1").split(",") if item.strip()]


class Request(RequestHead):
    __slots__ = ("answer_headers", "path", "receive", "scope", "send", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send, path: str, common: Headers = []) -> None:  # noqa: B006
        client = scope.get("client")
        super().__init__(
            scope["method"], "unmatched", scope["headers"], client[0] if client else None, scope.get("roost.peer")
        )
        self.scope = scope
        self.receive = receive
        self.send = send
        self.path = path
        self.answer_headers: Headers = list(common)
        self.status = 0
        """Of the answer; once it has begun no error can be sent any more."""

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

    async def body(self, limit: int) -> bytes:
        length = self.headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length) > limit:
            raise PayloadTooLarge(f"The body has {int(length)} bytes; at most {limit} are read")
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


class Response(NamedTuple):
    status: int
    body: bytes
    content_type: bytes = JSON
    headers: Headers = []


async def respond(request: Request, response: Response) -> None:
    headers: Headers = [*(response.headers or NOT_KEPT), *request.answer_headers]
    if response.status not in (204, 304):  # there the length would be that of the whole card
        headers += [(b"content-type", response.content_type), (b"content-length", b"%d" % len(response.body))]
    if request.extensions:
        headers.append((b"a2a-extensions", ", ".join(request.extensions).encode("latin-1", "replace")))
    request.status = response.status
    await request.send({"type": "http.response.start", "status": response.status, "headers": headers})
    body = b"" if request.method == "HEAD" else response.body
    await request.send({"type": "http.response.body", "body": body})


def preferred_json(request: Request) -> bytes:
    """application/a2a+json unless the client prefers application/json."""
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
