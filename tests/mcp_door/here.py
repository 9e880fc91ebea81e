"""A host in the process of the test, on a real socket: the test changes its registry while official clients listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from roost import Agent
from roost.host import Host
from roost.server.http import ConnectionLimits
from roost.server.server import Server
from roost.server.sockets import open_listeners, places
from roost.settings import Settings
from tests.waiting import PATIENCE_S, until


class Here:
    def __init__(self, host: Host, server: Server, url: str) -> None:
        self.host = host
        self.agents = host.agents
        self.server = server
        self.url = url

    def stop(self) -> None:
        """Do what the command does on SIGTERM."""
        self.server.should_exit = True
        self.host.drain()


@asynccontextmanager
async def served_here(**more: Any) -> AsyncIterator[Here]:
    settings = Settings(memory=True, port=0, drain_s=10 * PATIENCE_S, **more)
    host = Host([speaker("resident", "here")], settings)
    listeners = open_listeners(settings)
    limits = ConnectionLimits(
        settings.head_s, settings.max_headers, settings.max_head_bytes, settings.max_connections, settings.write_s
    )
    server = Server(host, listeners, limits, drain_s=settings.drain_s)
    serving = asyncio.ensure_future(server._serve())  # `serve` would take the signals of the test
    try:
        await until(lambda: server.started)
        here = Here(host, server, places(settings, listeners.sockets)[0])
        yield here
        here.stop()
        async with asyncio.timeout(PATIENCE_S):
            await serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        listeners.close()


def speaker(name: str, word: str) -> Agent:
    agent = Agent(name, description=f"says {word}")
    agent.on_message(lambda task: word)
    return agent
