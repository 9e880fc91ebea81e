"""The first token closes a host that was open, and with it the streams that were opened without a credential."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import httpx
import pytest

from tests.a2a_03 import wire as old
from tests.access.people import AGENTS, OPERATOR, People, bearer
from tests.doors.wire import VERSION, sending
from tests.grpc.wire import GRPC, calling, place_of
from tests.grpc.wire import refusal as grpc_refusal
from tests.mcp_door.clients import Progress, connected, text
from tests.processes import Server, running
from tests.waiting import PATIENCE_S

RPC = {"jsonrpc": "2.0", "id": 1}
OPENAI = {"model": "turns", "input": "never", "stream": True}


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {**RPC, "method": method, "params": params}


HTTP: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "REST": ("/agents/turns/message:stream", sending("never"), VERSION),
    "JSON-RPC": ("/agents/turns", rpc("SendStreamingMessage", sending("never")), VERSION),
    "0.3": ("/agents/turns", rpc("message/stream", old.sending("never")), {}),
    "OpenAI": ("/openai/v1/responses", OPENAI, {}),
}
"""Requests that open a stream of a task that does not end: the path, the body, and the headers."""


@pytest.fixture
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {**OPERATOR, "AGENT_GATES": str(tmp_path_factory.mktemp("gates"))}
    with running(AGENTS, args=("--drain-s", "0", *GRPC), env=env) as server:
        yield server
        server.stop()
    assert "Traceback" not in server.stderr


async def over_http(host: Server, name: str, begun: asyncio.Event) -> str:
    """Return what a stream said until its end."""
    path, body, headers = HTTP[name]
    said = ""
    async with (
        httpx.AsyncClient(timeout=PATIENCE_S) as http,
        http.stream("POST", host.url + path, json=body, headers=headers) as answer,
    ):
        async for piece in answer.aiter_text():
            said += piece
            if "begun" in said:
                begun.set()
    return said


async def over_grpc(host: Server, begun: asyncio.Event) -> str:
    async with calling(place_of(host)) as caller:
        try:
            async for event in caller.stream("turns", "never"):
                if "begun" in str(event):
                    begun.set()
        except grpc.aio.AioRpcError as error:
            return grpc_refusal(error).reason
    return "no error"


async def over_mcp(host: Server, begun: asyncio.Event) -> str:
    progress = Progress()
    async with connected(host.url) as client:
        await client.list_tools()
        call = asyncio.ensure_future(client.call_tool("turns", {"text": "never"}, progress_callback=progress))
        await progress.wait_for("begun")
        begun.set()
        return text(await call)


async def test_streams_without_a_credential_end_with_the_first_token_and_tasks_go_on(host: Server) -> None:
    ways: dict[str, Callable[[asyncio.Event], Awaitable[str]]] = {
        **{name: lambda begun, name=name: over_http(host, name, begun) for name in HTTP},  # type: ignore[misc]
        "gRPC": lambda begun: over_grpc(host, begun),
        "MCP": lambda begun: over_mcp(host, begun),
    }
    events = {name: asyncio.Event() for name in ways}
    reading = {name: asyncio.ensure_future(way(events[name])) for name, way in ways.items()}
    with People(host) as people:
        async with asyncio.timeout(PATIENCE_S):
            for name, event in events.items():
                await event.wait()
                assert not reading[name].done()
            await asyncio.to_thread(people.operator.make, "metrics")
            assert not any(one.done() for one in reading.values()), "it opens no agent, so the host stays open"
            made = await asyncio.to_thread(people.operator.make, "agent:*", subject="local")
            said = {name: await one for name, one in reading.items()}
        assert not any("and ended" in words for words in said.values())
        assert said["gRPC"] == "UNAUTHENTICATED"
        assert "UNAUTHENTICATED" in said["MCP"]
        mine = people.with_headers(bearer(made["token"])).ask("GET", "/agents/turns/tasks").json()["tasks"]
        assert {task["status"]["state"] for task in mine} == {"TASK_STATE_WORKING"}
        assert len(mine) == len(ways)
