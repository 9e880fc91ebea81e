"""Wires everything together: agents, store, engine and doors become one host."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roost._version import VERSION
from roost.agents.agent import Hostable
from roost.doors.app import App
from roost.doors.context import Context
from roost.doors.evidence import Exports
from roost.doors.guard import Guard
from roost.doors.http import Receive, Scope, Send
from roost.doors.mcp import MCPDoor
from roost.doors.openai.door import OpenAIDoor
from roost.egress import Egress
from roost.engine.engine import Engine
from roost.engine.idempotency import IdempotencyRules
from roost.engine.ids import new_id
from roost.engine.ports import Store, Wakes
from roost.engine.retention import RetentionPolicy
from roost.evidence.checkpoint import Checkpointer
from roost.identity.seal import KeyFileError, Seal, load_key, new_key
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_process import WriterProcess
from roost.wiring.egress import open_egress, open_pusher
from roost.wiring.grpc import GrpcSetupError, open_grpc, start_grpc
from roost.wiring.identity import IdentityError, IdentityServices, open_meter, security_headers

if TYPE_CHECKING:
    from roost.doors.grpc_server import GrpcServer


class HostError(Exception):
    """The host cannot start; the message says what to change."""


class Host:
    """A fleet of agents, as an ASGI application. Starts with the lifespan, or with its first request."""

    def __init__(
        self,
        agents: Sequence[Hostable],
        settings: Settings,
        store: Store | None = None,
        wakes: Wakes | None = None,
        hosts: Sequence[str] = (),
        place: str = "",
    ) -> None:
        """`hosts` are the addresses that are listened on, where the caller knows, and `place` is the first's URL."""
        self.settings = settings
        self.hosts = [*hosts, *([settings.grpc_address()[0]] if settings.grpc else [])]
        self.place = place
        self.agents = [agent.hosted() for agent in agents]
        ids = [hosted.profile.id for hosted in self.agents]
        if not ids:
            raise HostError("there is no agent to host")
        if settings.root and settings.root not in ids:
            raise HostError(f"root is {settings.root!r}, and there is no such agent; there are {', '.join(ids)}")
        self.given_store = store
        self.given_wakes = wakes
        self.engine: Engine | None = None
        self.gate: IdentityServices | None = None
        self.checkpointer: Checkpointer | None = None
        self.egress: Egress | None = None
        self.app: App | None = None
        self.grpc: GrpcServer | None = None
        self.starting: asyncio.Task[None] | None = None
        self.grace_until = 0.0

    async def start(self) -> None:
        if self.app is not None:
            return
        store = self.given_store or open_store(self.settings)
        try:
            await self._start(store)
        except BaseException:
            if self.grpc is not None:
                await self.grpc.close()
                self.grpc = None
            await store.close()
            raise

    async def _start(self, store: Store) -> None:
        settings = self.settings
        await store.open()
        worker = f"{socket.gethostname()}:{os.getpid()}:{new_id()[-12:]}"
        engine = Engine(
            store,
            worker,
            self.given_wakes or open_wakes(settings, store),
            IdempotencyRules(settings.idempotency, settings.idempotency_ttl_s, settings.idempotency_max),
            RetentionPolicy(settings.retention_days, settings.retention_tasks, settings.min_free_mb << 20),
            open_meter(settings),
        )
        engine.tenancy = settings.multi_tenant
        engine.max_parts, engine.max_metadata = settings.max_parts, settings.max_metadata
        for hosted in self.agents:
            engine.add(hosted)
        try:
            self.egress = open_egress(settings)
        except ValueError as error:
            raise HostError(f"push_allow_hosts or push_allow_cidrs: {error}") from error
        seal = open_seal(settings, store)
        engine.pusher = open_pusher(settings, engine, self.egress, seal) if settings.push else None
        gate = IdentityServices(settings, engine, seal, self.hosts)
        try:
            await gate.start()
            gate.check_bind()
            self.grpc = open_grpc(settings, gate)
        except (IdentityError, GrpcSetupError) as error:
            await gate.close()
            raise HostError(str(error)) from None
        except BaseException:
            await gate.close()
            raise
        await engine.start()
        self.engine, self.gate = engine, gate
        context = Context(
            engine,
            gate.access,
            gate.cards,
            max_body=settings.max_body,
            public_url=settings.public_url.rstrip("/"),
            place=self.place,
        )
        self.app = App(
            engine,
            Guard(settings.public_url, settings.networks(), settings.origins()),
            context,
            gate.admin,
            root=settings.root or None,
            version=VERSION,
            headers=security_headers(settings),
            a2a_03=settings.a2a_03,
            openai=self._open_openai(context),
            mcp=self._open_mcp(context),
        )
        gate.admin.exports = Exports(context)
        self.checkpointer = Checkpointer(store, gate.keyring, settings.checkpoint_s)
        self.checkpointer.start()
        if self.grpc is not None:
            await start_grpc(self.grpc, self.app)

    def _open_openai(self, context: Context) -> OpenAIDoor | None:
        profiles = [hosted.profile for hosted in self.agents]
        return OpenAIDoor(context, profiles, cancels=self.settings.openai_cancel) if self.settings.openai else None

    def _open_mcp(self, context: Context) -> MCPDoor | None:
        if not self.settings.mcp:
            return None
        profiles = [hosted.profile for hosted in self.agents]
        return MCPDoor(context, profiles, VERSION, sessions_here=self.settings.workers == 1)

    def drain(self) -> None:
        """No new work; streams end, and their clients can resume them later. Running tasks have `drain_s` left."""
        self.grace_until = time.monotonic() + self.settings.drain_s
        if self.engine is not None:
            self.engine.drain()
        if self.grpc is not None:
            self.grpc.drain(self.settings.drain_s)
        if self.app is not None and self.app.mcp is not None:
            self.app.mcp.drain()

    async def close(self) -> None:
        if self.grpc is not None:
            await self.grpc.close()
            self.grpc = None
        if self.app is not None and self.app.mcp is not None:
            await self.app.mcp.close()
        if self.checkpointer is not None:
            await self.checkpointer.close()
            self.checkpointer = None
        if self.gate is not None:
            await self.gate.close()
            self.gate = None
        if self.engine is not None:
            await self.engine.close(max(0.0, self.grace_until - time.monotonic()))
            self.engine = self.app = None
        if self.egress is not None:
            await self.egress.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if self.app is None:
                await self._started()
            assert self.app is not None
            await self.app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

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


