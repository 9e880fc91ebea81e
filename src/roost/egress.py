"""The only code that dials an address from a caller or a card.

    url -> parse -> resolve once -> check every address -> dial a checked one -> at most `limit` bytes of response

A name that is resolved, checked and resolved again may have another address the second time. Therefore the connection
is made here, to the address that was checked, and TLS still verifies the name. docs/egress.md says what is refused
and how an operator allows exceptions.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple

import httpcore
import httpx

from roost.addresses import METADATA, Address, Network, kind_of, own_addresses, parts_of

MAX_URL = 2048
MAX_IDLE = 20
IDLE_S = 30.0
OWN_S = 60.0
"""Seconds for which the list of this machine's addresses is cached."""

_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::[0-9]*)?")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_ENTRY = re.compile(r"(\[[^\[\]]+\]|(?:\*\.)?[^:/?#\[\]*]+)(?::([0-9]{1,5}))?")
_FRAMING = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "te", "trailer", "upgrade"}
"""Headers that control how a request is sent; a caller cannot set them."""


class EgressRefused(Exception):
    """The URL must not be dialled, now or later. The message can be shown to a caller; `detail` is for the log."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail
        """The address and the reason: more than a caller may learn about the operator's network."""


class EgressFailed(Exception):
    """There was no valid response in time. The request may be tried again."""


class Policy(NamedTuple):
    """The exceptions that an operator allows, and the addresses of this host besides those of its interfaces."""

    hosts: tuple[str, ...] = ()
    """`name`, `*.name`, `[ipv6]`, each with an optional `:port`, as `policy` writes them."""
    networks: tuple[Network, ...] = ()
    own: tuple[str, ...] = ()


class EgressResponse(NamedTuple):
    status: int
    headers: dict[str, str]
    """Values by lower-case name."""
    body: bytes
    """The body as it was received, cut at the limit."""


def policy(hosts: str, cidrs: str, own: tuple[str, ...] = ()) -> Policy:
    """Make the policy from two comma separated settings. A ValueError names the bad item."""
    return Policy(tuple(_entry(item) for item in _items(hosts)), tuple(_network(item) for item in _items(cidrs)), own)


class Egress:
    """Sends requests to URLs from strangers, within the policy. It belongs to one event loop."""

    def __init__(
        self,
        policy: Policy,
        *,
        connect_s: float = 5.0,
        total_s: float = 15.0,
        max_connections: int = 200,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.hosts = frozenset(policy.hosts)
        self.networks = policy.networks
        self.own = [ip_network(item) for item in policy.own]
        self.connect_s = connect_s
        self.total_s = total_s
        self.given_context = context
        self.slots = asyncio.Semaphore(max_connections)
        self.idle: list[httpcore.AsyncHTTP11Connection] = []
        self.sweeper: asyncio.Task[None] | None = None
        self.closed = False
        self.interfaces: list[Network] = []
        self.interfaces_read = float("-inf")
        """The monotonic time at which the addresses of the interfaces were read."""

    async def check(self, url: str) -> None:
        """Raise EgressRefused if the URL must not be dialled, EgressFailed if its name does not resolve."""
        await self._checked_addresses(_parse(url))

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes = b"",
        *,
        limit: int = 65536,
    ) -> EgressResponse:
        """Send one request and return the response, whatever its status: redirects are not followed."""
        target = _parse(url)
        request = _request(method, target, headers, body)
        try:
            async with asyncio.timeout(self.total_s), self.slots:
                return await self._exchange(target, request, limit)
        except TimeoutError as error:
            raise EgressFailed(f"{target.origin} sent no complete response within {self.total_s:g} s") from error
        except httpcore.LocalProtocolError as error:
            raise EgressRefused(f"{target.origin}: the method or a header is not valid in HTTP") from error
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            raise EgressFailed(f"{target.origin}: {_reason(error)}") from error

    async def close(self) -> None:
        """Close the idle connections. Requests in progress end within their time limit."""
        self.closed = True
        if self.sweeper is not None:
            self.sweeper.cancel()
        while self.idle:
            await self.idle.pop().aclose()

    async def _exchange(self, target: EgressTarget, request: httpcore.Request, limit: int) -> EgressResponse:
        connection = await self._connection(target)
        try:
            response = await connection.handle_async_request(request)
            try:
                body = bytearray()
                async for chunk in response.aiter_stream():
                    body += chunk
                    if len(body) > limit:
                        break
            finally:
                await response.aclose()
        finally:
            await self._keep(connection)
        return EgressResponse(response.status, _joined(response.headers), bytes(body[:limit]))

    async def _connection(self, target: EgressTarget) -> httpcore.AsyncHTTP11Connection:
        """Return an idle connection, whose address was checked when it was dialled, or a new one."""
        origin = target.url.origin
        while (connection := next((idle for idle in self.idle if idle.can_handle_request(origin)), None)) is not None:
            self.idle.remove(connection)
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return httpcore.AsyncHTTP11Connection(origin, await self._dial(target), keepalive_expiry=IDLE_S)

    async def _keep(self, connection: httpcore.AsyncHTTP11Connection) -> None:
        """Keep the connection for reuse. An unfinished exchange has closed its connection; a finished one is idle."""
        if self.closed or not connection.is_idle():
            await connection.aclose()
            return
        self.idle.append(connection)
        if self.sweeper is None or self.sweeper.done():
            self.sweeper = asyncio.get_running_loop().create_task(self._sweep())
        if len(self.idle) > MAX_IDLE:
            await self.idle.pop(0).aclose()

    async def _sweep(self) -> None:
        """Close connections that have been idle for too long, until none is idle."""
        while self.idle:
            await asyncio.sleep(IDLE_S)
            expired = [connection for connection in self.idle if connection.has_expired()]
            self.idle = [connection for connection in self.idle if connection not in expired]
            for connection in expired:
                await connection.aclose()

    async def _dial(self, target: EgressTarget) -> httpcore.AsyncNetworkStream:
        addresses = await self._checked_addresses(target)
        stream = await self._connect(target.port, addresses)
        if target.scheme == "http":
            return stream
        try:
            return await stream.start_tls(self._context, target.host, timeout=self.connect_s)
        except BaseException:  # httpcore leaves it open when it is cancelled
            await stream.aclose()
            raise

    async def _connect(self, port: int, addresses: list[Address]) -> httpcore.AsyncNetworkStream:
        """Connect to the first address that accepts the connection."""
        backend = httpcore.AnyIOBackend()
        while True:
            address = addresses.pop(0)
            try:
                return await backend.connect_tcp(str(address), port, timeout=self.connect_s)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if not addresses:
                    raise

    async def _checked_addresses(self, target: EgressTarget) -> list[Address]:
        """Return the addresses of the target, all of which may be dialled."""
        addresses = await self._resolve(target)
        named = any(name in self.hosts for name in target.names())
        for address in addresses:
            for part in parts_of(address):
                self._check_address(target, part, named)
        return addresses

    async def _resolve(self, target: EgressTarget) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect_s):
                found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # a TimeoutError is an OSError
            raise EgressFailed(f"{target.origin}: the name does not resolve") from error
        families = (socket.AF_INET, socket.AF_INET6)
        addresses = [ip_address(where[0]) for family, _, _, _, where in found if family in families]
        if not addresses:
            raise EgressFailed(f"{target.origin}: the name has no address")
        return list(dict.fromkeys(addresses))

    def _check_address(self, target: EgressTarget, address: Address, named: bool) -> None:
        opened = [network for network in self.networks if address in network]
        if any(network.num_addresses == 1 for network in opened):
            return
        if any(address in network for network in METADATA):
            raise EgressRefused(
                f"{target.origin} leads to a cloud's metadata service, which is dialled only"
                " if the operator allows exactly that address",
                f"{address} is a metadata address",
            )
        if named:
            return
        if any(address in network for network in self._own()) and not address.is_loopback:
            raise EgressRefused(
                f"{target.origin} leads to this host itself, which is dialled only"
                " if the operator allows the host name or exactly that address",
                f"{address} is an address of this host",
            )
        kind = kind_of(address)
        if kind and not opened:
            raise EgressRefused(
                f"{target.origin} leads to an address that is not public, which is dialled only"
                " if the operator allows the host name or the network",
                f"{address} is not public: {kind}",
            )

    def _own(self) -> list[Network]:
        if time.monotonic() - self.interfaces_read > OWN_S:
            self.interfaces = [*self.own, *own_addresses()]
            self.interfaces_read = time.monotonic()
        return self.interfaces

    @cached_property
    def _context(self) -> ssl.SSLContext:
        """The TLS context, made when it is first needed because reading the authorities takes a while."""
        context = self.given_context or httpx.create_ssl_context()
        context.set_alpn_protocols(["http/1.1"])
        return context


