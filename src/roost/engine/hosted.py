"""The port that agents implement, and the profile that the engine and the cards read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from msgspec import Struct

from roost.engine.turn import Turn
from roost.protocol.types import AgentExtension, AgentProvider, AgentSkill, JSONObject


class AgentLimits(NamedTuple):
    concurrency: int = 1000
    """How many turns of the agent run at the same time."""
    queue: int = 10_000
    """How many accepted messages may wait for their turn. Further ones are refused with 429."""
    wall_s: float | None = None
    """Longest duration of one turn in seconds; then the task is FAILED."""
    silence_s: float | None = None
    """Longest time without an emission in seconds; then the task is FAILED."""


class Caller(NamedTuple):
    """The principal that asks for an extended card."""

    subject: str
    tenant: str
    scopes: tuple[str, ...]


class ExtendedCard(Struct, kw_only=True):
    """Additions to an agent's card for one caller."""

    description: str = ""
    """Replaces the agent's own description; empty keeps it."""
    skills: list[AgentSkill] = []
    extensions: list[AgentExtension] = []


class Profile(Struct, kw_only=True):
    """A description of an agent: the source of its card, and of how the engine treats it."""

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
    """The agent may answer with a message and no task."""
    parallel: bool
    """Turns of one context may run at the same time."""
    resume: bool
    """The agent is called again after a crash; otherwise the task ends FAILED."""
    announce: bool
    """The engine emits WORKING when a turn begins; otherwise the agent does so itself."""
    limits: AgentLimits
    replays: bool = True
    """After an answer the agent repeats what it did before, and the engine drops what the journal has already.

    Otherwise the agent goes on where it paused, and everything that it emits is new.
    """
    schemes: tuple[str, ...] = ()
    """The security schemes that this agent accepts, out of those of the host; empty for all of them."""
    extras: JSONObject = {}
    """The `x-*` members of the card."""
    extended: Callable[[Caller], ExtendedCard | None] | None = None
    """Returns what the card tells a caller beyond the public card; None for the public card."""


class HostedAgent(Protocol):
    """An agent and the runtime that calls it."""

    profile: Profile

    async def run(self, turn: Turn) -> None:
        """Serve one turn: emit through `turn` and return when the turn is over.

        Returning completes the task, unless the turn has ended or paused it. An exception fails the task.
        """

    async def cancel(self, turn: Turn) -> None:
        """Prepare for the end of a turn that a client canceled. The coroutine of `run` is cancelled afterwards.

        `turn` is the object that `run` was called with.
        """


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
