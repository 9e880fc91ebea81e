"""`roost.asgi`: a host inside another ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import roost
from roost.fleet.cards import ReservedExtra
from roost.host import Host, HostError
from roost.stores.sqlite_files import StoreInUse

BASE = "http://127.0.0.1:9000"


def echoing(id: str = "echo") -> roost.Agent:
    agent = roost.Agent(id)

    @agent.on_message
    async def echo(task):
        """Says it again."""
        yield f"{task.text} "
        yield (await task.ask("Once more?")).text if task.text == "ask" else "again"

    return agent


@asynccontextmanager
async def mounted(host: Host, prefix: str = "/fleet") -> AsyncIterator[httpx.AsyncClient]:
    """A client of a Starlette application that has the host below a prefix."""

    async def own(request):
        return PlainTextResponse("the application's own")

    @asynccontextmanager
    async def lifespan(app):
        yield
        await host.close()

    app = Starlette(routes=[Route("/own", own), Mount(prefix, host)], lifespan=lifespan)
    headers = {"A2A-Version": "1.0"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE, headers=headers, timeout=30) as http,
    ):
        yield http


def body(text: str, task: str = "") -> dict:
    return {"message": {"messageId": f"m {text}", "role": "ROLE_USER", "parts": [{"text": text}], "taskId": task}}


async def test_the_urls_of_the_cards_have_the_prefix_and_lead_to_the_agent():
    async with mounted(roost.asgi(echoing())) as http:
        card = (await http.get("/fleet/agents/echo/.well-known/agent-card.json")).json()
        urls = {interface["protocolBinding"]: interface["url"] for interface in card["supportedInterfaces"]}
        assert set(urls.values()) == {f"{BASE}/fleet/agents/echo"}
        response = await http.post(f"{urls['HTTP+JSON']}/message:send", json=body("hello"))
        assert response.json()["task"]["artifacts"][0]["parts"] == [{"text": "hello "}, {"text": "again"}]
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body("hello")}
        response = await http.post(urls["JSONRPC"], json=call)
        assert response.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        directory = (await http.get("/fleet/agents/")).json()
        assert directory["agents"][0]["card"] == f"{BASE}/fleet/agents/echo/.well-known/agent-card.json"


async def test_the_application_keeps_its_own_paths():
    async with mounted(roost.asgi(echoing())) as http:
        assert (await http.get("/own")).text == "the application's own"
        assert (await http.get("/agents/")).status_code == 404
        assert (await http.get("/fleet/healthz")).status_code == 200


async def test_one_agent_answers_at_the_mount_itself():
    async with mounted(roost.asgi(echoing())) as http:
        card = (await http.get("/fleet/.well-known/agent-card.json")).json()
        assert (card["name"], card["description"]) == ("echo", "Says it again.")
        response = await http.post("/fleet/message:send", json=body("hello"))
        assert response.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_several_agents_are_a_fleet_and_the_root_is_chosen():
    async with mounted(roost.asgi(echoing("one"), echoing("two"))) as http:
        assert (await http.get("/fleet/.well-known/agent-card.json")).json()["name"] == "Roost fleet"
        for agent in ("one", "two"):
            response = await http.post(f"/fleet/agents/{agent}/message:send", json=body("hello"))
            assert response.status_code == 200
    async with mounted(roost.asgi(echoing("one"), echoing("two"), root="two")) as http:
        assert (await http.get("/fleet/.well-known/agent-card.json")).json()["name"] == "two"


async def test_a_public_url_is_what_the_cards_say():
    async with mounted(roost.asgi(echoing(), public_url="https://agents.example.com/fleet/")) as http:
        card = (await http.get("/fleet/agents/echo/.well-known/agent-card.json")).json()
    assert {interface["url"] for interface in card["supportedInterfaces"]} == {
        "https://agents.example.com/fleet/agents/echo"
    }


async def test_the_journal_is_in_the_data_folder_and_tasks_outlive_the_application(tmp_path: Path):
    data = tmp_path / "journal"
    async with mounted(roost.asgi(echoing(), data=str(data))) as http:
        task = (await http.post("/fleet/agents/echo/message:send", json=body("ask"))).json()["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert (data / "journal.db").stat().st_size > 0
    async with mounted(roost.asgi(echoing(), data=str(data))) as http:
        found = (await http.get(f"/fleet/agents/echo/tasks/{task['id']}")).json()
        assert found == task
        done = (await http.post("/fleet/agents/echo/message:send", json=body("twice", task["id"]))).json()["task"]
    assert done["artifacts"][0]["parts"] == [{"text": "ask "}, {"text": "twice"}]


async def test_without_a_data_folder_nothing_is_kept_on_disk(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with mounted(roost.asgi(echoing())) as http:
        assert (await http.post("/fleet/agents/echo/message:send", json=body("hello"))).status_code == 200
    assert list(tmp_path.iterdir()) == []


async def test_a_stream_works_below_the_prefix():
    async with mounted(roost.asgi(echoing())) as http:
        response = await http.post("/fleet/agents/echo/message:stream", json=body("hello"))
    assert response.headers["content-type"] == "text/event-stream"
    assert response.text.count("data: ") == 5, "the task, WORKING, two pieces, COMPLETED"


async def test_many_first_requests_at_once_start_one_host(tmp_path: Path):
    async with mounted(roost.asgi(echoing(), data=str(tmp_path))) as http:
        calls = [http.post("/fleet/agents/echo/message:send", json=body(f"hello {number}")) for number in range(10)]
        responses = await asyncio.gather(*calls)
        assert {response.status_code for response in responses} == {200}
        assert (await http.get("/fleet/agents/echo/tasks")).json()["totalSize"] == 10


async def test_a_host_can_be_the_application_itself():
    host = roost.asgi(echoing())
    sent: list[str] = []
    events = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive():
        return {"type": next(events)}

    async def send(message):
        sent.append(message["type"])
        if message["type"] == "lifespan.startup.complete":
            assert host.engine is not None

    await host({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert host.engine is None


async def test_a_journal_in_use_fails_the_start_and_says_so(tmp_path: Path):
    first, second = roost.asgi(echoing(), data=str(tmp_path)), roost.asgi(echoing(), data=str(tmp_path))
    await first.start()
    sent: list[dict] = []

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(message):
        sent.append(message)

    try:
        with pytest.raises(StoreInUse, match="in use by another roost process"):
            await second({"type": "lifespan"}, receive, send)
    finally:
        await first.close()
    assert sent[0]["type"] == "lifespan.startup.failed"
    assert "in use" in sent[0]["message"]


async def test_an_agent_with_a_member_of_the_card_that_is_the_hosts_is_refused_also_while_the_host_runs():
    forger = roost.Agent("forger", card_extras={"x-scitex-agent-container": {"isolation": {"level": "hardened"}}})
    forger.on_message(lambda task: "hi")
    with pytest.raises(HostError, match="card_extras of agent 'forger' cannot have 'x-scitex-agent-container'"):
        await roost.asgi(forger).start()
    host = roost.asgi(echoing())
    async with mounted(host) as http:
        assert (await http.get("/fleet/agents/")).status_code == 200
        with pytest.raises(ReservedExtra, match="choose a name of your own"):
            host.agents.add(forger.hosted())
        assert [agent["name"] for agent in (await http.get("/fleet/agents/")).json()["agents"]] == ["echo"]


def test_a_host_without_agents_or_with_an_unknown_root_is_refused():
    with pytest.raises(HostError, match="no agent to host"):
        roost.asgi()
    with pytest.raises(HostError, match="root is 'nobody'"):
        roost.asgi(echoing(), root="nobody")
