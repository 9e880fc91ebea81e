"""A host: a fleet of agents as an ASGI application."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from roost._version import VERSION
from roost.agents.agent import Hostable
from roost.doors.app import App
from roost.doors.cards import Cards
from roost.doors.context import Context
from roost.doors.counters import RequestCounts
from roost.doors.door import Door
from roost.doors.guard import Guard
from roost.doors.http import Receive, Scope, Send
from roost.doors.observability import Observability
from roost.doors.requests import RequestReader
from roost.egress import Egress
from roost.engine.bodies import Bodies
from roost.engine.engine import Engine
from roost.engine.extension import Extension
from roost.engine.ids import new_id
from roost.engine.limits import MessageLimits
from roost.engine.ports import Store, Wakes
from roost.engine.retention import RetentionPolicy
from roost.evidence.checkpoint import Checkpointer
from roost.fleet.cards import ReservedExtra, Terms
from roost.fleet.registry import Registry
from roost.identity.seal import Seal
from roost.offload import WorkerPool
from roost.protocol.canonical import NotCanonical
from roost.protocol.cost import JSONLimits
from roost.settings import Settings
from roost.wiring.doors import open_doors
from roost.wiring.egress import open_egress, open_push
from roost.wiring.extensions import open_extensions
from roost.wiring.grpc import GrpcSetupError, open_grpc, place_on_cards, start_grpc
from roost.wiring.identity import IdentityError, IdentityServices, open_meter, security_headers
from roost.wiring.store import StoreSetupError, open_seal, open_store, open_wakes

if TYPE_CHECKING:
    from roost.doors.grpc_server import GrpcServer


ROOT_V1 = "/v1/"
"""Closed at the root of a strict host. A2A 0.3, agentic-sandbox and OpenAI have paths of the root's agent there."""


class HostError(Exception):
    """The host cannot start; the message says what to change."""


