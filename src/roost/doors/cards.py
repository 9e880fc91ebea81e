"""Cards and their keys as they are served: signed once, then the same bytes to everyone."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from roost.doors.a2a_03 import load
from roost.doors.access import Access
from roost.doors.admission import unknown_agent
from roost.doors.door import AGENT, PUBLIC, Describe, Door, Route, require_method
from roost.doors.errors import rest_error
from roost.doors.guard import is_old, version_of
from roost.doors.http import Connection, Headers, Request, Response, preferred_json, respond
from roost.doors.openapi_components import A2A, JSON
from roost.doors.openapi_doors import page
from roost.doors.openapi_schemas import KeySet
from roost.engine.hosted import Caller, Profile
from roost.engine.store_types import StoreUnavailable
from roost.fleet import cards
from roost.fleet.cards import ServedCard, Terms
from roost.fleet.registry import Registry
from roost.identity.keys import EVIDENCE, Keyring
from roost.identity.principal import Principal
from roost.protocol.canonical import NotCanonical, card_form, document_form, strict_form
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError, RouteNotFound, UnsupportedOperation
from roost.protocol.types import AgentCard

if TYPE_CHECKING:
    from roost.doors.context import Context

log = logging.getLogger("roost.doors")

CARD_PATH = "/.well-known/agent-card.json"
OLD_CARD_PATHS = ("/.well-known/agent.json", "/.well-known/agent")
"""The path at which clients of A2A 0.3 look for a card."""
JWKS_PATH = "/.well-known/jwks.json"
EVIDENCE_KEYS_PATH = "/.well-known/evidence-jwks.json"
CACHED = 10_000
FLEET = ""
"""The name of the fleet in place of an agent's."""


CardForm = Literal["1.0", "1.0 and 0.3", "0.3"]
"""The forms in which a card is served. The fleet, which cannot be called with A2A 0.3, has only the first."""
NEW: CardForm = "1.0"
BOTH: CardForm = "1.0 and 0.3"
"""The card of 1.0 with the fields of 0.3 beside its own, for readers that name no version: any client reads it."""
OLD: CardForm = "0.3"


class KeptCard(NamedTuple):
    """A card, and the response that serves it."""

    card: ServedCard
    response: Response


