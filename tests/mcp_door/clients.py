"""The official client of MCP, in the versions with sessions (`legacy`) and in the one without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as mcp
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.processes import Server, environment, roost_command
from tests.waiting import PATIENCE_S

AGENTS = Path(__file__).parent / "agents.py"
MODES = ["legacy", "2026-07-28"]
each_version = pytest.mark.parametrize("mode", MODES)

Question = Callable[[Any, mcp.ElicitRequestParams], Awaitable[mcp.ElicitResult]]


@asynccontextmanager
async def connected(url: str, mode: str = "legacy", token: str = "", **options: Any) -> AsyncIterator[Client]:
    """Connect over streamable HTTP."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE_S, **options) as client:
            yield client


@asynccontextmanager
async def on_stdio(url: str, mode: str = "legacy", token: str = "", **options: Any) -> AsyncIterator[Client]:
    """Connect through `roost mcp serve`."""
    command, *args = roost_command("mcp", "serve", "--url", url)
    env = environment({"ROOST_TOKEN": token} if token else {})
    server = StdioServerParameters(command=command, args=args, env=env)
    async with Client(server, mode=mode, read_timeout_seconds=PATIENCE_S, **options) as client:
        yield client


class Progress:
    """The notifications that a client gets while it waits."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.said = ""
        self.changed = asyncio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.numbers.append(progress)
        self.said += message or ""
        self.changed.set()

    async def wait_for(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.said:
                self.changed.clear()
                await self.changed.wait()


def says(*answers: str | None) -> Question:
    """Answers one after another; None declines."""
    left = list(answers)

    async def answer(context: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        said = left.pop(0)
        return mcp.ElicitResult(action="decline") if said is None else accepted(said)

    return answer


def never(asked: asyncio.Event) -> Question:
    """A user who is asked and does not answer."""

    async def answer(context: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    return answer


def accepted(text: str) -> mcp.ElicitResult:
    return mcp.ElicitResult(action="accept", content={"answer": text})


def text(result: mcp.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, mcp.TextContent))


def data(result: mcp.CallToolResult) -> dict[str, Any]:
    found: dict[str, Any] = result.structured_content
    return found


def task_of(result: mcp.CallToolResult) -> str:
    found: str = data(result)["taskId"]
    return found


async def open_gate(server: Server, gate: str) -> None:
    await asyncio.to_thread(server.send, "release", gate)
