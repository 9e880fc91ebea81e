"""Writes the tables of docs/routes.md from the routes of the doors: `python -m tools.routes`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from roost import Agent
from roost.doors.door import Route
from roost.host import Host
from roost.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "routes.md"
TABLE = re.compile(r"(<!-- routes: ([\w ]+) -->\n)(?:\|.*\n)*")


def read_routes() -> dict[str, list[Route]]:
    """The routes of each door, by the name of its class."""
    agent = Agent("any")
    agent.on_message(lambda task: None)

    async def read() -> dict[str, list[Route]]:
        host = Host([agent], Settings(memory=True))
        await host.start()
        assert host.app is not None
        found = {type(door).__name__: list(door.routes()) for door in host.app.doors}
        await host.close()
        return found

    return asyncio.run(read())


def written(page: str, routes: dict[str, list[Route]]) -> str:
    """The page with its tables made anew."""

    def table(found: re.Match[str]) -> str:
        rows = [
            f"| {route.method} | `{route.path}` | {route.access} | {route.summary} |"
            for door in found[2].split()
            for route in routes[door]
        ]
        return found[1] + "\n".join(["| method | path | access | |", "|---|---|---|---|", *rows]) + "\n"

    return TABLE.sub(table, page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), read_routes()))
