"""`Agent`: a Python function behind A2A."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from roost.agents.process import ProcessInvoker
from roost.agents.python import Handler, Invoker, invoker_of, is_async
from roost.engine.hosted import AgentLimits, Caller, ExtendedCard, HostedAgent, Profile
from roost.engine.turn import Turn
from roost.identity.scopes import SCHEMES
from roost.protocol.types import AgentExtension, AgentProvider, AgentSkill

F = TypeVar("F", bound=Handler)
E = TypeVar("E", bound=Callable[[Caller], ExtendedCard | None])

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
THREADS = 64
"""The default limit of concurrent turns of a plain function, or of an agent with processes."""


@runtime_checkable
class Hostable(Protocol):
    """Anything that `roost serve` can find in a module and host."""

    id: str

    def hosted(self) -> HostedAgent: ...


class AgentDefinitionError(Exception):
    """The definition of an agent is wrong; the message says what its author has to change."""


class Agent:
    """One agent of the fleet.

    id: the agent's name in paths: letters, digits, `.`, `_` and `-`.
    name: the name on the card; the id by default.
    description: the description on the card; the function's docstring by default.
    version: the agent's version on the card.
    skills: what the agent can do; by default one skill is made from the description.
    input_modes, output_modes: the media types of the agent, `*/*` for all. Other input is refused.
    direct: the agent may answer with `task.reply`: a message and no task.
    parallel: turns of one context may run at the same time.
    on_crash: "resume" calls the function again after a crash; "fail" ends the task FAILED.
    process: each turn runs in a process of its own, which can be stopped hard.
    env: environment variables for that process. It gets these, PATH, HOME, the locale and the like, and no others.
    join_ms: pieces of text that come within this many milliseconds are joined into one event.
    concurrency: how many turns run at the same time.
    queue: how many messages may wait for their turn; further ones are refused with 429.
    wall_s, silence_s: the longest turn, and the longest time without an emission, in seconds; then FAILED.
    schemes: the security schemes that the agent accepts, out of those of the host: "bearer", "apiKey", "jwt", "mtls",
        "unix"; all by default.
    card_extras: members of the card beyond those of A2A, each named x-...; they are signed with the rest. A host
        refuses the names that only it may use: x-scitex-agent-container, x-orochi and x-sac.
    """

    def __init__(
        self,
        id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        skills: Sequence[AgentSkill] = (),
        input_modes: Sequence[str] = ("text/plain", "application/json"),
        output_modes: Sequence[str] = ("text/plain", "application/json"),
        extensions: Sequence[AgentExtension] = (),
        provider: AgentProvider | None = None,
        documentation_url: str | None = None,
        icon_url: str | None = None,
        direct: bool = False,
        parallel: bool = False,
        on_crash: Literal["resume", "fail"] = "resume",
        process: bool = False,
        env: Mapping[str, str] | None = None,
        join_ms: float = 0,
        concurrency: int | None = None,
        queue: int = AgentLimits().queue,
        wall_s: float | None = None,
        silence_s: float | None = None,
        schemes: Sequence[Literal["bearer", "apiKey", "jwt", "mtls", "unix"]] = (),
        card_extras: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(id, str) or not ID.fullmatch(id):
            raise AgentDefinitionError(
                f"{id!r} cannot be an agent's id: use up to 128 letters, digits, '.', '_' and '-',"
                " a letter or digit first"
            )
        if on_crash not in ("resume", "fail"):
            raise AgentDefinitionError(f"on_crash is 'resume' or 'fail', not {on_crash!r}")
        unknown = sorted({*schemes} - {*SCHEMES})
        if unknown:
            raise AgentDefinitionError(f"schemes of agent {id!r} are some of {', '.join(SCHEMES)}, not {unknown[0]!r}")
        foreign = sorted(key for key in card_extras or {} if not key.startswith("x-"))
        if foreign:
            raise AgentDefinitionError(f"card_extras of agent {id!r} have names like x-yours, not {foreign[0]!r}")
        self.id = id
        self.name = name or id
        self.description = description
        self.version = version
        self.skills = list(skills)
        self.input_modes = list(input_modes)
        self.output_modes = list(output_modes)
        self.extensions = list(extensions)
        self.provider = provider
        self.documentation_url = documentation_url
        self.icon_url = icon_url
        self.direct = direct
        self.parallel = parallel
        self.on_crash = on_crash
        self.process = process
        self.env = dict(env or {})
        self.join_s = join_ms / 1000
        self.concurrency = concurrency
        self.queue = queue
        self.wall_s = wall_s
        self.silence_s = silence_s
        self.schemes = tuple(schemes)
        self.card_extras = dict(card_extras or {})
        self.handler: Handler | None = None
        self.extended: Callable[[Caller], ExtendedCard | None] | None = None

    def on_message(self, handler: F) -> F:
        """Decorate the function that answers every message. It is called as `handler(task)`."""
        if self.handler is not None:
            raise AgentDefinitionError(f"agent {self.id!r} has two on_message functions; it can have one")
        try:
            inspect.signature(handler).bind(object())
        except TypeError:
            raise AgentDefinitionError(
                f"{handler.__name__}() of agent {self.id!r} must take one argument, the task"
            ) from None
        self.handler = handler
        return handler

    def extended_card(self, more: E) -> E:
        """Decorate the function that returns what the card tells an authenticated caller, as `more(caller)`.

        It is called for each request, so it should be quick. If it returns None the caller gets the public card.
        """
        self.extended = more
        return more

    @property
    def profile(self) -> Profile:
        handler = self._handler()
        text = self.description or inspect.getdoc(handler) or f"The agent {self.name}."
        description = " ".join(text.split())
        skills = self.skills or [AgentSkill(id=self.id, name=self.name, description=description, tags=[self.id])]
        threads = self.process or not is_async(handler)
        return Profile(
            id=self.id,
            name=self.name,
            description=description,
            version=self.version,
            skills=skills,
            input_modes=self.input_modes,
            output_modes=self.output_modes,
            extensions=self.extensions,
            provider=self.provider,
            documentation_url=self.documentation_url,
            icon_url=self.icon_url,
            streaming=True,
            direct=self.direct,
            parallel=self.parallel,
            resume=self.on_crash == "resume",
            announce=True,
            limits=AgentLimits(
                self.concurrency or (THREADS if threads else AgentLimits().concurrency),
                self.queue,
                self.wall_s,
                self.silence_s,
            ),
            schemes=self.schemes,
            extras=self.card_extras,
            extended=self.extended,
        )

    def hosted(self) -> HostedFunction:
        handler = self._handler()
        call = ProcessInvoker(inspect.getfile(handler), self.id, self.env) if self.process else self.invoker()
        return HostedFunction(self.profile, call)

    def invoker(self) -> Invoker:
        """The invoker that calls the function in this process."""
        return invoker_of(self._handler(), self.join_s)

    def _handler(self) -> Handler:
        if self.handler is None:
            raise AgentDefinitionError(f"agent {self.id!r} has no function yet: decorate one with @agent.on_message")
        return self.handler


class HostedFunction:
    """An agent's function and what calls it."""

    def __init__(self, profile: Profile, call: Invoker) -> None:
        self.profile = profile
        self.call = call

    async def run(self, turn: Turn) -> None:
        await self.call(turn)

    async def cancel(self, turn: Turn) -> None:
        """Do nothing: the function learns of it when its coroutine is cancelled."""
