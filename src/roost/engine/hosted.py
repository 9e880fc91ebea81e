"""What the engine and the cards know of an agent, and what the engine asks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from roost.protocol.types import AgentExtension, AgentProvider, AgentSkill, JSONObject

if TYPE_CHECKING:
    from roost.engine.run import Run


class AgentLimits(NamedTuple):
    concurrency: int = 1000
    """Runs of one agent at the same time."""
    queue: int = 10_000
    """Accepted messages that wait for their run; then 429."""
    wall_s: float | None = None
    """Longest time of one run, in seconds; then FAILED."""
    silence_s: float | None = None
    """Longest time without an emission, in seconds; then FAILED."""


class Caller(NamedTuple):
    """Who asks for an extended card."""

    subject: str
    tenant: str
    scopes: tuple[str, ...]


class ExtendedCard(Struct, kw_only=True):
    """What an agent's card says to this caller beyond what it says to everyone."""

    description: str = ""
    """Instead of the agent's own."""
    skills: list[AgentSkill] = []
    extensions: list[AgentExtension] = []


class Profile(Struct, kw_only=True):
    """What a card says of an agent, and how the engine treats it."""

    id: str
    name: str
    description: str
    version: str
    skills: list[AgentSkill]
    input_modes: list[str]
    output_modes: list[str]
    extensions: list[AgentExtension]
    provider: AgentProvider | None
    documentation_url: str | None
    icon_url: str | None
    streaming: bool
    direct: bool
    parallel: bool
    resume: bool
    """Call the agent again after a crash; otherwise the task ends FAILED."""
    announce: bool
    """The engine says WORKING when a run begins; otherwise the agent says so itself."""
    limits: AgentLimits
    schemes: tuple[str, ...] = ()
    """Credentials that this agent takes, of those that the host does; all of them by default."""
    extras: JSONObject = {}
    """`x-*` members of its card."""
    extended: Callable[[Caller], ExtendedCard | None] | None = None


class HostedAgent(Protocol):
    profile: Profile

    async def run(self, run: Run) -> None:
        """Serve one turn: emit through `run` and return when the turn is over."""

    async def cancel(self, run: Run) -> None:
        """A cancel was asked for; called before the run's coroutine is cancelled."""


class AgentChange(NamedTuple):
    """An agent was added, replaced or removed."""

    agent: str
    hosted: HostedAgent | None
    """The agent that is served from now on; None after a removal."""
    cancel: bool = False
    """After a removal: cancel the agent's tasks instead of letting them finish."""


class Agents(Protocol):
    """The agents that this host serves now, as the engine sees them (fleet/registry.py)."""

    def get(self, agent: str) -> HostedAgent | None: ...

    def __iter__(self) -> Iterator[str]:
        """The ids, in the order in which the agents were added."""

    def subscribe(self, listener: Callable[[AgentChange], None]) -> None:
        """Call `listener` after each change."""