def open_store(settings: Settings) -> Store:
    if settings.store:
        from roost.stores.postgres import PostgresStore  # an extra

        return PostgresStore(settings.store)
    return MemoryStore() if settings.memory else SQLiteStore(Path(settings.data), WriterProcess)


def open_wakes(settings: Settings, store: Store) -> Wakes | None:
    """How several hosts on one store hear of each other; one alone needs nothing."""
    if not store.shared:
        return None
    from roost.stores.wakes import NatsWakes, PostgresWakes

    return NatsWakes(settings.wake, settings.store) if settings.wake else PostgresWakes(settings.store)


def open_seal(settings: Settings, store: Store) -> Seal:
    """With the key that secrets in the store are sealed with; what is not kept needs none that is."""
    if not settings.secret_file and (isinstance(store, MemoryStore) or not settings.data):
        return Seal(new_key())
    try:
        if settings.secret_file:
            return Seal(load_key(Path(settings.secret_file), create=False))
        return Seal(load_key(Path(settings.data) / "secret.key", create=True))
    except KeyFileError as error:
        raise HostError(str(error)) from error


def asgi(*agents: Hostable, public_url: str = "", root: str | None = None, data: str | None = None) -> Host:
    """A host to mount in another ASGI app. Keeps its journal in `data`, or in memory."""
    only = agents[0].id if len(agents) == 1 else ""
    settings = Settings(
        public_url=public_url, root=only if root is None else root, memory=data is None, data=data or ""
    )
    return Host(agents, settings)
