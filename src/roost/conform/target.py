"""The host that is judged: its card, its interfaces, and what is known of its agent."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct

from roost.conform.client import ConformClient, JsonRpc, Rest
from roost.conform.connections import Http
from roost.conform.hints import PROFILES, Hints, profile_of
from roost.conform.outcome import CheckFailed, NotJudged, shown
from roost.conform.wire import RawResponse
from roost.protocol.types import AgentInterface

WELL_KNOWN = "/.well-known/agent-card.json"
MAX_CARD = 1024 * 1024
KNOWN = ("JSONRPC", "HTTP+JSON", "GRPC")
PLAIN = ("http:", "grpc:")
"""Schemes without TLS."""
MULTI_TENANT = "https://agentic-sandbox.aiwg.io/extensions/multi-tenant/v1"


class ConformOptions(Struct):
    """What the user has said. Times are in seconds."""

    url: str
    token: str = ""
    token_b: str = ""
    profile: str = ""
    hints: Hints | None = None
    timeout: float = 10.0
    receiver: str = ""
    tenant_id: str = ""
    any_host: bool = False
    only: list[str] = []
    skip: list[str] = []
    level: str = "BEYOND"
    restart: Callable[[], Awaitable[None]] | None = None


class Target:
    def __init__(self, options: ConformOptions) -> None:
        self.options = options
        self.url = card_url(options.url)
        self.http = Http(options.timeout)
        self.reply: RawResponse = RawResponse(0, httpx.Headers(), b"")
        self.document: dict[str, Any] = {}
        self.clients: list[ConformClient] = []
        self.legacy: list[AgentInterface] = []
        """Interfaces of A2A 0.3."""
        self.notes: list[str] = []
        self.second: list[tuple[str, str]] = []
        """Bindings that are judged at another interface, and the reason to give."""
        self.profile = options.profile
        self.hints = options.hints or Hints()
        self.learned: dict[str, Any] = {}
        self._credential: dict[str, str] = {}
        """What the card asks for."""

    async def card(self, **headers: str) -> RawResponse:
        return await self.http.fetch("GET", self.url, {"A2A-Version": "1.0", **self._credential, **headers})

    async def open(self) -> None:
        """NotJudged if there is no card that could be read."""
        try:
            self.reply = await self.card(Accept="application/json")
            if self.reply.status in (401, 403) and self.options.token:
                self._credential = {"Authorization": f"Bearer {self.options.token}"}
                self.reply = await self.card(Accept="application/json")
        except CheckFailed as error:
            raise NotJudged(f"cannot fetch the card: {error.observed}") from None
        if 300 <= self.reply.status < 400:
            where = shown(self.reply.headers.get("location", "an unnamed place"), self.secrets, 200)
            raise NotJudged(f"{self.url} sends on to {where}, and nobody is followed: give that URL if it is right")
        if self.reply.status == 401 and not self.options.token:
            raise NotJudged(f"the card at {self.url} is not for everyone: give --token")
        if self.reply.status != 200:
            raise NotJudged(f"there is no card at {self.url}: HTTP {self.reply.status}")
        try:
            found = msgspec.json.decode(self.reply.body[:MAX_CARD])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotJudged(f"what is at {self.url} is no card: {error}") from None
        if not isinstance(found, dict) or not isinstance(found.get("supportedInterfaces"), list):
            raise NotJudged(f"what is at {self.url} is no card of A2A 1.0: it has no supportedInterfaces")
        self.document = found
        self.profile = self.profile or profile_of(found)
        if self.options.hints is None:
            self.hints = PROFILES[self.profile]
        if self.options.tenant_id:
            self.hints = self.hints.of_tenant(self.options.tenant_id)
        self._connect(found["supportedInterfaces"])

    def _connect(self, entries: list[Any]) -> None:
        for entry in entries:
            try:
                interface = msgspec.convert(entry, AgentInterface)
            except msgspec.ValidationError:
                continue  # card.interfaces says so
            binding = interface.protocol_binding
            if interface.protocol_version.startswith("0."):
                self.legacy.append(interface)
            elif not interface.protocol_version.startswith("1."):
                self.notes.append(f"the interface {binding} of A2A {interface.protocol_version} is not judged")
            elif binding in KNOWN and self.client(binding) is None:
                self._add(interface)
            elif binding in KNOWN:
                reason = f"of several interfaces {binding} only the first is judged, not {interface.url}"
                self.second.append((binding, reason))
                self.notes.append(reason)
        asked = [MULTI_TENANT] if self.options.tenant_id else []
        for client in self.clients:
            client.required = [*dict.fromkeys([*self.required(), *asked])]
        self.clients.sort(key=lambda client: KNOWN.index(client.name))

    def _add(self, interface: AgentInterface) -> None:
        if host_of(interface.url) is None:
            self.notes.append(
                f"the interface {interface.protocol_binding} is not judged: its url {interface.url} cannot be called"
            )
            return
        if reason := self.barred(interface.url):
            self.notes.append(
                f"the interface {interface.protocol_binding} is {reason}: not judged, and no token is sent there. If"
                " that is right, give --any-host"
            )
            return
        token = self.options.token
        if interface.protocol_binding == "JSONRPC":
            self.clients.append(JsonRpc(interface, token, self.http))
        elif interface.protocol_binding == "HTTP+JSON":
            self.clients.append(Rest(interface, token, self.http))
        else:
            try:
                from roost.conform.grpc_client import Grpc
            except ImportError:
                self.notes.append("the interface GRPC is not judged: pip install 'roost[grpc]'")
                return
            secure = self.url.startswith("https:") and not interface.url.lower().startswith(PLAIN)
            self.clients.append(Grpc(interface, token, self.options.timeout, secure))

    def barred(self, url: str) -> str:
        """Why no token may go there; empty if it may."""
        mine, theirs = host_of(self.url), host_of(url)
        if self.options.any_host:
            return ""
        if mine != theirs:
            return f"at {theirs}, the card at {mine}"
        if self.url.startswith("https:") and url.lower().startswith(PLAIN):
            return "without TLS, the card with it"
        return ""

    def client(self, binding: str) -> ConformClient | None:
        return next((client for client in self.clients if client.name == binding), None)

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def base(self) -> str:
        """Where the card is below."""
        return self.url.partition("/.well-known/")[0]

    @property
    def agent(self) -> str:
        """Its name."""
        return str(self.document.get("name", ""))

    def capability(self, name: str) -> bool:
        capabilities = self.document.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def extensions(self) -> dict[str, dict[str, Any]]:
        """By URI, as the card declares them."""
        capabilities = self.document.get("capabilities")
        declared = capabilities.get("extensions") if isinstance(capabilities, dict) else None
        entries = declared if isinstance(declared, list) else []
        return {one["uri"]: one for one in entries if isinstance(one, dict) and isinstance(one.get("uri"), str)}

    def interfaces(self) -> list[dict[str, Any]]:
        return [one for one in self.document["supportedInterfaces"] if isinstance(one, dict)]

    def required(self) -> list[str]:
        return [uri for uri, one in self.extensions().items() if one.get("required") is True]

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.options.token, self.options.token_b

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        await self.http.close()
        await asyncio.sleep(0)


def card_url(text: str) -> str:
    """Where the card is that is meant: below a host or an agent, if it is not the URL of one."""
    try:
        url = httpx.URL(text)
        _ = urlsplit(text).port
    except (httpx.InvalidURL, ValueError) as error:
        raise NotJudged(f"{text!r} is not a URL: {error}") from None
    if url.userinfo:
        raise NotJudged("the URL must not hold a password: use --token")
    if url.scheme not in ("http", "https") or not url.host:
        raise NotJudged(f"{text!r} is not a URL that could be called: give http(s)://host[:port][/path]")
    if "/.well-known/" in url.path or url.path.endswith(".json"):
        return str(url)
    return str(url.copy_with(path=url.path.rstrip("/") + WELL_KNOWN))


def host_of(url: str) -> str | None:
    """Of a URL, or of host:port as gRPC has it. None if nobody can be called there."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        return parts.hostname if parts.port != 0 else None
    except ValueError:
        return None


def is_here(url: str) -> bool:
    """Whether that is this machine, by its name for itself."""
    host = host_of(url) or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
