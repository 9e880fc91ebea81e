"""The host that is judged: its card, its interfaces, and what is known of its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct

from roost.conform.client import Client, HttpClient, JsonRpc, Rest
from roost.conform.hints import PROFILES, Hints, profile_of
from roost.conform.outcome import Failed, Unjudged
from roost.conform.wire import Http, Reply
from roost.protocol.types import AgentInterface

WELL_KNOWN = "/.well-known/agent-card.json"
MAX_CARD = 1024 * 1024
KNOWN = ("JSONRPC", "HTTP+JSON", "GRPC")


class Options(Struct):
    """What the user has said. Times are in seconds."""

    url: str
    token: str = ""
    token_b: str = ""
    profile: str = ""
    hints: Hints | None = None
    timeout: float = 10.0
    receiver: str = "127.0.0.1"
    any_host: bool = False
    only: list[str] = []
    skip: list[str] = []
    level: str = "BEYOND"
    restart: Callable[[], Awaitable[None]] | None = None


class Target:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.url = card_url(options.url)
        self.http = Http(options.timeout, self.url.startswith("https:"))
        self.reply: Reply = Reply(0, httpx.Headers(), b"")
        self.document: dict[str, Any] = {}
        self.clients: list[Client] = []
        self.legacy: list[AgentInterface] = []
        """Interfaces of A2A 0.3."""
        self.notes: list[str] = []
        self.profile = options.profile
        self.hints = options.hints or Hints()
        self.learned: dict[str, Any] = {}

    async def open(self) -> None:
        """Unjudged if there is no card that could be read."""
        try:
            self.reply = await self.http.fetch("GET", self.url, {"Accept": "application/json", "A2A-Version": "1.0"})
        except Failed as error:
            raise Unjudged(f"cannot fetch the card: {error.observed}") from None
        if 300 <= self.reply.status < 400:
            where = self.reply.headers.get("location", "an unnamed place")
            raise Unjudged(
                f"{self.url} sends on to {where[:200]}, and nobody is followed: give that URL if it is right"
            )
        if self.reply.status != 200:
            raise Unjudged(f"there is no card at {self.url}: HTTP {self.reply.status}")
        try:
            found = msgspec.json.decode(self.reply.body[:MAX_CARD])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unjudged(f"what is at {self.url} is no card: {error}") from None
        if not isinstance(found, dict) or not isinstance(found.get("supportedInterfaces"), list):
            raise Unjudged(f"what is at {self.url} is no card of A2A 1.0: it has no supportedInterfaces")
        self.document = found
        self.profile = self.profile or profile_of(found)
        if self.options.hints is None:
            self.hints = PROFILES[self.profile]
        self._connect(found["supportedInterfaces"])
        if any(client.interface.url.startswith("https:") for client in self.clients):
            await self.http.with_tls()

    def _connect(self, entries: list[Any]) -> None:
        for entry in entries:
            try:
                interface = msgspec.convert(entry, AgentInterface)
            except msgspec.ValidationError:
                continue  # card.interfaces says so
            binding = interface.protocol_binding
            if interface.protocol_version.startswith("0."):
                self.legacy.append(interface)
            elif binding in KNOWN and binding not in [client.name for client in self.clients]:
                self._add(interface)
        for client in self.clients:
            client.required = self.required()
        self.clients.sort(key=lambda client: KNOWN.index(client.name))

    def _add(self, interface: AgentInterface) -> None:
        mine, theirs = urlsplit(self.url).hostname, host_of(interface.url)
        if mine != theirs and not self.options.any_host:
            self.notes.append(
                f"the interface {interface.protocol_binding} is at {theirs}, the card at {mine}: not judged, and no"
                " token is sent there. If that is right, give --any-host"
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
            self.clients.append(Grpc(interface, token, self.options.timeout, self.url.startswith("https:")))

    def client(self, binding: str) -> Client | None:
        return next((client for client in self.clients if client.name == binding), None)

    @property
    def http_client(self) -> HttpClient | None:
        return next((client for client in self.clients if isinstance(client, HttpClient)), None)

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def base(self) -> str:
        """Where the card is below."""
        return self.url.partition("/.well-known/")[0]

    def capability(self, name: str) -> bool:
        capabilities = self.document.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def extensions(self) -> dict[str, dict[str, Any]]:
        """By URI, as the card declares them."""
        capabilities = self.document.get("capabilities")
        declared = capabilities.get("extensions") if isinstance(capabilities, dict) else None
        entries = declared if isinstance(declared, list) else []
        return {one["uri"]: one for one in entries if isinstance(one, dict) and isinstance(one.get("uri"), str)}

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
    except httpx.InvalidURL as error:
        raise Unjudged(f"{text!r} is not a URL: {error}") from None
    if url.userinfo:
        raise Unjudged("the URL must not hold a password: use --token")
    if url.scheme not in ("http", "https") or not url.host:
        raise Unjudged(f"{text!r} is not a URL that could be called: give http(s)://host[:port][/path]")
    if "/.well-known/" in url.path or url.path.endswith(".json"):
        return str(url)
    return str(url.copy_with(path=url.path.rstrip("/") + WELL_KNOWN))


def host_of(url: str) -> str | None:
    """Of a URL, or of host:port as gRPC has it."""
    try:
        return urlsplit(url if "://" in url else f"//{url}").hostname
    except ValueError:
        return None
