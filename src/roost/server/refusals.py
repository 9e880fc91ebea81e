"""Answers to what is not a complete request yet. Its binding is unknown, so they have the form of REST's errors.

ConnectionRefusal
├── SlowHead, SlowBody              408
├── LongHead, TooManyHeaders        431
├── Malformed, MissingHost          400
├── RepeatedHeader, UnsupportedHTTP 400
└── TooManyConnections              503
"""

from __future__ import annotations

from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from roost.doors.counters import RefusalKind
from roost.protocol.codec import encode
from roost.protocol.errors import RoostError


class ConnectionRefusal(RoostError):
    kind: ClassVar[RefusalKind]


class SlowHead(ConnectionRefusal):
    kind = "head_time"
    http, grpc, reason = 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"The request's headers did not arrive within {seconds:g} s")


class SlowBody(ConnectionRefusal):
    kind = "body_time"
    http, grpc, reason = 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Nothing more of the request's body arrived for {seconds:g} s")


class LongHead(ConnectionRefusal):
    kind = "head_size"
    http, grpc, reason = 431, "RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE"

    def __init__(self, most: int) -> None:
        super().__init__(f"The request's line and headers are longer than {most} bytes")


class TooManyHeaders(ConnectionRefusal):
    kind = "headers"
    http, grpc, reason = 431, "RESOURCE_EXHAUSTED", "TOO_MANY_HEADERS"

    def __init__(self, most: int) -> None:
        super().__init__(f"The request has more than {most} headers")


class Malformed(ConnectionRefusal):
    kind = "malformed"
    http, grpc, reason = 400, "INVALID_ARGUMENT", "INVALID_REQUEST"

    def __init__(self) -> None:
        super().__init__("This is not a valid HTTP/1.1 request")


class MissingHost(ConnectionRefusal):
    kind = "malformed"
    http, grpc, reason = 400, "INVALID_ARGUMENT", "INVALID_REQUEST"

    def __init__(self) -> None:
        super().__init__("The request has no Host header, which HTTP/1.1 requires")


class RepeatedHeader(ConnectionRefusal):
    kind = "malformed"
    http, grpc, reason = 400, "INVALID_ARGUMENT", "INVALID_REQUEST"

    def __init__(self, name: str) -> None:
        super().__init__(f"The header {name} is there more than once; send it once", field=name)


class UnsupportedHTTP(ConnectionRefusal):
    kind = "malformed"
    http, grpc, reason = 400, "INVALID_ARGUMENT", "INVALID_REQUEST"

    def __init__(self, version: str) -> None:
        super().__init__(f"HTTP/{version} is not served here; use HTTP/1.1")


class TooManyConnections(ConnectionRefusal):
    kind = "connections"
    http, grpc, reason = 503, "UNAVAILABLE", "TOO_MANY_CONNECTIONS"

    def __init__(self) -> None:
        super().__init__("The host has reached its limit of connections; try again in a moment", retry_after=1)


def answer(refusal: ConnectionRefusal, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The complete response. The connection is closed after it."""
    error = {
        "code": refusal.http,
        "status": refusal.grpc,
        "message": refusal.message,
        "details": refusal.details(),
    }
    body = encode({"error": error})
    lines = [
        *headers,
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if refusal.retry_after is not None:
        lines.append((b"retry-after", b"%d" % refusal.retry_after))
    head = b"".join(b"%b: %b\r\n" % line for line in lines)
    return STATUS_LINE[refusal.http] + head + b"\r\n" + body
