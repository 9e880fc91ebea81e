"""The process that `roost serve` is: a host and its server, or a parent of workers that are."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Sequence
from types import FrameType

import msgspec

from roost.agents.modules import LoadError
from roost.cli import logs
from roost.cli.banner import banner
from roost.cli.errors import CommandFailed
from roost.engine.store_types import StoreUnavailable
from roost.fleet.loader import is_single_file, load
from roost.host import Host, HostError
from roost.server import workers
from roost.server.allocator import return_large_blocks
from roost.server.http import ConnectionLimits
from roost.server.server import Server, room_for
from roost.server.sockets import BACKLOG, TCP, CannotServe, Listeners, addresses, open_listeners, places
from roost.server.tls import TLS, open_tls
from roost.settings import Settings
from roost.stores.postgres_pool import DriverMissing
from roost.stores.sqlite import StoreBroken
from roost.stores.sqlite_files import StoreInUse
from roost.stores.sqlite_schema import NewerSchema

log = logging.getLogger("roost.cli")

OPEN_S, OPEN_RETRY_S = 10.0, 0.5
"""Seconds for which a database that cannot be reached is tried again at the start, and between two tries."""


def run(sources: Sequence[str], settings: Settings, *, watched: bool = False) -> None:
    """Serve the agents of the sources until stopped."""
    logs.configure(settings.log_level, settings.log_format)
    return_large_blocks()
    try:
        tls = open_tls(settings)
        agents = load(sources)
        if not settings.root and is_single_file(sources) and len(agents) == 1:
            settings = msgspec.structs.replace(settings, root=agents[0].id)
        listeners = workers.inherited() or open_listeners(settings)
        try:
            if settings.workers > 1 and workers.number() is None:
                for listener in listeners.sockets:
                    listener.listen(BACKLOG)
                workers.Workers(sources, settings, listeners.sockets).run()
            else:
                hosts = [address.host for address in addresses(settings) if isinstance(address, TCP)]
                found = [place for place in places(settings, listeners.sockets) if place.startswith("http")]
                host = Host(agents, settings, hosts=hosts, place=next(iter(found), ""))
                HostServer(host, settings, listeners, tls, watched).run()
        finally:
            listeners.close()
    except (CannotServe, HostError, LoadError, StoreBroken, StoreInUse, NewerSchema, DriverMissing) as error:
        raise CommandFailed(str(error)) from error


class HostServer(Server):
    """Starts the host before it accepts connections, and lets the host drain when it has to stop."""

    def __init__(self, host: Host, settings: Settings, listeners: Listeners, tls: TLS | None, watched: bool) -> None:
        room = room_for(settings.max_connections)
        limits = ConnectionLimits(
            settings.head_s, settings.max_headers, settings.max_head_bytes, room, settings.write_s
        )
        super().__init__(host, listeners, limits, tls, settings.drain_s, settings.max_body)
        self.roost = host
        self.settings = settings
        self.watched = watched

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._open()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        await super().serve(sockets)

    async def _open(self) -> None:
        """Start the host, and give a database that is only starting itself a moment."""
        deadline = time.monotonic() + OPEN_S
        reported = ""
        while True:
            try:
                await self.roost.start()
                return
            except StoreUnavailable as error:
                if time.monotonic() >= deadline or not self.settings.store or self.should_exit:
                    raise CommandFailed(f"cannot open the store: {error}") from error
                if str(error) != reported:
                    reported = str(error)
                    log.warning("cannot open the store yet, retrying for %g s: %s", OPEN_S, error)
                await asyncio.sleep(OPEN_RETRY_S)
            except (OSError, sqlite3.Error) as error:
                if self.settings.store:
                    raise CommandFailed(f"cannot open the store: {error or type(error).__name__}") from error
                data = self.settings.data
                raise CommandFailed(
                    f"cannot keep the journal in {data}: {error}. Choose another folder with --data"
                ) from error

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        workers.ready()
        workers.when_parent_ends(lambda: self.handle_exit(signal.SIGTERM, None))
        if self.watch.limits.max_connections < self.settings.max_connections:
            log.warning(
                "the system allows this process %d connections, fewer than max_connections: see `ulimit -n`",
                self.watch.limits.max_connections,
            )
        if workers.number() in (None, 1):
            found = places(self.settings, self.listeners.sockets)
            print(banner(self.roost, self.settings, found), file=sys.stderr, flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.watched and self.should_exit:
            return  # Ctrl-C arrives twice, from the terminal and from the watcher; only two by the user mean haste
        super().handle_exit(sig, frame)
        self.roost.drain()
