"""HTTP to one host, on httpcore: httpx takes longer to import than a command takes to run."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import httpcore

from roost._version import VERSION
from roost.addresses import is_loopback
from roost.cli.errors import USAGE, CommandFailed, Dropped, Unreachable

UNIX = "unix:"
JSON = {"Content-Type": "application/json"}
CONNECT_S = 5.0
ANSWER_S = 30.0
SILENCE_S = 45.0
"""A stream that is silent for three of the host's heartbeats is dead."""


class Transport:
    """Sends requests to the host at `url`, through a proxy where the environment names one for other machines."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = url
        self.base = "http://localhost" if url.startswith(UNIX) else url
        self.headers = {"User-Agent": f"roost/{VERSION}", "Accept": "*/*", **headers}
        self.pool = _pool(url)

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        read_s: float = ANSWER_S,
    ) -> Iterator[httpcore.Response]:
        """The response, whose body can be read until the block ends."""
        target = f"{self.base}{path}{'?' + urlencode(query) if query else ''}"
        timeout = {"connect": CONNECT_S, "read": read_s, "write": read_s, "pool": CONNECT_S}
        sent = [*{**self.headers, **({} if body is None else JSON), **(headers or {})}.items()]
        try:
            with self.pool.stream(
                method, target, headers=sent, content=body, extensions={"timeout": timeout}
            ) as response:
                yield response
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            why = f" ({error})" if "SSL" in str(error) else ""
            raise Unreachable(
                f"nothing answers at {self.url}{why}; start it with `roost serve ...` or set --url"
            ) from None
        except (
            httpcore.NetworkError,
            httpcore.TimeoutException,
            httpcore.ProtocolError,
            httpcore.ProxyError,
        ) as error:
            raise Dropped(f"the connection to {self.url} was lost: {str(error) or type(error).__name__}") from None


def checked_url(url: str) -> str:
    """The URL of a host in ASCII, without a slash at its end."""
    if url.startswith(UNIX) and len(url) > len(UNIX):
        return url
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise CommandFailed("--url must not hold a password: use --token or ROOST_TOKEN", USAGE)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        parts = parts._replace(
            netloc=parts.netloc.encode("idna").decode(), path=quote(parts.path, safe="/%:@!$&'()*+,;=")
        )
    except ValueError as error:
        raise CommandFailed(f"{url!r} cannot be --url: {error}", USAGE) from None
    if not usable or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise CommandFailed(f"{url!r} cannot be --url: give http(s)://host[:port] or unix:PATH", USAGE)
    return parts.geturl().rstrip("/")


def authorities() -> ssl.SSLContext | None:
    """The certificate authorities that SSL_CERT_FILE names; None for the default ones."""
    own = os.environ.get("SSL_CERT_FILE")
    try:
        return ssl.create_default_context(cafile=own) if own else None
    except OSError as error:
        raise CommandFailed(f"SSL_CERT_FILE: cannot read {own}: {error.strerror or error}", USAGE) from None


def _pool(url: str) -> httpcore.ConnectionPool:
    if url.startswith(UNIX):
        return httpcore.ConnectionPool(uds=url.removeprefix(UNIX))
    context = authorities() if url.startswith("https:") else None
    proxy = _proxy(url)
    if not proxy:
        return httpcore.ConnectionPool(ssl_context=context)
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in ("http", "https"):
        raise CommandFailed(f"cannot use the proxy for {url}: its scheme is {parts.scheme!r}, not http or https", USAGE)
    login = None if parts.username is None else (parts.username, parts.password or "")
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return httpcore.HTTPProxy(place, proxy_auth=login, ssl_context=context)


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for the host, if any. Hosts on this machine need none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies = {} if proxy_bypass(host) else getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


class ServerSentEvent(NamedTuple):
    id: int | None
    data: bytes


def frames(chunks: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Every complete server-sent event. One that the connection cut off is not an event."""
    number: int | None = None
    data: list[bytes] = []
    for line in _lines(chunks):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                yield ServerSentEvent(number, b"\n".join(data))
            number, data = None, []
        elif name == b"data":
            data.append(value)
        elif name == b"id" and value.isdigit():
            number = int(value)


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []
    for chunk in chunks:
        head, *rest = chunk.split(b"\n")
        begun.append(head)
        for piece in rest:
            yield b"".join(begun).removesuffix(b"\r")
            begun = [piece]