class Host:
    """A fleet of agents, as an ASGI application. Starts with the lifespan, or with its first request.

    agents: the registry; agents can be added, replaced and removed while the host runs.
    """

    def __init__(
        self,
        agents: Sequence[Hostable],
        settings: Settings,
        store: Store | None = None,
        wakes: Wakes | None = None,
        hosts: Sequence[str] = (),
        place: str = "",
        more_doors: Callable[[Context], Sequence[Door]] = lambda context: (),
        more_extensions: Sequence[Extension] = (),
    ) -> None:
        """Prepare a host.

        hosts: the addresses that the server listens on, where they are known; place: the URL of one of them.
        more_doors: makes further doors, which are asked before the others.
        more_extensions: further extensions of A2A, which see a message after the others.
        """
        self.settings = settings
        self.hosts = [*hosts, *([settings.grpc_address()[0]] if settings.grpc else [])]
        self.place = place
        self.agents = Registry(agent.hosted() for agent in agents)
        if not len(self.agents):
            raise HostError("there is no agent to host")
        if settings.root and settings.root not in self.agents:
            raise HostError(
                f"root is {settings.root!r}, but there is no such agent; the agents are {', '.join(self.agents)}"
            )
        self.given_store = store
        self.given_wakes = wakes
        self.more_doors = more_doors
        self.more_extensions = more_extensions
        self.engine: Engine | None = None
        self.identity: IdentityServices | None = None
        self.checkpointer: Checkpointer | None = None
        self.egress: Egress | None = None
        self.app: App | None = None
        self.grpc: GrpcServer | None = None
        self.workers = WorkerPool()
        self.starting: asyncio.Task[None] | None = None
        self.grace_until = 0.0

    async def start(self) -> None:
        if self.app is not None:
            return
        store = self.given_store or open_store(self.settings)
        try:
            await self._start(store)
        except BaseException as error:
            if self.grpc is not None:
                await self.grpc.close()
                self.grpc = None
            await store.close()
            if isinstance(error, (IdentityError, GrpcSetupError, StoreSetupError, NotCanonical, ReservedExtra)):
                raise HostError(str(error)) from None
            raise

    async def _start(self, store: Store) -> None:
        settings = self.settings
        await store.open()
        seal = open_seal(settings, store)
        limits = MessageLimits(settings.max_parts, settings.max_metadata, settings.max_task_mb << 20)
        engine = self._open_engine(store, seal, limits)
        identity = IdentityServices(settings, store, engine, seal, self.hosts)
        try:
            await identity.start()
            self.agents.require(identity.check_schemes)
            self.grpc = open_grpc(settings, identity.access)
            cards = self._open_cards(engine, identity)
            self.agents.require(cards.check)
        except BaseException:
            await identity.close()
            raise
        identity.token_cache.listeners.append(lambda changes: cards.forget())
        await engine.start()
        await cards.prepare()
        self.engine, self.identity = engine, identity
        context = Context(
            engine,
            self.agents,
            identity.access,
            cards,
            requests=RequestReader(
                self.workers,
                JSONLimits(settings.max_values, settings.max_depth, settings.max_digits),
                limits,
                settings.max_body,
                settings.write_s,
            ),
            public_url=settings.public_url.rstrip("/"),
            bound_url=self.place,
        )
        counts = RequestCounts()
        guard = Guard(settings.public_url, settings.networks(), settings.origins())
        observability = Observability(engine, self.agents, counts, identity.access, VERSION)
        doors = [*self.more_doors(context), *open_doors(settings, context, identity, observability)]
        self.app = App(
            doors,
            guard,
            identity.access,
            counts,
            root=settings.root,
            closed=ROOT_V1 if settings.strict else "",
            headers=security_headers(settings),
        )
        self.checkpointer = Checkpointer(store, identity.keyring, settings.checkpoint_s)
        self.checkpointer.start()
        if self.grpc is not None:
            await start_grpc(self.grpc, settings, context, guard, counts, observability)

    def _open_engine(self, store: Store, seal: Seal, limits: MessageLimits) -> Engine:
        settings = self.settings
        worker = f"{socket.gethostname()}:{os.getpid()}:{new_id()[-12:]}"
        try:
            self.egress = open_egress(settings)
        except ValueError as error:
            raise HostError(f"push_allow_hosts or push_allow_cidrs: {error}") from error
        return Engine(
            store,
            self.agents,
            worker,
            wakes=self.given_wakes or open_wakes(settings, store),
            extensions=open_extensions(settings, self.more_extensions),
            meter=open_meter(settings),
            retention=RetentionPolicy(
                days=settings.retention_days,
                tasks=settings.retention_tasks,
                min_free=settings.min_free_mb << 20,
                unserved_days=settings.unserved_days,
                reservations=settings.idempotency_max,
            ),
            limits=limits,
            push=open_push(settings, self.egress, seal),
            bodies=Bodies(settings.max_unsent_mb << 20, settings.write_s),
        )

    def _open_cards(self, engine: Engine, identity: IdentityServices) -> Cards:
        settings = self.settings
        openid = f"{settings.jwt_issuer.rstrip('/')}/.well-known/openid-configuration"
        terms = Terms(
            description=settings.security_description,
            openid_url=openid if settings.jwt_issuer and not settings.jwt_jwks else "",
            extensions=engine.extensions,
            push=settings.push,
            a2a_03=settings.serves_a2a_03,
            grpc=place_on_cards(settings, self.grpc),
        )
        return Cards(self.agents, identity.access, identity.keyring, version=VERSION, terms=terms, root=settings.root)

    def drain(self) -> None:
        """Begin no new work. Streams end, and clients can resume them later. Running tasks have `drain_s` left."""
        self.grace_until = time.monotonic() + self.settings.drain_s
        if self.engine is not None:
            self.engine.drain()
        if self.grpc is not None:
            self.grpc.drain(self.settings.drain_s)
        if self.app is not None:
            for door in self.app.doors:
                door.drain()

    async def close(self) -> None:
        if self.grpc is not None:
            await self.grpc.close()
            self.grpc = None
        if self.app is not None:
            for door in self.app.doors:
                await door.close()
        if self.checkpointer is not None:
            await self.checkpointer.close()
            self.checkpointer = None
        if self.identity is not None:
            await self.identity.close()
            self.identity = None
        if self.engine is not None:
            await self.engine.close(max(0.0, self.grace_until - time.monotonic()))
            self.engine = self.app = None
        await self.workers.close()
        if self.egress is not None:
            await self.egress.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if self.app is None:
            await self._started()
        assert self.app is not None
        await self.app(scope, receive, send)

    async def _started(self) -> None:
        if self.starting is None:
            self.starting = asyncio.get_running_loop().create_task(self.start())
        await asyncio.shield(self.starting)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._started()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


def asgi(*agents: Hostable, public_url: str = "", root: str | None = None, data: str | None = None) -> Host:
    """Make a host to mount in another ASGI app. It keeps its journal in `data`, or in memory."""
    only = agents[0].id if len(agents) == 1 else ""
    settings = Settings(
        public_url=public_url, root=only if root is None else root, memory=data is None, data=data or ""
    )
    return Host(agents, settings)
