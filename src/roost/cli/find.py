"""Which agent is meant, where the user did not say."""

from __future__ import annotations

from roost.cli.client import HostClient
from roost.cli.errors import USAGE, CommandFailed, CommandRefused
from roost.cli.options import command
from roost.fleet.cards import FLEET


def default_agent(client: HostClient) -> str:
    """The host's only agent, or the one bound to its root."""
    agents = client.agents()
    if len(agents) == 1:
        return agents[0].name
    card = client.parsed_card()
    if card.supported_interfaces and all(extension.uri != FLEET for extension in card.capabilities.extensions):
        return card.supported_interfaces[0].tenant
    raise CommandFailed(f"say to which agent: roost send AGENT TEXT. {client.url} has {client.names()}", USAGE)


def agent_of(client: HostClient, task_id: str) -> str:
    for agent in client.agents():
        try:
            client.task(agent.name, task_id)
        except CommandRefused as error:
            if error.reason != "TASK_NOT_FOUND":
                raise
        else:
            return agent.name
    raise CommandFailed(
        f"no agent at {client.url} has a task {task_id!r}; {command(client.url, 'tasks')} lists those there are"
    )
