"""`roost agents` and `roost card`: what a host offers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from roost.cli.client import AgentDirectory, HostClient
from roost.cli.options import DEFAULT_URL, Json, Token, Url
from roost.cli.output import json_line, one_line, table
from roost.protocol.types import AgentCard


def agents(url: Url = DEFAULT_URL, token: Token = "", as_json: Json = False) -> None:
    """List the agents of a host."""
    client = HostClient(url, token)
    body = client.directory()
    listed = client.parsed(AgentDirectory, body).agents
    if as_json:
        json_line(body)
    else:
        table(("AGENT", "DESCRIPTION"), [(agent.name, agent.description) for agent in listed])


def card(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", show_default=False, help="The agent. Without it, the fleet.")
    ] = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: Json = False,
) -> None:
    """Show an agent's card."""
    client = HostClient(url, token)
    body = client.card(agent)
    parsed = client.parsed(AgentCard, body)
    if as_json:
        json_line(body)
        return
    for line in _lines(parsed):
        print(line)


def _lines(card: AgentCard) -> Iterator[str]:
    capabilities = card.capabilities
    yield f"{one_line(card.name)} {one_line(card.version)}"
    yield one_line(card.description)
    yield ""
    yield from _listed("Skills", [f"{skill.id}: {skill.description}" for skill in card.skills])
    yield from _listed(
        "Interfaces",
        [f"{face.url}  {face.protocol_binding} {face.protocol_version}" for face in card.supported_interfaces],
    )
    yield from _listed("Accepts", [", ".join(card.default_input_modes)])
    yield from _listed("Returns", [", ".join(card.default_output_modes)])
    abilities = {
        "streaming": capabilities.streaming,
        "push notifications": capabilities.push_notifications,
        "extended card": capabilities.extended_agent_card,
    }
    yield from _listed("Capabilities", [", ".join(name for name, can in abilities.items() if can) or "none"])
    yield from _listed(
        "Extensions",
        [f"{one.uri}{' (required)' if one.required else ''}  {one.description}" for one in capabilities.extensions],
    )
    yield from _listed("Credentials", sorted(card.security_schemes))
    yield from _listed("Signatures", [f"{len(card.signatures)}"] if card.signatures else [])


def _listed(title: str, items: list[str]) -> Iterator[str]:
    for index, item in enumerate(items):
        yield f"{title if index == 0 else '':14}{one_line(item)}"
