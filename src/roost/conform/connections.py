"""HTTP/1.1 to a host that may do anything: every request has a time limit, and no redirect is followed.

A host may close a connection between two requests, and the client learns of it only when it sends the next one. So a
request that fails on a reused connection before any byte of its response has arrived is sent once more, on a fresh
connection. A request that fails on a fresh connection is not sent again: it may have had its effect.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, NamedTuple

import httpcore
import httpx

from roost.conform.outcome import NotJudged
from roost.conform.wire import NoAnswer, OpenedResponse, RawResponse

IDLE_S = 1.0
"""Seconds for which an idle connection is kept."""
PORTS = {"http": 80, "https": 443}
HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "roost-conform"}
FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException)


class WatchedStream(httpcore.AsyncNetworkStream):
    """A network stream that knows whether anything has arrived on it."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self.received = 0
        """Bytes received since the connection was opened."""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = await self._stream.read(max_bytes, timeout)
        self.received += len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class PooledConnection(NamedTuple):
    stream: WatchedStream
    http: httpcore.AsyncHTTP11Connection


class Http:
    """The HTTP client of every binding. `limit` is in seconds, for each request and all of its response."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._idle: list[PooledConnection] = []

    async def fetch(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> RawResponse:
        async with self.open(method, url, headers, content) as opened:
            return await opened.read()

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> AsyncIterator[OpenedResponse]:
        """Send a request. The time limit includes everything that the caller does with the response."""
        try:
            async with asyncio.timeout(self.limit):
                request = _request(method, url, headers or {}, content)
                connection, response = await self._send(request)
                try:
                    yield OpenedResponse(response.status, httpx.Headers(response.headers), response)
                finally:
                    await response.aclose()
                    await self._keep(connection)
        except TimeoutError:
            raise NoAnswer(f"{method} {url}: no end within {self.limit:g} s", "a response in time") from None
        except (*FAILURES, httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeEncodeError) as error:
            raise NoAnswer(f"{method} {url}: {type(error).__name__}: {error}", "a response") from None

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().http.aclose()

    async def _send(self, request: httpcore.Request) -> tuple[PooledConnection, httpcore.Response]:
        reused = await self._take(request.url.origin)
        if reused is not None:
            before = reused.stream.received
            try:
                return reused, await reused.http.handle_async_request(request)
            except FAILURES:
                if reused.stream.received > before:
                    raise
        fresh = await self._connect(request.url.origin)
        return fresh, await fresh.http.handle_async_request(request)

    async def _take(self, origin: httpcore.Origin) -> PooledConnection | None:
        """Return an idle connection to this origin, if there is one that the host has not closed."""
        for connection in [*self._idle]:
            if connection.http.has_expired():
                self._idle.remove(connection)
                await connection.http.aclose()
            elif connection.http.can_handle_request(origin):
                self._idle.remove(connection)
                return connection
        return None

    async def _keep(self, connection: PooledConnection) -> None:
        if connection.http.is_idle():
            self._idle.append(connection)
        else:
            await connection.http.aclose()

    async def _connect(self, origin: httpcore.Origin) -> PooledConnection:
        host = origin.host.decode("ascii")
        stream = await httpcore.AnyIOBackend().connect_tcp(host, origin.port)
        if origin.scheme == b"https":
            try:
                stream = await stream.start_tls(self._tls, host)
            except BaseException:  # httpcore leaves it open when it is cancelled
                await stream.aclose()
                raise
        watched = WatchedStream(stream)
        return PooledConnection(watched, httpcore.AsyncHTTP11Connection(origin, watched, keepalive_expiry=IDLE_S))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Made for the first connection with TLS: loading the certificates takes 50 ms."""
        return authorities()


def authorities() -> ssl.SSLContext:
    """Trust the certificate authorities in SSL_CERT_FILE, or those of the machine if it is not set."""
    own = os.environ.get("SSL_CERT_FILE")
    try:
        context = ssl.create_default_context(cafile=own)
    except OSError as error:
        raise NotJudged(f"cannot read SSL_CERT_FILE {own}: {error.strerror or error}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _request(method: str, text: str, headers: Mapping[str, str], content: bytes | None) -> httpcore.Request:
    url = httpx.URL(text)
    if url.scheme not in PORTS or not url.host:
        raise httpx.UnsupportedProtocol("the URL must begin with http:// or https:// and name a host")
    sent = httpx.Headers({"Host": url.netloc.decode("ascii"), **HEADERS})
    sent.update(headers)
    if content is not None:
        sent["Content-Length"] = str(len(content))
    place = httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port or PORTS[url.scheme], target=url.raw_path
    )
    return httpcore.Request(method.encode("ascii"), place, headers=sent.raw, content=content)
