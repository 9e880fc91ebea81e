"""Checks that come before a door sees a request: its origin, its version, its content type, its extensions."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from roost.addresses import is_loopback
from roost.doors.http import Connection, Request, RequestHead, Response
from roost.protocol.errors import (
    ContentTypeNotSupported,
    Forbidden,
    InvalidParams,
    VersionNotSupported,
)

SUPPORTED_VERSION = "1.0"
OLD_VERSION = "0.3"
EXTENSIONS = (b"a2a-extensions", b"x-a2a-extensions")
"""The header, and its name in A2A 0.3."""
FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
KNOWN_HOSTS = 64
NEAR = frozenset({"127.0.0.1", "::1"})
"""The loopback addresses that nearly all local callers have."""
ALLOWED_HEADERS = (
    b"authorization, content-type, accept, x-api-key, x-tenant-id, a2a-version, a2a-extensions, last-event-id,"
    b" x-a2a-extensions, x-session-id, idempotency-key, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name"
)
EXPOSED_HEADERS = (
    b"a2a-extensions, x-a2a-extensions, idempotent-replayed, retry-after, www-authenticate, etag, x-session-id,"
    b" x-task-id, mcp-session-id"
)

_NAMES = re.compile(rb"[\w!#$%&'*+.^`|~, -]{1,2048}", re.ASCII)
"""A list of header names. Clients send their own, such as x-stainless-os; the operator trusts the origin."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Guard:
    """Web pages reach a host only from its own origin and those that the operator allows: see docs/security.md.

    A host without credentials answers programs on its own machine only.
    """

    def __init__(self, public_url: str, trusted_proxies: Sequence[Network], origins: Sequence[str] = ()) -> None:
        self.public_host = _hostname(urlsplit(public_url).netloc) if public_url else ""
        self.public_origin = "://".join(urlsplit(public_url)[:2]).lower()
        self.trusted = trusted_proxies
        self.origins = frozenset(origin.lower() for origin in origins)
        self.known: set[bytes] = set()

    def check(self, request: Connection, *, is_open: bool) -> None:
        headers = request.headers
        if self.origins:
            request.response_headers.append(
                (b"vary", b"origin")
            )  # what a cache has for a program lacks a page's headers
        if b"origin" in headers:
            self._check_origin(request, headers[b"origin"], headers.get(b"host", b""))
        if is_open:
            self.check_near(request)
            host = headers.get(b"host", b"")
            if host not in self.known:
                self._check_host(host)

    def preflight(self, request: Request) -> Response | None:
        """Answer a browser's preflight request for a page of another origin. None if the request is not one."""
        if request.method != "OPTIONS" or b"access-control-request-method" not in request.headers:
            return None
        if request.header(b"origin").lower() not in self.origins:
            return None
        asked = request.headers.get(b"access-control-request-headers", b"")
        own = asked if _NAMES.fullmatch(asked) else b""
        return Response(
            204,
            b"",
            headers=[
                (b"access-control-allow-methods", b"GET, POST, PUT, DELETE"),
                (b"access-control-allow-headers", ALLOWED_HEADERS + b", " * bool(own) + own),
                (b"access-control-max-age", b"600"),
            ],
        )

    def check_near(self, request: RequestHead) -> None:
        """Raise unless the request comes from this machine, or through a trusted proxy."""
        client = request.client
        if client is not None and client not in NEAR and not is_loopback(client) and not self._from_proxy(request):
            raise Forbidden("this host has no credentials and answers its own machine only: `roost token create NAME`")
        for name in FORWARDED:
            if name in request.headers and not self._from_proxy(request):
                raise Forbidden(
                    f"{name.decode()} is accepted only from a proxy named by --trusted-proxy:"
                    " this host has no credentials and must not be reached through others"
                )

    def _check_host(self, host: bytes) -> None:
        name = _hostname(host.decode("latin-1"))
        if not (is_loopback(name) or name.endswith(".localhost") or (self.public_host and name == self.public_host)):
            raise Forbidden(
                f"Host {name!r} is not this machine's. A host without credentials answers to localhost"
                " and to the name in --public-url only"
            )
        if len(self.known) < KNOWN_HOSTS:
            self.known.add(host)

    def _check_origin(self, request: Connection, origin: bytes, host: bytes) -> None:
        text = origin.decode("latin-1").lower()
        if text in self.origins:
            request.response_headers += [
                (b"access-control-allow-origin", origin),
                (b"access-control-expose-headers", EXPOSED_HEADERS),
            ]
            return
        own = {f"http://{host.decode('latin-1').lower()}", f"https://{host.decode('latin-1').lower()}"}
        if text not in own and text != self.public_origin:
            raise Forbidden(
                f"Origin {text!r} is foreign: a web page of another site must not reach this host, unless the operator"
                " names it in --cors-origins"
            )

    def _from_proxy(self, request: RequestHead) -> bool:
        if request.client is None:
            return False
        try:
            address = ipaddress.ip_address(request.client)
        except ValueError:
            return False
        return any(address in network for network in self.trusted)


def version_of(head: RequestHead) -> str:
    """Return the A2A-Version of the header or the query. Its absence means 0.3, as the specification says."""
    version = head.header(b"a2a-version").strip()
    if version or not isinstance(head, Connection) or b"A2A-Version" not in head.scope.get("query_string", b""):
        return version
    try:
        return head.query.get("A2A-Version", "").strip()
    except InvalidParams:  # the request will be refused for its query
        return ""


def is_old(version: str) -> bool:
    """Say whether a version means A2A 0.3: no version does."""
    return version in ("", OLD_VERSION) or version.startswith(OLD_VERSION + ".")


def require_version(version: str) -> None:
    """Raise unless the version is 1.0. `version` is "" where the client names none."""
    if version == SUPPORTED_VERSION or version.startswith(SUPPORTED_VERSION + "."):
        return
    given = f"A2A version {version!r}" if version else "A request without A2A-Version means version 0.3, which"
    raise VersionNotSupported(
        f"{given} is not supported here. Send the header `A2A-Version: 1.0`",
        metadata={"requestedVersion": version or "0.3", "supportedVersions": SUPPORTED_VERSION},
    )


def check_content_type(request: Request, body: bytes) -> None:
    kind = request.headers.get(b"content-type", b"")
    if kind in (b"application/json", b"application/a2a+json"):
        return
    bare = kind.split(b";")[0].strip().lower()
    if bare in (b"application/json", b"application/a2a+json") or (not body and not bare):
        return
    shown = bare.decode("latin-1") or "nothing"
    raise ContentTypeNotSupported(
        f"Content-Type must be application/json or application/a2a+json, it says {shown}", field="Content-Type"
    )


def asked_extensions(head: RequestHead) -> list[str]:
    """Return the URIs of the extensions that the client asks for."""
    return [uri for name in EXTENSIONS if name in head.headers for uri in head.header_list(name)]


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
