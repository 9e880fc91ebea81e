"""The one card builder: a profile and a base URL in, a served card out."""

from __future__ import annotations

import hashlib
from email.utils import formatdate
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import structs

from roost.engine.extension import Extensions
from roost.engine.hosted import ExtendedCard, Profile
from roost.protocol.codec import encode
from roost.protocol.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    APIKeySecurityScheme,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

PROTOCOL_VERSION = "1.0"
OLD_VERSION = "0.3"
BINDINGS = ("JSONRPC", "HTTP+JSON")
FLEET_BINDING = "HTTP+JSON"
"""The binding whose paths begin with the tenant: `/agents` and the tenant make the path of the agent."""
MAX_AGE_S = 60

FLEET = "https://scitex.ai/a2a/extensions/sac-fleet/v1"
FLEET_BLOCK = "x-scitex-agent-container"
RESERVED_EXTRAS = frozenset({FLEET_BLOCK, "x-orochi", "x-sac"})
"""Members of a card that readers take for statements of the host. Agents cannot set them."""


class ReservedExtra(ValueError):
    """The `extras` of a profile have a name that only the host may use; the message says what to change."""


class Terms(NamedTuple):
    """The host's requirements and features, as cards declare them."""

    schemes: tuple[str, ...] = ()
    """The schemes, of which any one is enough; empty if no credential is required."""
    description: str = ""
    openid_url: str = ""
    extensions: Extensions = Extensions()
    """The extensions that the host supports."""
    push: bool = True
    """Whether webhooks are called."""
    grpc: str = ""
    """The place of gRPC: host:port, or :port on the card's own host; empty if there is no gRPC."""
    a2a_03: bool = False
    """Whether A2A 0.3 is served too."""
    grpc_03: str = ""
    """The agent that gRPC of 0.3, which has no tenant, serves."""


OPEN = Terms()


class ServedCard(NamedTuple):
    body: bytes
    etag: str
    last_modified: str


def agent_card(profile: Profile, base: str, terms: Terms = OPEN, extended: ExtendedCard | None = None) -> AgentCard:
    """`base` is the agent's own URL, without a slash at its end."""
    more = extended or ExtendedCard()
    return AgentCard(
        name=profile.name,
        description=more.description or profile.description,
        version=profile.version,
        supported_interfaces=_interfaces(profile.id, base, terms),
        capabilities=AgentCapabilities(
            streaming=profile.streaming,
            push_notifications=terms.push,
            extended_agent_card=has_extended(profile, terms),
            extensions=[*terms.extensions.declared(profile), *more.extensions],
        ),
        default_input_modes=profile.input_modes,
        default_output_modes=profile.output_modes,
        skills=[_with_modes(skill, profile) for skill in (*profile.skills, *more.skills)],
        security_schemes=_schemes(terms),
        security_requirements=_requirements(terms),
        provider=profile.provider,
        documentation_url=profile.documentation_url,
        icon_url=profile.icon_url,
    )


def _with_modes(skill: AgentSkill, profile: Profile) -> AgentSkill:
    """Say which media types a skill takes and gives. Clients of A2A 0.3 look for them there, not in the defaults."""
    return structs.replace(
        skill,
        input_modes=skill.input_modes or profile.input_modes,
        output_modes=skill.output_modes or profile.output_modes,
    )


def check_extras(profile: Profile) -> None:
    """Raise ReservedExtra if the agent claims a member of the card that only the host may write."""
    for name in profile.extras:
        if name.lower() in RESERVED_EXTRAS:
            raise ReservedExtra(
                f"card_extras of agent {profile.id!r} cannot have {name!r}: only the host may write it. Remove it, or"
                " choose a name of your own, such as 'x-yours'"
            )


def has_extended(profile: Profile, terms: Terms) -> bool:
    """Build the extended card, for authenticated callers only."""
    return profile.extended is not None and bool(terms.schemes)


