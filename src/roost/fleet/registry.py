"""The agents that this host serves now. They come and go while the host runs; nobody else keeps a copy.

Doors, cards and the engine ask the registry whenever they need an agent. Code that derives something from the agents,
such as a signed card, subscribes and is called after each change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from roost.engine.hosted import AgentChange, HostedAgent, Profile


class AgentExists(Exception):
    """An agent with this id is already served."""


class NoSuchAgent(Exception):
    """No agent with this id is served."""


class Registry:
    """Holds the agents in the order in which they were added. Implements the engine's port `Agents`."""

    def __init__(self, agents: Iterable[HostedAgent] = ()) -> None:
        self._agents: dict[str, HostedAgent] = {}
        self._checks: list[Callable[[Profile], None]] = []
        self._listeners: list[Callable[[AgentChange], None]] = []
        for hosted in agents:
            self.add(hosted)

    def get(self, agent: str) -> HostedAgent | None:
        return self._agents.get(agent)

    def profile(self, agent: str) -> Profile | None:
        hosted = self._agents.get(agent)
        return None if hosted is None else hosted.profile

    def profiles(self) -> list[Profile]:
        return [hosted.profile for hosted in self._agents.values()]

    def __contains__(self, agent: str) -> bool:
        return agent in self._agents

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._agents))

    def __len__(self) -> int:
        return len(self._agents)

    def add(self, hosted: HostedAgent) -> None:
        """Serve one more agent. It continues the tasks of an earlier agent with its id."""
        agent = hosted.profile.id
        if agent in self._agents:
            raise AgentExists(f"the agent {agent!r} is already served: replace it, or choose another id")
        self._check(hosted.profile)
        self._agents[agent] = hosted
        self._tell(AgentChange(agent, hosted))

    def replace(self, hosted: HostedAgent) -> None:
        """Serve `hosted` instead of the agent with its id. Runs in progress finish with the object they began with."""
        agent = hosted.profile.id
        if agent not in self._agents:
            raise NoSuchAgent(f"there is no agent {agent!r} to replace: add it")
        self._check(hosted.profile)
        self._agents[agent] = hosted
        self._tell(AgentChange(agent, hosted))

    def remove(self, agent: str, *, cancel: bool = False) -> None:
        """Stop serving an agent. Its accepted tasks finish, or are canceled with `cancel`."""
        if self._agents.pop(agent, None) is None:
            raise NoSuchAgent(f"there is no agent {agent!r} to remove")
        self._tell(AgentChange(agent, None, cancel))

    def require(self, check: Callable[[Profile], None]) -> None:
        """Let `check` refuse agents by raising: those that are served now, and each new one before it is."""
        for profile in self.profiles():
            check(profile)
        self._checks.append(check)

    def subscribe(self, listener: Callable[[AgentChange], None]) -> None:
        """Call `listener` after each change, on the event loop, in the order of subscription."""
        self._listeners.append(listener)

    def _check(self, profile: Profile) -> None:
        for check in self._checks:
            check(profile)

    def _tell(self, change: AgentChange) -> None:
        for listener in self._listeners:
            listener(change)
