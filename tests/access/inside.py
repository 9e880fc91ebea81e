"""A host in this process, for what cannot be done to one in another: a store that fails, a clock, a restart in no time.

async with inside(Settings(memory=True, token=SECRET)) as http:
    await http.get("/agents/teller/tasks", headers=bearer(SECRET))
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from roost import Agent
from roost.engine.ports import Store
from roost.host import Host
from roost.settings import Settings
from tests.access.people import ADMIN_SECRET, bearer
from tests.doors.wire import VERSION
from tests.waiting import PATIENCE_S

BASE = "http://127.0.0.1"


def teller(**options: Any) -> Agent:
    agent = Agent("teller", **options)

    @agent.on_message
    async def tell(task):  # type: ignore[no-untyped-def]
        """Says who asked, and for whom."""
        return f"{task.caller} {task.tenant}"

    return agent


def desk() -> Agent:
    agent = Agent("desk")

    @agent.on_message
    async def ask(task):  # type: ignore[no-untyped-def]
        """Asks."""
        await task.ask("Your name?")

    return agent


@asynccontextmanager
async def inside(settings: Settings, *agents: Agent, store: Store | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a host that serves these agents, or the teller."""
    host = Host(agents or [teller()], settings, store=store)
    await host.start()
    transport = httpx.ASGITransport(host)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=VERSION, timeout=PATIENCE_S) as http:
            yield http
    finally:
        await host.close()


async def new_token(http: httpx.AsyncClient, *scopes: str, **wish: object) -> dict[str, Any]:
    """Make a token through the admin routes, with ADMIN_SECRET."""
    body = {"name": "someone", "scopes": scopes or ["agent:*"], **wish}
    made = await http.post("/api/v2/admin/tokens", json=body, headers=bearer(ADMIN_SECRET))
    found: dict[str, Any] = made.raise_for_status().json()
    return found