class Cards:
    """Builds and signs cards, and keeps them until an agent, a key or a credential changes."""

    def __init__(
        self, agents: Registry, access: Access, keyring: Keyring, *, version: str, terms: Terms, root: str
    ) -> None:
        self.agents = agents
        self.root = root
        self.access = access
        self.keyring = keyring
        self.version = version
        self._terms_of_host = terms
        self.served: OrderedDict[tuple[str, str, CardForm], KeptCard] = OrderedDict()
        self.before: dict[tuple[str, str, CardForm], ServedCard] = {}
        """The cards before the last change. One that comes out the same was not modified."""
        self.changed = time.time()
        agents.subscribe(lambda change: self.forget())

    @property
    def terms(self) -> Terms:
        """Return the host's terms for cards. gRPC of 0.3 has no tenant: it serves the only agent, or the root's."""
        only = next(iter(self.agents), "") if len(self.agents) == 1 else self.root
        return self._terms_of_host._replace(grpc_03=only)

    def check(self, profile: Profile) -> None:
        """Raise if the card of an agent has a member that is the host's, or something that cannot be signed."""
        cards.check_extras(profile)
        try:
            card = _document(cards.agent_card(profile, "", self.terms), profile.extras)
            for form in (card_form, strict_form, document_form):
                form(card)
        except NotCanonical as error:
            raise NotCanonical(f"the card of {profile.id!r} cannot be signed: {error}") from None

    async def prepare(self) -> None:
        """Create the keys of all agents, of the fleet and of evidence, as long as the store can write."""
        try:
            await self.keyring.prepare([FLEET, EVIDENCE, *self.agents])
        except StoreUnavailable as error:
            log.warning("cards cannot be served until their keys can be stored: %s", error)

    def forget(self) -> None:
        """Build the cards again, because agents, keys or credentials have changed."""
        if self.served:
            self.before = {key: kept.card for key, kept in self.served.items()}
            self.served.clear()
        self.changed = time.time()

    async def card(self, request: Request, base: str, agent: str, form: CardForm) -> Response:
        """Return a card as an HTTP response, or 304 to a client that has it."""
        kept = await self._card(base, agent, form)
        asked = request.headers
        if (b"if-none-match" in asked or b"if-modified-since" in asked) and _unchanged(request, kept.card):
            return Response(304, b"", headers=kept.response.headers)
        if b"a2a+json" in asked.get(b"accept", b""):
            return kept.response._replace(content_type=preferred_json(request))
        return kept.response

    def _response(self, card: ServedCard, form: CardForm) -> Response:
        by_version = self._terms_of_host.a2a_03 and form != OLD
        headers: Headers = [
            (b"etag", card.etag.encode()),
            (b"last-modified", card.last_modified.encode()),
            (b"cache-control", b"public, max-age=%d" % cards.MAX_AGE_S),
            (b"vary", b"a2a-version, accept" if by_version else b"accept"),
        ]
        return Response(200, card.body, b"application/json", headers)

    async def jwks(self, base: str, agent: str | None) -> Response:
        """Return the keys of an agent, or with None those of all. A key is made with the first card that it signs."""
        await self._card(base, FLEET if agent is None else agent)
        return _key_set(self.keyring.jwks(agent))

    async def document(self, base: str, agent: str) -> bytes:
        """Return the card of 1.0 as it is served."""
        return (await self._card(base, agent)).card.body

    async def extended(self, base: str, agent: str, principal: Principal) -> bytes:
        profile = self._profile(agent)
        terms = self._terms(profile)
        if profile.extended is None or not cards.has_extended(profile, terms):
            raise UnsupportedOperation("This agent has no extended card: its card says extendedAgentCard false")
        caller = Caller(principal.subject, principal.tenant, principal.scopes)
        more = profile.extended(caller)
        document = _document(cards.agent_card(profile, _agent_base(base, agent), terms, more), profile.extras)
        return encode(await self.keyring.signed(document, agent, _agent_base(base, agent) + JWKS_PATH))

    async def _card(self, base: str, agent: str, form: CardForm = NEW) -> KeptCard:
        found = self.served.get((agent, base, form))
        if found is not None and not self.keyring.outdated():
            return found
        if found is not None:
            self.forget()
        changed = self.changed
        if agent == FLEET:
            card = cards.fleet_card(self.agents.profiles(), base, self.version, self._terms(None))
            extras = cards.fleet_block(self.agents.profiles(), base, self.terms)
            jku = base + JWKS_PATH
        else:
            profile = self._profile(agent)
            card = cards.agent_card(profile, _agent_base(base, agent), self._terms(profile))
            extras, jku = profile.extras, _agent_base(base, agent) + JWKS_PATH
        document = _document(card, extras)
        if form != NEW:
            converter = await load("cards")
            old = converter.old_card(encode(card))
            document = old | extras if form == OLD else converter.merge(document, old)
        if form != OLD:
            document = await self.keyring.signed(document, agent, jku)
        served, before = cards.served(encode(document), self.changed), self.before.get((agent, base, form))
        if before is not None and before.etag == served.etag:
            served = before
        made = KeptCard(served, self._response(served, form))
        if changed == self.changed:
            self.served[agent, base, form] = made
            if len(self.served) > CACHED:
                self.served.popitem(last=False)
        return made

    def _profile(self, agent: str) -> Profile:
        profile = self.agents.profile(agent)
        if profile is None:
            raise unknown_agent(agent)
        return profile

    def _terms(self, profile: Profile | None) -> Terms:
        return self.terms._replace(schemes=self.access.schemes_of(profile))


def _agent_base(base: str, agent: str) -> str:
    return f"{base}/agents/{agent}"