class EgressTarget(NamedTuple):
    """A URL that is parsed once, for the check of its addresses, the connection and the request alike."""

    scheme: str
    host: str
    """The host in lower case and ASCII, without brackets and without a trailing dot."""
    port: int
    path: bytes
    """The path and the query."""

    @property
    def shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def authority(self) -> str:
        return self.shown_host if self.port == _PORTS[self.scheme] else f"{self.shown_host}:{self.port}"

    @property
    def origin(self) -> str:
        """The only part of the URL that is ever shown: what follows may be a secret."""
        return f"{self.scheme}://{self.authority}"

    @property
    def url(self) -> httpcore.URL:
        return httpcore.URL(
            scheme=self.scheme.encode(), host=self.host.encode(), port=self.port, target=self.path or b"/"
        )

    def names(self) -> Iterator[str]:
        """Yield every entry of an operator's list that would allow this host."""
        labels = self.host.split(".")
        for name in (self.shown_host, *(f"*.{'.'.join(labels[start:])}" for start in range(1, len(labels)))):
            yield name
            yield f"{name}:{self.port}"


def _parse(text: str) -> EgressTarget:
    if len(text) > MAX_URL:
        raise EgressRefused(f"a URL may have at most {MAX_URL} characters, this one has {len(text)}")
    if any(char.isspace() or not char.isprintable() or char == "\\" for char in text):
        raise EgressRefused("a URL must not have blanks, control characters or backslashes")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in _PORTS:
        raise EgressRefused("the URL must begin with http:// or https://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise EgressRefused("the URL must not have a user name or a password in it")
    if not _AUTHORITY.fullmatch(authority):
        raise EgressRefused("the URL has no valid host")
    try:
        url = httpx.URL(text)
        host = _host(url.raw_host.decode("ascii"))
    except (httpx.InvalidURL, ValueError):
        raise EgressRefused("the URL has no valid host") from None
    port = url.port if url.port is not None else _PORTS[url.scheme]
    if not 1 <= port <= 65535:
        raise EgressRefused("the port of the URL must be from 1 to 65535")
    return EgressTarget(url.scheme, host, port, url.raw_path)


def _host(raw: str) -> str:
    if ":" in raw:
        return str(IPv6Address(raw))
    host = raw.removesuffix(".")
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise ValueError("not a host name")
    return host


def _request(
    method: str, target: EgressTarget, headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes
) -> httpcore.Request:
    given = headers.items() if isinstance(headers, Mapping) else headers
    sent = [("Host", target.authority), ("Accept-Encoding", "identity")]
    if body or method not in ("GET", "HEAD"):
        sent.append(("Content-Length", str(len(body))))
    sent += [(name, value) for name, value in given if name.lower() not in _FRAMING]
    try:
        raw = [(name.encode("ascii"), value.encode("ascii")) for name, value in sent]
        return httpcore.Request(method.encode("ascii"), target.url, headers=raw, content=body)
    except UnicodeEncodeError:
        raise EgressRefused(f"{target.origin}: the method or a header is not ASCII") from None


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _reason(error: Exception) -> str:
    """Describe an error in our own words: those of the operating system would name the address."""
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.__cause__.verify_message}"
    if isinstance(error, httpcore.ConnectTimeout):
        return "the connection could not be made in time"
    if isinstance(error, httpcore.ConnectError):
        return "the connection could not be made"
    if isinstance(error, httpcore.ProtocolError):
        return "the response is not valid HTTP"
    return "the connection was lost"


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _entry(item: str) -> str:
    """Normalise an item of the list to the form of `EgressTarget.names`."""
    match = _ENTRY.fullmatch(item)
    try:
        name, port = match.groups() if match else ("", None)
        target = _parse(f"http://{name.removeprefix('*.')}:{port or 80}")
    except EgressRefused:
        raise ValueError(f"{item!r} is not a host: write name, *.name or [IPv6], with :port or without") from None
    star = "*." if name.startswith("*.") else ""
    return f"{star}{target.shown_host}{f':{target.port}' if port else ''}"


def _network(item: str) -> Network:
    try:
        return ip_network(item)
    except ValueError as error:
        raise ValueError(f"{item!r} is not a network: {error}") from None
