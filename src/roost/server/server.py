"""uvicorn on all sockets of a host, with and without TLS."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from roost.doors.counters import LOOP_LAG
from roost.server.http import ConnectionLimits, ConnectionWatch, HTTPProtocol
from roost.server.sockets import BACKLOG, Listeners
from roost.server.tls import TLS, TLSServer
from roost.server.websocket import WebSocketProtocol

log = logging.getLogger("roost.server")

TICK_S = 0.1
"""The time from one tick of uvicorn to the next, in seconds."""
SWEEP_TICKS = 10
"""Ticks between two sweeps of the connections."""
OWN_FILES = 200
"""File descriptors kept for the journal, the log, webhooks and agents."""


class Server(uvicorn.Server):
    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        listeners: Listeners,
        limits: ConnectionLimits,
        tls: TLS | None = None,
        drain_s: float = 1.0,
        max_message: int = 8 * 1024 * 1024,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=HTTPProtocol,
                ws=WebSocketProtocol,
                ws_max_size=max_message,
                ws_per_message_deflate=False,
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=max(1, round(drain_s)),
            )
        )
        self.listeners = listeners
        self.tls = tls
        self.watch = ConnectionWatch(limits, self.server_state)
        self.ticked: float | None = None
        """The monotonic time of the last tick."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on every socket. uvicorn's own method knows only one kind of socket."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.servers = [await self._serve_on(listener) for listener in self.listeners.sockets]
        self.started = True

    async def _serve_on(self, listener: socket.socket) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if listener.family == socket.AF_UNIX:
            # Python 3.13 would remove the file when a server closes; only the process that made it may
            options: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
            return await loop.create_unix_server(self._protocol, sock=listener, backlog=BACKLOG, **options)
        if self.tls is not None:
            return cast(asyncio.Server, TLSServer(listener, self.tls, self.watch, self._protocol))
        return await loop.create_server(self._protocol, sock=listener, backlog=BACKLOG)

    def _protocol(self) -> HTTPProtocol:
        return HTTPProtocol(self.config, self.server_state, self.lifespan.state, self.watch)

    async def on_tick(self, counter: int) -> bool:
        now = time.monotonic()
        if self.ticked is not None:
            LOOP_LAG.late(now, now - self.ticked - TICK_S)
        if counter % SWEEP_TICKS == 0:
            self.watch.sweep(now)
            if self.tls is not None and self.tls.look(now):
                self.watch.end_certified()
        self.ticked = time.monotonic()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.listeners.remove_files()
        self.watch.close()
        await super().shutdown(self.listeners.sockets)


def room_for(connections: int) -> int:
    """Raise the limit of open files as far as allowed, and return how many of the connections this process can have."""
    allowed, most = (
        sys.maxsize if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    wanted = connections + OWN_FILES
    if allowed < wanted and allowed < most:
        allowed = min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return max(1, min(connections, allowed - OWN_FILES))
