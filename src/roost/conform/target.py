"""The judged host: its card, a client for each of its interfaces, and the hints for its agent."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct

from roost.conform.client import ConformClient, JSONObject, JsonRpc, Rest
from roost.conform.connections import Http
from roost.conform.hints import PROFILES, Hints, profile_of
from roost.conform.outcome import CheckFailed, NotJudged, shown
from roost.conform.wire import RawResponse
from roost.protocol.types import AgentInterface

WELL_KNOWN = "/.well-known/agent-card.json"
MAX_CARD = 1024 * 1024
"""Bytes of a card."""
KNOWN = ("JSONRPC", "HTTP+JSON", "GRPC")
PLAIN = ("http:", "grpc:")
"""Schemes without TLS."""
FLEET = "https://scitex.ai/a2a/extensions/sac-fleet/v1"
"""Declared by the card of a host of several agents. Its requests need a tenant, which the card cannot name."""
MULTI_TENANT = "https://agentic-sandbox.aiwg.io/extensions/multi-tenant/v1"


class ConformOptions(Struct, frozen=True):
    """The options of the user: see docs/conform.md."""

    url: str
    """The URL of a host, an agent or a card."""
    token: str = ""
    token_b: str = ""
    """The token of a second caller."""
    profile: str = ""
    """The name of a profile; empty if the card decides."""
    hints: Hints | None = None
    """Used instead of the hints of the profile."""
    timeout: float = 10.0
    """Seconds for each request."""
    receiver: str = ""
    """An address of this machine, as host[:port], at which the host can reach a webhook."""
    tenant_id: str = ""
    any_host: bool = False
    """Also call interfaces on other hosts than the card's, and without TLS."""
    only: list[str] = []
    skip: list[str] = []
    level: str = "BEYOND"
    restart: Callable[[], Awaitable[None]] | None = None
    """Crashes the host and starts it again."""


