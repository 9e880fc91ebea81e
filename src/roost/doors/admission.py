"""The one step that every request passes before it reaches an agent, in two calls.

Before the body: `caller` finds out who calls (401) and counts the request for its surface and its caller (429).
For the agent:   `agent` checks the right to call it (403, 404), counts the request for the agent (429), and settles
                 the protocol version and the extensions (400).

There are two calls because OpenAI and MCP name the agent in the body. HTTP, gRPC and WebSocket doors use the same two.
The result is a `Call`, whose streams are context managers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.doors.access import Access, Closable, confined, ended
from roost.doors.guard import asked_extensions, require_version, version_of
from roost.doors.heartbeat import Heartbeat
from roost.doors.http import RequestHead, WebSocket
from roost.engine.bodies import BodyReader
from roost.engine.engine import Engine
from roost.engine.hosted import Profile
from roost.engine.live import LiveTask
from roost.engine.responses import NO_OPENING, SendResult, TaskStream
from roost.engine.ring import StreamFrame
from roost.fleet.registry import Registry
from roost.identity.principal import Principal
from roost.identity.quotas import QuotaExceeded
from roost.protocol.errors import A2AError, AgentNotFound, Unauthenticated, Unavailable
from roost.protocol.states import TERMINAL

if TYPE_CHECKING:
    from roost.doors.context import Context

A2A, ADMIN, OBSERVABILITY = "a2a", "admin", "observability"
"""The surfaces: groups of doors that have a rate of their own."""
POLICY_VIOLATION = 1008
"""The WebSocket close code of a connection whose credential has ended."""

Negotiate = Callable[[RequestHead], None]
"""Checks the protocol version that a request asks for."""


def speaks_1_0(head: RequestHead) -> None:
    require_version(version_of(head))


def speaks_any(head: RequestHead) -> None:
    """Accept any version, for protocols that do not carry A2A-Version."""


class Admission:
    def __init__(self, access: Access, engine: Engine, agents: Registry) -> None:
        self.access = access
        self.engine = engine
        self.agents = agents
        self.meter = engine.meter

    # Before the body

    async def caller(self, head: RequestHead, surface: str, profile: Profile | None = None) -> Principal:
        """Authenticate the caller, and count the request. `profile` is the agent's where the path names it."""
        principal = await self.access.caller(head, profile)
        self.count(surface, principal)
        return principal

    async def with_scope(self, head: RequestHead, surface: str, *scopes: str) -> Principal:
        """Authenticate a caller who has one of these scopes, and count the request."""
        principal = await self.access.for_scopes(head, *scopes)
        self.count(surface, principal)
        return principal

    def count(self, surface: str, principal: Principal) -> None:
        """Count a request for its surface and its caller. QuotaExceeded if there were too many."""
        if not self.meter.idle:
            self.meter.check_rate(surface, principal.name, "", "")

    def exhausted(self, surface: str, principal: Principal) -> QuotaExceeded | None:
        """Return why a request of the caller would be refused now; None if it would not be. Count nothing."""
        if self.meter.idle:
            return None
        try:
            self.meter.check_rate(surface, principal.name, "", "", count=False)
        except QuotaExceeded as exceeded:
            return exceeded
        return None

    def count_surface(self, surface: str) -> None:
        """Count a request for its surface, at a path that needs no credential."""
        if not self.meter.idle:
            self.meter.check_rate(surface, "", "", "")

    # For the agent

    async def agent(
        self,
        context: Context,
        head: RequestHead,
        principal: Principal,
        agent: str,
        negotiate: Negotiate | None = speaks_1_0,
    ) -> Call:
        """Admit the caller to the agent. With `negotiate` None the door settles version and extensions itself later.

        An agent that is not served any more can still be asked about its tasks.
        """
        profile = self.agents.profile(agent)
        if profile is None and not await self.engine.knows(agent):
            raise unknown_agent(agent)
        self.access.check_agent(head, principal, agent, profile)
        if not self.meter.idle:
            self.meter.check_rate("", "", "", agent)
        call = Call(context, head, agent, profile, confined(head, principal))
        if negotiate is not None:
            self.negotiate(call, negotiate)
        return call

    def negotiate(self, call: Call, version: Negotiate) -> None:
        """Check the version, and activate the extensions that the client asks for and the agent has."""
        version(call.head)
        call.head.extensions = self.engine.extensions.activate(asked_extensions(call.head), call.profile)

    # Streams that follow no task

    @contextmanager
    def held_open(self, stream: Closable, principal: Principal, agent: str = "") -> Iterator[None]:
        """Count an open stream for as long as the block lasts, and close it when the caller's credential ends."""
        with self.meter.open_stream(principal.name, principal.tenant, agent):
            self.access.watch(stream, principal)
            try:
                yield
            finally:
                self.access.unwatch(stream)


