"""Cards and their keys as they are served: signed once, then the same bytes to everyone."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from roost.doors.a2a_03.loading import load
from roost.doors.access import Access
from roost.doors.http import Headers, Request, Response, preferred_json
from roost.engine.hosted import Caller, Profile
from roost.fleet import cards
from roost.fleet.cards import ServedCard, Terms
from roost.identity.keys import Keyring
from roost.identity.principal import Principal
from roost.protocol.canonical import NotCanonical, card_form, document_form, strict_form
from roost.protocol.codec import encode
from roost.protocol.errors import AgentNotFound, UnsupportedOperation

CARD_PATH = "/.well-known/agent-card.json"
OLD_CARD_PATHS = ("/.well-known/agent.json", "/.well-known/agent")
"""Of A2A 0.3."""
JWKS_PATH = "/.well-known/jwks.json"
CACHED = 10_000
FLEET = ""
"""Whose card and keys they are where they are no agent's."""


class Cards:
    def __init__(
        self, profiles: Sequence[Profile], access: Access, keyring: Keyring, *, version: str, terms: Terms
    ) -> None:
        self.profiles = list(profiles)
        self.by_id = {profile.id: profile for profile in profiles}
        self.access = access
        self.keyring = keyring
        self.version = version
        self.terms = terms
        self.served: OrderedDict[tuple[str, str, bool], ServedCard] = OrderedDict()
        self.changed = time.time()

    def check(self) -> None:
        """NotCanonical if an agent's card has something that cannot be signed."""
        for profile in self.profiles:
            try:
                card = _document(cards.agent_card(profile, "", self.terms), profile.extras)
                for form in (card_form, strict_form, document_form):
                    form(card)
            except NotCanonical as error:
                raise NotCanonical(f"the card of {profile.id!r} cannot be signed: {error}") from None

    def forget(self) -> None:
        """Keys or credentials have changed: what was made with those before is old."""
        self.served.clear()
        self.changed = time.time()

    async def card(self, request: Request, base: str, agent: str, *, old: bool = False) -> Response:
        """`old`: as A2A 0.3 has it."""
        card = await self._card(base, agent, old=old)
        headers: Headers = [
            (b"etag", card.etag.encode()),
            (b"last-modified", card.last_modified.encode()),
            (b"cache-control", b"public, max-age=%d" % cards.MAX_AGE_S),
            (b"vary", b"accept"),
        ]
        if _unchanged(request, card):
            return Response(304, b"", headers=headers)
        wanted = preferred_json(request) if b"a2a+json" in request.headers.get(b"accept", b"") else b"application/json"
        return Response(200, card.body, wanted, headers)

    async def jwks(self, base: str, agent: str | None) -> Response:
        """An agent's keys, or with None those of all. They are there once its card is."""
        await self._card(base, FLEET if agent is None else agent)
        headers: Headers = [(b"cache-control", b"public, max-age=%d" % cards.MAX_AGE_S)]
        return Response(200, self.keyring.jwks(agent), b"application/jwk-set+json", headers)

    async def document(self, base: str, agent: str) -> bytes:
        """The card as it is served."""
        return (await self._card(base, agent)).body

    async def extended(self, base: str, agent: str, principal: Principal) -> bytes:
        profile = self._profile(agent)
        terms = self._terms(profile)
        if profile.extended is None or not cards.has_extended(profile, terms):
            raise UnsupportedOperation("This agent has no extended card: its card says extendedAgentCard false")
        caller = Caller(principal.subject, principal.tenant, principal.scopes)
        more = profile.extended(caller)
        document = _document(cards.agent_card(profile, _agent_base(base, agent), terms, more), profile.extras)
        return encode(await self.keyring.signed(document, agent, _agent_base(base, agent) + JWKS_PATH))

    async def _card(self, base: str, agent: str, *, old: bool = False) -> ServedCard:
        found = self.served.get((agent, base, old))
        if found is not None and not self.keyring.outdated():
            return found
        if found is not None:
            self.forget()
        changed = self.changed
        if agent == FLEET:
            card = cards.fleet_card(self.profiles, base, self.version, self._terms(None))
            extras = cards.fleet_block(self.profiles, base, self.terms)
            jku = base + JWKS_PATH
        else:
            profile = self._profile(agent)
            card = cards.agent_card(profile, _agent_base(base, agent), self._terms(profile))
            extras, jku = profile.extras, _agent_base(base, agent) + JWKS_PATH
        if old:
            document = (await load("cards")).old_card(encode(card)) | extras
        else:
            document = await self.keyring.signed(_document(card, extras), agent, jku)
        made = cards.served(encode(document), self.changed)
        if changed == self.changed:
            self.served[agent, base, old] = made
            if len(self.served) > CACHED:
                self.served.popitem(last=False)
        return made

    def _profile(self, agent: str) -> Profile:
        profile = self.by_id.get(agent)
        if profile is None:
            raise AgentNotFound(f"There is no agent {agent[:128]!r} here; GET /agents/ lists those there are")
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