class Target:
    def __init__(
        self, options: ConformOptions, http: Http, url: str, credential: dict[str, str], raw_card: RawResponse
    ) -> None:
        self.options = options
        self.http = http
        self.url = url
        """The URL of the card."""
        self.raw_card = raw_card
        self.document = _document(url, raw_card)
        """The card as JSON."""
        self.profile = options.profile or profile_of(self.document)
        hints = options.hints or PROFILES[self.profile]
        self.hints = hints.of_tenant(options.tenant_id) if options.tenant_id else hints
        self.clients: list[ConformClient] = []
        """A client for each binding, in the order of KNOWN."""
        self.legacy: list[AgentInterface] = []
        """Interfaces of A2A 0.3."""
        self.notes: list[str] = []
        """The parts of the host that are not judged, and why."""
        self.left_out: list[tuple[str, str]] = []
        """The bindings that have further interfaces, with the reason to report. Only the first interface is judged."""
        self.memo: dict[str, Any] = {}
        """Results of checks that other checks reuse."""
        self._credential = credential
        if FLEET in self.extensions():
            raise NotJudged(f"{url} is the card of a fleet, and no agent: give the URL of one of its agents")
        self._connect(self.document["supportedInterfaces"])

    async def card(self, **headers: str) -> RawResponse:
        """Fetch the card again."""
        return await _fetch_card(self.http, self.url, {**self._credential, **headers})

    def _connect(self, entries: list[Any]) -> None:
        for entry in entries:
            try:
                interface = msgspec.convert(entry, AgentInterface)
            except msgspec.ValidationError:
                continue  # the check card.interfaces reports it
            binding = interface.protocol_binding
            if interface.protocol_version.startswith("0."):
                self.legacy.append(interface)
            elif not interface.protocol_version.startswith("1."):
                self.notes.append(f"the interface {binding} of A2A {interface.protocol_version} is not judged")
            elif binding in KNOWN and self.client(binding) is None:
                self._add(interface)
            elif binding in KNOWN:
                reason = f"of several interfaces {binding} only the first is judged, not {interface.url}"
                self.left_out.append((binding, reason))
                self.notes.append(reason)
        self.clients.sort(key=lambda client: KNOWN.index(client.name))

    def _add(self, interface: AgentInterface) -> None:
        binding, token = interface.protocol_binding, self.options.token
        if host_of(interface.url) is None:
            self.notes.append(f"the interface {binding} is not judged: its URL {interface.url} cannot be called")
            return
        if reason := self.barred(interface.url):
            self.notes.append(
                f"the interface {binding} is {reason}: it is not judged and gets no token. If that is right, give"
                " --any-host"
            )
            return
        required = self.required()
        if self.options.tenant_id and MULTI_TENANT not in required:
            required.append(MULTI_TENANT)
        if binding == "JSONRPC":
            self.clients.append(JsonRpc(interface, token, required, self.http))
        elif binding == "HTTP+JSON":
            self.clients.append(Rest(interface, token, required, self.http))
        else:
            try:
                from roost.conform.grpc_client import Grpc
            except ImportError:
                self.notes.append("the interface GRPC is not judged: pip install 'roost[grpc]'")
                return
            secure = self.url.startswith("https:") and not interface.url.lower().startswith(PLAIN)
            self.clients.append(Grpc(interface, token, required, self.options.timeout, secure))

    def barred(self, url: str) -> str:
        """Return why no token may be sent to a URL, or an empty string if it may."""
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
        """The URL below which the card is."""
        return self.url.partition("/.well-known/")[0]

    @property
    def agent(self) -> str:
        """The name of the agent."""
        return str(self.document.get("name", ""))

    def capability(self, name: str) -> bool:
        capabilities = self.document.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def extensions(self) -> dict[str, JSONObject]:
        """The extensions that the card declares, by URI."""
        capabilities = self.document.get("capabilities")
        declared = capabilities.get("extensions") if isinstance(capabilities, dict) else None
        entries = declared if isinstance(declared, list) else []
        return {one["uri"]: one for one in entries if isinstance(one, dict) and isinstance(one.get("uri"), str)}

    def interfaces(self) -> list[JSONObject]:
        return [one for one in self.document["supportedInterfaces"] if isinstance(one, dict)]

    def required(self) -> list[str]:
        """The URIs of the extensions that the card requires."""
        return [uri for uri, one in self.extensions().items() if one.get("required") is True]

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets that no report may show."""
        return self.options.token, self.options.token_b

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def opened(options: ConformOptions) -> AsyncIterator[Target]:
    """Fetch the card of a host and make clients for its interfaces. NotJudged if there is no card that can be read."""
    url, http = card_url(options.url), Http(options.timeout)
    try:
        target = await _target(options, http, url)
        try:
            yield target
        finally:
            await target.close()
    finally:
        await http.close()


async def _target(options: ConformOptions, http: Http, url: str) -> Target:
    credential: dict[str, str] = {}
    accept = {"Accept": "application/json"}
    try:
        raw = await _fetch_card(http, url, accept)
        if raw.status in (401, 403) and options.token:
            credential = {"Authorization": f"Bearer {options.token}"}
            raw = await _fetch_card(http, url, {**credential, **accept})
    except CheckFailed as error:
        raise NotJudged(f"cannot fetch the card: {error.observed}") from None
    if 300 <= raw.status < 400:
        where = shown(raw.headers.get("location", "an unnamed place"), (options.token, options.token_b), 200)
        raise NotJudged(f"{url} redirects to {where}, and redirects are not followed: give that URL if it is right")
    if raw.status == 401 and not options.token:
        raise NotJudged(f"the card at {url} requires a credential: give --token")
    if raw.status != 200:
        raise NotJudged(f"there is no card at {url}: HTTP {raw.status}")
    return Target(options, http, url, credential, raw)


async def _fetch_card(http: Http, url: str, headers: dict[str, str]) -> RawResponse:
    return await http.fetch("GET", url, {"A2A-Version": "1.0", **headers})


def _document(url: str, raw: RawResponse) -> JSONObject:
    try:
        found = msgspec.json.decode(raw.body[:MAX_CARD])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJudged(f"{url} is not a card: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("supportedInterfaces"), list):
        raise NotJudged(f"{url} is not a card of A2A 1.0: it has no supportedInterfaces")
    return found


def card_url(text: str) -> str:
    """Return the URL of the card: the given one if it names a card, or else the well-known one below it."""
    try:
        url = httpx.URL(text)
        _ = urlsplit(text).port
    except (httpx.InvalidURL, ValueError) as error:
        raise NotJudged(f"invalid URL {text!r}: {error}") from None
    if url.userinfo:
        raise NotJudged("the URL must not contain a password: use --token")
    if url.scheme not in ("http", "https") or not url.host:
        raise NotJudged(f"cannot call {text!r}: give a URL of the form http(s)://host[:port][/path]")
    if "/.well-known/" in url.path or url.path.endswith(".json"):
        return str(url)
    return str(url.copy_with(path=url.path.rstrip("/") + WELL_KNOWN))


def host_of(url: str) -> str | None:
    """Return the host of a URL, or of host:port as gRPC has it. None if it cannot be called."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        return parts.hostname if parts.port != 0 else None
    except ValueError:
        return None


def is_here(url: str) -> bool:
    """Return whether a URL names this machine by a loopback address or as localhost."""
    host = host_of(url) or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
