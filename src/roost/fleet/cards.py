"""The one card builder: a profile and a base URL in, a served card out."""

from __future__ import annotations

import hashlib
from email.utils import formatdate
from typing import NamedTuple

from roost.engine.idempotency import EXTENSION as IDEMPOTENCY
from roost.engine.ports import Profile
from roost.protocol.codec import encode
from roost.protocol.types import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill

PROTOCOL_VERSION = "1.0"
BINDINGS = ("JSONRPC", "HTTP+JSON")
MAX_AGE_S = 60

STREAM_RESUME = "urn:roost:a2a:stream-resume:v1"
FLEET = "https://scitex.ai/a2a/extensions/sac-fleet/v1"

HOST_EXTENSIONS = (
    AgentExtension(
        uri=STREAM_RESUME,
        description="SSE events carry ids; SubscribeToTask with Last-Event-ID goes on after that event.",
    ),
    AgentExtension(
        uri=IDEMPOTENCY,
        description="A message sent again with its messageId is answered as it was the first time, and makes no second"
        " task; with another content it is refused.",
    ),
)


class ServedCard(NamedTuple):
    body: bytes
    etag: str
    last_modified: str


def extensions_of(profile: Profile) -> list[AgentExtension]:
    return [*HOST_EXTENSIONS, *profile.extensions]


def agent_card(profile: Profile, base: str) -> AgentCard:
    """`base` is the agent's own URL, without a slash at its end."""
    return AgentCard(
        name=profile.name,
        description=profile.description,
        version=profile.version,
        supported_interfaces=_interfaces(profile.id, base),
        capabilities=AgentCapabilities(
            streaming=profile.streaming,
            push_notifications=True,
            extended_agent_card=False,
            extensions=extensions_of(profile),
        ),
        default_input_modes=profile.input_modes,
        default_output_modes=profile.output_modes,
        skills=profile.skills,
        provider=profile.provider,
        documentation_url=profile.documentation_url,
        icon_url=profile.icon_url,
    )


def fleet_card(profiles: list[Profile], base: str, version: str) -> AgentCard:
    """The card of the host as such: its members are its interfaces and its skills."""
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
        description="A host of A2A agents. Each has a card of its own; GET /agents/ lists them.",
        version=version,
        supported_interfaces=[
            interface for profile in profiles for interface in _interfaces(profile.id, f"{base}/agents/{profile.id}")
        ],
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=True, extended_agent_card=False, extensions=[*HOST_EXTENSIONS, members]
        ),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )


def directory(profiles: list[Profile], base: str) -> bytes:
    """GET /agents/"""
    agents = [
        {
            "name": profile.id,
            "description": profile.description,
            "card": f"{base}/agents/{profile.id}/.well-known/agent-card.json",
            "supportedInterfaces": _interfaces(profile.id, f"{base}/agents/{profile.id}"),
        }
        for profile in profiles
    ]
    return encode({"agents": agents})


def served(body: bytes, modified: float) -> ServedCard:
    return ServedCard(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', formatdate(modified, usegmt=True))


def _interfaces(agent: str, base: str) -> list[AgentInterface]:
    return [
        AgentInterface(url=base, protocol_binding=binding, protocol_version=PROTOCOL_VERSION, tenant=agent)
        for binding in BINDINGS
    ]
