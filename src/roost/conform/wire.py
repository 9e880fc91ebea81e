"""Responses of a host that may send anything: a body, or a stream of server-sent events. Both have a limit in bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpcore
import httpx

from roost.conform.outcome import CheckFailed

MAX_BODY = 4 * 1024 * 1024
"""Bytes of a body, and of one line of a stream."""
MAX_STREAM = 4 * MAX_BODY
"""Bytes of a whole stream."""
MAX_EVENTS = 10_000
"""Events of a stream."""


class NoAnswer(CheckFailed):
    """The host sent no response, or one that is not HTTP, that is too long or that does not end."""


class RawResponse(NamedTuple):
    """A response with its whole body."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def kind(self) -> str:
        """The media type, in lower case and without its parameters."""
        return media_type(self.headers)

    def json(self, expected: str = "JSON") -> Any:
        return parsed(self.body, f"{expected} (HTTP {self.status}, {self.kind or 'no Content-Type'})")

    def seen(self) -> str:
        """The response as a report shows it."""
        return f"HTTP {self.status} {self.kind}\n{self.text}"


class RawEvent(NamedTuple):
    """One server-sent event."""

    id: str | None
    data: bytes


class OpenedResponse(NamedTuple):
    """A response whose body has not been read yet."""

    status: int
    headers: httpx.Headers
    response: httpcore.Response

    @property
    def kind(self) -> str:
        """The media type, in lower case and without its parameters."""
        return media_type(self.headers)

    async def read(self) -> RawResponse:
        body = b""
        async for piece in self.response.aiter_stream():
            body += piece
            if len(body) > MAX_BODY:
                raise NoAnswer(f"more than {MAX_BODY} bytes", "a response of a reasonable size")
        return RawResponse(self.status, self.headers, body)

    async def events(self) -> AsyncIterator[RawEvent]:
        """Yield every complete event until the host ends the stream."""
        number: str | None = None
        data: list[bytes] = []
        count = 0
        async for line in self._lines():
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                if data:
                    count += 1
                    if count > MAX_EVENTS:
                        raise NoAnswer(f"more than {MAX_EVENTS} events", "a stream that ends")
                    yield RawEvent(number, b"\n".join(data))
                number, data = None, []
            elif name == b"data":
                data.append(value)
            elif name == b"id":
                number = value.decode("utf-8", "replace")

    async def _lines(self) -> AsyncIterator[bytes]:
        rest, total = b"", 0
        async for piece in self.response.aiter_stream():
            total += len(piece)
            if total > MAX_STREAM:
                raise NoAnswer(f"more than {MAX_STREAM} bytes", "a stream that ends")
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.removesuffix(b"\r")
            if len(rest) > MAX_BODY:
                raise NoAnswer(f"a line of more than {MAX_BODY} bytes", "server-sent events")


def media_type(headers: httpx.Headers) -> str:
    return str(headers.get("content-type", "")).partition(";")[0].strip().lower()


def parsed(body: bytes, expected: str) -> Any:
    """Parse JSON. CheckFailed says what was expected."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise CheckFailed(body.decode("utf-8", "replace"), f"{expected}, as JSON") from None