def unknown_agent(agent: str) -> AgentNotFound:
    hint = "; the tenant of a request to the fleet names the agent" if ":" in agent else ""
    return AgentNotFound(f"There is no agent {agent[:128]!r} here{hint}; GET /agents/ lists the agents of this host")


class Call(NamedTuple):
    """A request that has been admitted to an agent."""

    context: Context
    head: RequestHead
    agent: str
    profile: Profile | None
    """None if the agent is not served any more."""
    principal: Principal
    converts: bool = False
    """The door makes its own form of large bodies, for each client anew."""

    @property
    def reader(self) -> BodyReader:
        """The client as the reader of large bodies. The door that serves it releases them after the response."""
        head = self.head
        if head.reader is None:
            bodies = self.context.engine.bodies
            head.reader = BodyReader(bodies, self.principal.name, head.left, converts=self.converts)
        return head.reader

    @asynccontextmanager
    async def stream(self, opened: Awaitable[TaskStream]) -> AsyncIterator[OpenStream]:
        """Follow a task for as long as the block lasts and the caller's credential holds."""
        context, stream = self.context, await opened
        follower, begun = stream.follower, OpenStream(stream, context.heartbeat, self.principal)
        stream = stream._replace(opening=NO_OPENING)
        if follower is None:
            yield begun
            return
        context.access.watch(follower, self.principal)
        try:
            yield begun
        finally:
            context.heartbeat.forget(follower)
            context.access.unwatch(follower)
            stream.release()

    @asynccontextmanager
    async def socket(self, socket: WebSocket) -> AsyncIterator[None]:
        """Hold a WebSocket connection open: it counts as a stream, and ends with the caller's credential."""
        watched = _WatchedSocket(socket, ended(self.principal, "connection"))
        with self.context.admission.held_open(watched, self.principal, self.agent):
            yield


class OpenStream:
    """A task's stream that a caller follows. `Call.stream` makes and ends it."""

    __slots__ = ("_heartbeat", "follower", "opening", "position", "principal")

    def __init__(self, stream: TaskStream, heartbeat: Heartbeat, principal: Principal) -> None:
        self._heartbeat = heartbeat
        self.principal = principal
        self.follower = stream.follower
        self.opening: SendResult = stream.opening
        self.position = stream.position
        """The sequence number of the last event that the opening includes; None if the stream was resumed."""

    def opening_is_sent(self) -> None:
        """Let the opening go, which may be large."""
        self.opening = NO_OPENING

    @property
    def live(self) -> LiveTask:
        assert self.follower is not None
        return self.follower.live

    @property
    def has_view(self) -> bool:
        """The reader's extensions add to the events, so their bytes are not those of other readers."""
        return self.follower is not None and self.follower.view is not None

    def batch(self) -> Coroutine[Any, Any, list[StreamFrame] | None]:
        """Wait for the next events. [] means that a heartbeat is due, None that the stream is over."""
        if self.follower is None:
            return _no_events()
        self._heartbeat.sent(self.follower)
        return self.follower.batch()

    def close(self) -> None:
        """End the stream early: `batch` returns None from now on."""
        if self.follower is not None:
            self.follower.close()

    def interruption(self) -> A2AError | None:
        """Why the stream has ended before its task did; None if it has not."""
        follower = self.follower
        if follower is None or follower.over:
            return None
        live = follower.live
        if live.state in TERMINAL and follower.position >= live.seq:
            return None
        position = {"lastEventId": str(follower.position)}
        if not follower.open:
            return Unauthenticated(ended(self.principal, "stream"), metadata=position)
        return Unavailable(
            "the host is shutting down; subscribe to the task to continue", metadata=position, retry_after=1
        )


class _WatchedSocket:
    """Closes a WebSocket connection when its credential ends."""

    def __init__(self, socket: WebSocket, why: str) -> None:
        self.socket = socket
        self.why = why
        self.closing: asyncio.Task[Any] | None = None

    def close(self) -> None:
        if self.closing is None:
            self.closing = asyncio.get_running_loop().create_task(self.socket.close(POLICY_VIOLATION, self.why))


async def _no_events() -> None:
    """The events of a stream that ends with its opening."""
