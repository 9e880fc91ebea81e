"""Wires everything together: agents, store, engine and doors become one host."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from roost._version import VERSION
from roost.agents.agent import Hostable
from roost.doors.app import App
from roost.doors.guard import Guard
from roost.doors.http import Receive, Scope, Send
from roost.engine.engine import Engine
from roost.engine.ids import new_id
from roost.engine.ports import Store
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_process import ProcessCarrier


class HostError(Exception):
    """The host cannot start; the message says what to change."""


class Host:
    """A fleet of agents, as an ASGI application. Starts with the lifespan, or with its first request."""

    def __init__(self, agents: Sequence[Hostable], settings: Settings, store: Store | None = None) -> None:
        self.settings = settings
        self.agents = [agent.hosted() for agent in agents]
        ids = [hosted.profile.id for hosted in self.agents]
        if not ids:
            raise HostError("there is no agent to host")
        if settings.root and settings.root not in ids:
            raise HostError(f"root is {settings.root!r}, and there is no such agent; there are {', '.join(ids)}")
        self.given_store = store
        self.engine: Engine | None = None
        self.app: App | None = None
        self.starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self.app is not None:
            return
        settings = self.settings
        store = self.given_store or open_store(settings)
        worker = f"{socket.gethostname()}:{os.getpid()}:{new_id()[-12:]}"
        engine = Engine(store, worker)
        for hosted in self.agents:
            engine.add(hosted)
        await engine.start()
        self.engine = engine
        self.app = App(
            engine,
            Guard(settings.public_url, settings.networks()),
            base=settings.public_url.rstrip("/"),
            root=settings.root or None,
            max_body=settings.max_body,
            version=VERSION,
        )

    def drain(self) -> None:
        """No new work; streams end, and their clients can resume them later."""
        if self.engine is not None:
            self.engine.drain()

    async def close(self) -> None:
        if self.engine is not None:
            await self.engine.close()
            self.engine = self.app = None

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
    return MemoryStore() if settings.memory else SQLiteStore(Path(settings.data), ProcessCarrier)


def check_bind(host: str) -> None:
    """Without credentials the host binds loopback only."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise HostError(
            f"this host has no credentials, so anyone who reaches {host} could use its agents."
            " It listens on loopback only: use --host 127.0.0.1, and a tunnel or an authenticating proxy"
            " on this machine for others"
        )


def asgi(*agents: Hostable, public_url: str = "", root: str | None = None, data: str | None = None) -> Host:
    """A host to mount in another ASGI app. Keeps its journal in `data`, or in memory."""
    only = agents[0].id if len(agents) == 1 else ""
    settings = Settings(
        public_url=public_url, root=only if root is None else root, memory=data is None, data=data or ""
    )
    return Host(agents, settings)
