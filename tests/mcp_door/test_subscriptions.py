"""subscriptions/listen: clients of 2026-07-28 are told of changes of the tools; the streams have the usual limits."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.subscriptions import ListenNotSupportedError, Subscription
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged

from roost.doors import mcp_sessions
from tests.access.people import AGENTS as PEOPLE_AGENTS
from tests.access.people import OPERATOR, People, refusal
from tests.mcp_door.clients import connected, on_stdio
from tests.mcp_door.here import Here, served_here, speaker
from tests.mcp_door.raw import MODERN, Session, asking, modern
from tests.processes import running
from tests.waiting import PATIENCE_S, until

LISTEN = "subscriptions/listen"
CHANGED = ToolsListChanged()
Connect = Callable[..., Any]


async def described(client: Client) -> dict[str, str | None]:
    return {tool.name: tool.description for tool in (await client.list_tools()).tools}


async def told(subscription: Subscription) -> object:
    """The next event; None if the host has ended the stream."""
    async with asyncio.timeout(PATIENCE_S):
        return await anext(subscription, None)


@asynccontextmanager
async def listening(url: str, **headers: str) -> AsyncIterator[httpx.Response]:
    """A raw request for all kinds of notifications. Its response has begun."""
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a:b"]}
    body, own = modern(LISTEN, {"notifications": wanted})
    async with (
        httpx.AsyncClient(timeout=PATIENCE_S) as http,
        http.stream("POST", f"{url}/mcp", json=body, headers={**own, **headers}) as response,
    ):
        yield response


async def messages(response: httpx.Response) -> list[dict[str, Any]]:
    """All messages of a stream, once it has ended."""
    return [json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: ")]


@pytest.mark.parametrize("connect", [connected, on_stdio])
async def test_a_client_is_told_of_agents_that_come_change_and_go(connect: Connect) -> None:
    async with served_here() as here, connect(here.url, MODERN) as client:
        assert "coming" not in await described(client)
        async with client.listen(tools_list_changed=True) as subscription:
            here.agents.add(speaker("coming", "one").hosted())
            assert await told(subscription) == CHANGED
            assert (await described(client))["coming"] == "says one"
            here.agents.replace(speaker("coming", "two").hosted())
            assert await told(subscription) == CHANGED
            assert (await described(client))["coming"] == "says two"
            here.agents.remove("coming")
            assert await told(subscription) == CHANGED
            assert "coming" not in await described(client)


async def test_the_host_declares_to_new_clients_that_the_list_changes() -> None:
    async with served_here() as here, connected(here.url, "auto") as client:
        assert client.session.protocol_version == MODERN
        assert client.server_capabilities.model_dump(exclude_none=True) == {"tools": {"list_changed": True}}


@pytest.mark.parametrize("workers", [1, 2], ids=["a session", "no session"])
async def test_old_clients_are_promised_nothing_and_cannot_listen(workers: int) -> None:
    quotas = "principal.streams=9"
    async with served_here(workers=workers, quotas=quotas) as here, connected(here.url, "legacy") as client:
        assert client.server_capabilities.tools is not None
        assert not client.server_capabilities.tools.list_changed
        with pytest.raises(ListenNotSupportedError):
            async with client.listen(tools_list_changed=True):
                pass
        if workers == 1:
            refused = await asyncio.to_thread(_listen_in_a_session, here.url)
            assert refused["error"]["code"] == -32601
        assert not here.host.engine.meter.held


def _listen_in_a_session(url: str) -> dict[str, Any]:
    with Session(url) as session, session.sent(LISTEN, {"notifications": {"toolsListChanged": True}}, 5) as answer:
        return session.answer(answer, 5)


async def test_what_is_acknowledged_is_what_the_host_has_and_changes_that_come_together_are_one() -> None:
    async with served_here() as here, listening(here.url) as response:
        assert response.headers["content-type"] == "text/event-stream"
        here.agents.add(speaker("one", "one").hosted())
        here.agents.add(speaker("two", "two").hosted())
        here.agents.remove("one")
        async with connected(here.url, MODERN) as client:  # what it gets comes after the event
            assert "two" in await described(client)
        here.stop()
        acknowledged, changed, result = await messages(response)
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
    assert changed["method"] == "notifications/tools/list_changed"
    assert result["id"] == 1
    assert "result" in result


async def test_a_stream_ends_with_its_credential() -> None:
    args = ("--drain-s", "0", "--auth-failures", "100000")
    with running(PEOPLE_AGENTS, args=args, env=OPERATOR) as server, People(server) as people:
        made, other = people.operator.make(), people.operator.make()
        async with (
            connected(server.url, MODERN, made["token"]) as client,
            connected(server.url, MODERN, other["token"]) as another,
            client.listen(tools_list_changed=True) as subscription,
            another.listen(tools_list_changed=True) as remaining,
        ):
            await asyncio.to_thread(people.operator.admin, "DELETE", f"tokens/{made['id']}")
            assert await told(subscription) is None
            with pytest.raises(MCPError, match="revoked"):
                async with client.listen(tools_list_changed=True):
                    pass
            still = asyncio.ensure_future(told(remaining))
            assert "desk" in await described(another)
            assert not still.done()
            await asyncio.to_thread(people.operator.admin, "DELETE", f"tokens/{other['id']}")
            assert await still is None
    assert "Traceback" not in server.stderr


async def test_a_stream_ends_when_the_host_stops_and_does_not_hold_it_up() -> None:
    with running(PEOPLE_AGENTS, args=("--drain-s", "3600")) as server:
        async with connected(server.url, MODERN) as client, client.listen(tools_list_changed=True) as subscription:
            stopping = asyncio.ensure_future(asyncio.to_thread(server.stop))
            assert await told(subscription) is None
            assert await stopping == -signal.SIGTERM, "it was not killed"
    assert "Traceback" not in server.stderr


async def test_nobody_listens_to_a_host_that_began_to_stop_while_it_loaded_the_sdk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loading, gate = asyncio.Event(), asyncio.Event()
    load = mcp_sessions.Sessions.open

    async def slow(self: mcp_sessions.Sessions) -> None:
        loading.set()
        await gate.wait()
        await load(self)

    monkeypatch.setattr(mcp_sessions.Sessions, "open", slow)
    async with served_here() as here:
        request = asyncio.ensure_future(answer_to(here))
        await asyncio.wait_for(loading.wait(), PATIENCE_S)
        here.stop()
        gate.set()
        refused = await request
    assert (refused.status_code, refusal(refused).reason) == (503, "UNAVAILABLE")


async def answer_to(here: Here, **headers: str) -> httpx.Response:
    """The answer to a request to listen that is refused."""
    async with listening(here.url, **headers) as response:
        assert response.status_code != 200
        await response.aread()
        return response


async def test_a_stream_counts_in_the_quota_of_streams_until_its_client_leaves() -> None:
    async with served_here(quotas="principal.streams=1") as here:
        async with connected(here.url, MODERN) as client, client.listen(tools_list_changed=True):
            refused = await answer_to(here)
            assert (refused.status_code, refusal(refused).metadata["quota"]) == (429, "streams")
            with pytest.raises(MCPError, match="quota of streams"):
                async with client.listen(tools_list_changed=True):
                    pass
        await until(lambda: not here.host.engine.meter.held)
        async with connected(here.url, MODERN) as client, client.listen(tools_list_changed=True):
            assert here.host.engine.meter.held


@pytest.mark.parametrize("whose", ["principal", "surface:a2a"])
async def test_a_request_to_listen_counts_in_the_rates(whose: str) -> None:
    async with served_here(quotas=f"{whose}.rate=2") as here, AsyncExitStack() as streams:
        for _ in range(8):  # the window slides: where a minute ends, one more may go through
            response = await streams.enter_async_context(listening(here.url))
            if response.status_code != 200:
                break
        await response.aread()
        assert (response.status_code, refusal(response).metadata["quota"]) == (429, "rate")
        here.stop()


LIMITS: list[tuple[str, int, str]] = [("OWN_SESSIONS", 429, "TOO_MANY_REQUESTS"), ("MAX_SESSIONS", 503, "UNAVAILABLE")]


@pytest.mark.parametrize(("limit", "status", "reason"), LIMITS)
async def test_there_are_only_so_many_streams(
    monkeypatch: pytest.MonkeyPatch, limit: str, status: int, reason: str
) -> None:
    monkeypatch.setattr(mcp_sessions, limit, 2)
    async with served_here() as here, connected(here.url, MODERN) as client:
        async with client.listen(tools_list_changed=True), client.listen(tools_list_changed=True):
            refused = await answer_to(here)
            assert (refused.status_code, refusal(refused).reason) == (status, reason)
            assert "resident" in await described(client), "other requests are served"

        async def admitted() -> bool:
            async with listening(here.url) as response:
                return response.status_code == 200

        await until(admitted)


async def test_a_stream_is_one_of_the_tenant_that_the_request_chooses() -> None:
    async with served_here(quotas="tenant:acme.streams=1") as here, listening(here.url, **{"X-Tenant-Id": "acme"}):
        refused = await answer_to(here, **{"X-Tenant-Id": "acme"})
        assert refusal(refused).metadata["tenant_id"] == "acme"
        async with listening(here.url) as other:
            assert other.status_code == 200
        here.stop()


@pytest.mark.parametrize("params", [{}, {"notifications": None}, {"notifications": []}, {"notifications": "all"}])
async def test_requests_to_listen_that_are_wrong_leave_nothing_behind(params: dict[str, Any]) -> None:
    body, headers = modern(LISTEN, params)
    async with served_here(quotas="principal.streams=1") as here, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        for _ in range(2):
            answer = await http.post(f"{here.url}/mcp", json=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)
        bare = await http.post(f"{here.url}/mcp", json=asking(LISTEN, {}), headers=headers)
        assert bare.status_code == 400
        assert not here.host.engine.meter.held