def _document(card: Any, extras: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(encode(card))
    document.update(msgspec.json.decode(encode(extras)))
    return document


def _unchanged(request: Request, card: ServedCard) -> bool:
    tags = request.header(b"if-none-match")
    if tags:
        return tags.strip() == "*" or card.etag in [tag.strip().removeprefix("W/") for tag in tags.split(",")]
    return request.header(b"if-modified-since") == card.last_modified


class CardDoor(Door):
    """Serves the cards of the agents and of the fleet, and the keys that sign cards and evidence.

    root: the agent whose card the host's own card path serves, or "" for the fleet's card.
    old: serve cards to clients of A2A 0.3 too: at its paths, and to readers that name no version.
    """

    def __init__(self, context: Context, *, root: str, old: bool) -> None:
        self.context = context
        self.root = root
        self.old_paths = OLD_CARD_PATHS if old else ()
        self.host_paths = frozenset({CARD_PATH, JWKS_PATH, EVIDENCE_KEYS_PATH, *self.old_paths})
        self.agent_paths = frozenset({CARD_PATH, JWKS_PATH, *self.old_paths})

    def routes(self) -> Sequence[Route]:
        found = [
            Route(
                "GET",
                CARD_PATH,
                "The fleet's card, or that of the agent bound to the root",
                PUBLIC,
                _page("GetFleetCard"),
            ),
            Route("GET", AGENT + CARD_PATH, "An agent's card", PUBLIC, _page("GetAgentCard")),
            Route("GET", JWKS_PATH, "The keys that sign the cards of all agents", PUBLIC, _keys("GetKeys")),
            Route("GET", AGENT + JWKS_PATH, "The keys that sign an agent's card", PUBLIC, _keys("GetAgentKeys")),
            Route(
                "GET",
                EVIDENCE_KEYS_PATH,
                "The keys that sign evidence, with those that were replaced",
                PUBLIC,
                _keys("GetEvidenceKeys"),
            ),
        ]
        for number, path in enumerate(self.old_paths):
            root = page(f"GetRootCard03{number}", {JSON: None}, "304", "404")
            agent = page(f"GetAgentCard03{number}", {JSON: None}, "304")
            found.append(Route("GET", path, "The card of the agent bound to the root, as of A2A 0.3", PUBLIC, root))
            found.append(Route("GET", AGENT + path, "An agent's card in the form of A2A 0.3", PUBLIC, agent))
        return found

    def claims(self, request: Request) -> bool:
        place = request.place
        return place.below in self.agent_paths if place.prefix else request.path in self.host_paths

    def error(self, request: Connection, error: A2AError) -> Response:
        return rest_error(request, error)

    async def serve(self, request: Request) -> None:
        place = request.place
        below = place.below if place.prefix else request.path
        request.route = place.prefix + below
        if place.prefix and place.agent not in self.context.agents:
            await self.context.access.caller(request)
            raise unknown_agent(place.agent)
        require_method(request, "GET")
        await respond(request, await self._document(request, below, place.agent if place.prefix else None))

    async def _document(self, request: Request, below: str, agent: str | None) -> Response:
        cards, base = self.context.cards, self.context.base(request)
        if below == EVIDENCE_KEYS_PATH:
            return _key_set(await cards.keyring.evidence_jwks())
        if below == JWKS_PATH:
            return await cards.jwks(base, agent)
        owner = (self.root or FLEET) if agent is None else agent
        if owner == FLEET and below in self.old_paths:
            raise RouteNotFound(
                "A fleet cannot be called with A2A 0.3, which has no tenant to name the agent. Each agent has a card:"
                f" GET {AGENT}{below}; GET /agents/ lists the agents"
            )
        return await cards.card(request, base, owner, self._form(request, below, owner))

    def _form(self, request: Request, below: str, owner: str) -> CardForm:
        if below in self.old_paths:
            return OLD
        both = bool(self.old_paths) and owner != FLEET and is_old(version_of(request))
        return BOTH if both else NEW


def _page(name: str) -> Describe:
    return page(name, {JSON: AgentCard, A2A: AgentCard}, "304")


def _keys(name: str) -> Describe:
    return page(name, {"application/jwk-set+json": KeySet})


def _key_set(keys: bytes) -> Response:
    headers: Headers = [(b"cache-control", b"public, max-age=%d" % cards.MAX_AGE_S)]
    return Response(200, keys, b"application/jwk-set+json", headers)
