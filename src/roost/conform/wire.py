"""HTTP to a host that may do anything: everything has a limit, in bytes and in time, and nobody is followed."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple

import httpx

from roost.conform.outcome import CheckFailed, NotJudged

MAX_BODY = 4 * 1024 * 1024
MAX_EVENTS = 10_000
IDLE_S = 1.0
"""A connection that was idle for longer is not used again: the host may be about to close it."""


class NoAnswer(CheckFailed):
    """Nothing came, or what came was no HTTP."""


class RawResponse(NamedTuple):
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def kind(self) -> str:
        """Its media type."""
        return str(self.headers.get("content-type", "")).partition(";")[0].strip().lower()

    def json(self, expected: str = "JSON") -> Any:
        return parsed(self.body, f"{expected} (HTTP {self.status}, {self.kind or 'no Content-Type'})")

    def seen(self) -> str:
        return f"HTTP {self.status} {self.kind}\n{self.text}"


def parsed(body: bytes, expected: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise CheckFailed(body.decode("utf-8", "replace"), f"{expected}, and it is not JSON") from None


class RawEvent(NamedTuple):
    """One server-sent event."""

    id: str | None
    data: bytes


class Opened(NamedTuple):
    """A response whose body is still to come."""

    status: int
    headers: httpx.Headers
    response: httpx.Response
    limit: float

    async def reply(self) -> RawResponse:
        body = b""
        async for piece in self.response.aiter_raw():
            body += piece
            if len(body) > MAX_BODY:
                raise NoAnswer(f"more than {MAX_BODY} bytes", "an answer of a reasonable size")
        return RawResponse(self.status, self.headers, body)

    async def frames(self) -> AsyncIterator[RawEvent]:
        """Those that are whole. Ends where the host ends the stream."""
        number: str | None = None
        data: list[bytes] = []
        events = 0
        async for line in self._lines():
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                if data:
                    events += 1
                    if events > MAX_EVENTS:
                        raise NoAnswer(f"more than {MAX_EVENTS} events", "a stream that ends")
                    yield RawEvent(number, b"\n".join(data))
                number, data = None, []
            elif name == b"data":
                data.append(value)
            elif name == b"id":
                number = value.decode("utf-8", "replace")

    async def _lines(self) -> AsyncIterator[bytes]:
        rest, total = b"", 0
        async for piece in self.response.aiter_raw():
            total += len(piece)
            if total > MAX_BODY * 4:
                raise NoAnswer(f"more than {MAX_BODY * 4} bytes", "a stream that ends")
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield line.removesuffix(b"\r")
            if len(rest) > MAX_BODY:
                raise NoAnswer(f"a line of more than {MAX_BODY} bytes", "server-sent events")


def authorities() -> ssl.SSLContext:
    """Those of the user's own, where a variable names them."""
    own = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=own)
    except OSError as error:
        raise NotJudged(f"SSL_CERT_FILE: cannot read {own}: {error.strerror or error}") from None


class Http:
    """One client for all bindings on HTTP. `limit` is in seconds, for each request."""

    def __init__(self, limit: float, secure: bool) -> None:
        self.limit = limit
        self.secure = secure
        self.client = self._made()

    def _made(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            timeout=httpx.Timeout(self.limit),
            follow_redirects=False,
            trust_env=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # a session would be a credential
            verify=authorities() if self.secure else False,  # they take 50 ms to load
            headers={"Accept-Encoding": "identity", "User-Agent": "roost-conform"},
            limits=httpx.Limits(max_connections=64, keepalive_expiry=IDLE_S),
        )

    async def with_tls(self) -> None:
        """From now on hosts have to prove who they are, where there is TLS."""
        if not self.secure:
            await self.client.aclose()
            self.secure = True
            self.client = self._made()

    async def fetch(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> RawResponse:
        async with self.open(method, url, headers, content) as opened:
            return await opened.reply()

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        limit: float | None = None,
    ) -> AsyncIterator[Opened]:
        """All that is done with it has to be done within the limit."""
        seconds = limit or self.limit
        try:
            async with asyncio.timeout(seconds):
                request = self.client.build_request(method, url, headers=headers, content=content)
                response = await self.client.send(request, stream=True)
                try:
                    yield Opened(response.status_code, response.headers, response, seconds)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.TimeoutException):
            raise NoAnswer(f"{method} {url}: no end within {seconds:g} s", "an answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            told = f"{method} {url}: {type(error).__name__}: {error}"
            raise NoAnswer(told, "an answer") from None

    async def close(self) -> None:
        await self.client.aclose()
