"""The routes of a host, read from its doors."""

from __future__ import annotations

import asyncio
from functools import cache

from roost import Agent
from roost.doors.door import Door, Route
from roost.host import Host
from roost.settings import Settings


@cache
def doors_of(settings: Settings = Settings(memory=True)) -> list[Door]:  # noqa: B008
    """The doors of a host with one agent and these settings."""
    agent = Agent("desk")

    @agent.on_message
    async def answer(task: object) -> str:
        return "ok"

    async def opened() -> list[Door]:
        host = Host([agent], settings)
        await host.start()
        assert host.app is not None
        doors = list(host.app.doors)
        await host.close()
        return doors

    return asyncio.run(opened())


def routes_of(door: str, settings: Settings = Settings(memory=True)) -> list[Route]:  # noqa: B008
    """The routes of the door with this class name; none if the host has no such door."""
    return [route for found in doors_of(settings) if type(found).__name__ == door for route in found.routes()]


def all_routes(settings: Settings = Settings(memory=True)) -> list[Route]:  # noqa: B008
    return [route for door in doors_of(settings) for route in door.routes()]