def fleet_card(profiles: list[Profile], base: str, version: str, terms: Terms = OPEN) -> AgentCard:
    """The card of the host as such. It has one interface, of no member: the tenant of a request names the agent.

    A client that is given this card and names no agent is refused, and not led to some member. A2A 0.3 has no tenant,
    so the fleet has no interface of 0.3.
    """
    skill = AgentSkill(
        id="fleet",
        name="Fleet",
        description="Hosts the agents " + ", ".join(profile.id for profile in profiles) + ".",
        tags=["fleet"],
    )
    members = AgentExtension(
        uri=FLEET,
        description="Where the members of this fleet and their cards are.",
        params={
            "members_path": "/agents/",
            "member_card_path": "/agents/<name>/.well-known/agent-card.json",
        },
    )
    return AgentCard(
        name="Roost fleet",
        description="A host of A2A agents. Each has a card of its own; GET /agents/ lists them. The tenant of a request"
        " names the agent.",
        version=version,
        supported_interfaces=[
            AgentInterface(url=f"{base}/agents", protocol_binding=FLEET_BINDING, protocol_version=PROTOCOL_VERSION)
        ],
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=terms.push,
            extended_agent_card=False,
            extensions=[*terms.extensions.declared(None), members],
        ),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
        security_schemes=_schemes(terms),
        security_requirements=_requirements(terms),
    )


def fleet_block(profiles: list[Profile], base: str, terms: Terms = OPEN) -> dict[str, object]:
    """The part of the fleet's card beyond A2A: where each member is."""
    members = [
        {"name": profile.id, "supportedInterfaces": _interfaces(profile.id, f"{base}/agents/{profile.id}", terms)}
        for profile in profiles
    ]
    return {FLEET_BLOCK: {"agents": members}}


def directory(profiles: list[Profile], base: str, terms: Terms = OPEN) -> bytes:
    """GET /agents/"""
    agents = [
        {
            "name": profile.id,
            "description": profile.description,
            "card": f"{base}/agents/{profile.id}/.well-known/agent-card.json",
            "supportedInterfaces": _interfaces(profile.id, f"{base}/agents/{profile.id}", terms),
        }
        for profile in profiles
    ]
    return encode({"agents": agents})


def served(body: bytes, modified: float) -> ServedCard:
    return ServedCard(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', formatdate(modified, usegmt=True))


def _interfaces(agent: str, base: str, terms: Terms) -> list[AgentInterface]:
    places = dict.fromkeys(BINDINGS, base)
    if terms.grpc:
        places["GRPC"] = _grpc_place(terms.grpc, base)
    found = [
        AgentInterface(url=url, protocol_binding=binding, protocol_version=PROTOCOL_VERSION, tenant=agent)
        for binding, url in places.items()
    ]
    if terms.a2a_03:
        found += [
            AgentInterface(url=url, protocol_binding=binding, protocol_version=OLD_VERSION)
            for binding, url in places.items()
            if binding != "GRPC" or agent == terms.grpc_03
        ]
    return found


def _grpc_place(place: str, base: str) -> str:
    if not place.startswith(":"):
        return place
    host = urlsplit(base).hostname or "localhost"
    return f"[{host}]{place}" if ":" in host else host + place


def _schemes(terms: Terms) -> dict[str, SecurityScheme]:
    said = terms.description
    known = {
        "bearer": SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer", description=said)),
        "apiKey": SecurityScheme(
            api_key_security_scheme=APIKeySecurityScheme(location="header", name="X-API-Key", description=said)
        ),
        "jwt": SecurityScheme(
            open_id_connect_security_scheme=OpenIdConnectSecurityScheme(
                open_id_connect_url=terms.openid_url, description=said
            )
        )
        if terms.openid_url
        else SecurityScheme(
            http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer", bearer_format="JWT", description=said)
        ),
        "mtls": SecurityScheme(mtls_security_scheme=MutualTlsSecurityScheme(description=said)),
    }
    return {scheme: known[scheme] for scheme in terms.schemes if scheme in known}


def _requirements(terms: Terms) -> list[SecurityRequirement]:
    """Return one object for each scheme, because they are alternatives."""
    return [SecurityRequirement(schemes={scheme: StringList()}) for scheme in _schemes(terms)]
