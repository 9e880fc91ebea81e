"""Agents come and go while the host runs. Their tasks are read from the journal, whoever is served."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from roost import Agent
from roost.host import Host
from roost.protocol.types import Task, TaskState
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from roost.testing import BASE, CallFailed, InProcessClient
from tests.agents.talk import send, status_text, text_of, until_state
from tests.engine.gates import GateStore
from tests.waiting import PATIENCE_S, until

CARD = "/.well-known/agent-card.json"


class KeptStore(MemoryStore):
    """Survives the end of its host."""

    async def close(self) -> None:
        return None


class World:
    """A host whose registry the test changes, and a client of the agent `coming`."""

    def __init__(self, host: Host, http: httpx.AsyncClient) -> None:
        self.host = host
        self.http = http
        self.agents = host.agents
        self.client = InProcessClient(http, "coming")


def resident() -> Agent:
    agent = Agent("resident")
    agent.on_message(lambda task: "here")
    return agent


def coming(word: str, gate: asyncio.Event | None = None, **options: Any) -> Agent:
    """Says its word; `wait` waits for the gate, `ask` asks first."""
    agent = Agent("coming", description=f"says {word}", **options)

    @agent.on_message
    async def talk(task):
        if task.text == "ask":
            yield (await task.ask("what?")).text + " "
        if task.text == "wait" and gate is not None:
            await gate.wait()
        yield word

    return agent


@asynccontextmanager
async def world(*agents: Agent, store: MemoryStore | None = None, **settings: Any) -> AsyncIterator[World]:
    host = Host([resident(), *agents], Settings(public_url=BASE, memory=True, **settings), store)
    await host.start()
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    transport = httpx.ASGITransport(host)
    try:
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers, timeout=PATIENCE_S) as http:
            yield World(host, http)
    finally:
        await host.close()


async def tools(http: httpx.AsyncClient) -> set[str]:
    """The names of the tools that MCP lists, to a client of the version without sessions."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/list",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    response = await http.post("/mcp", json=body, headers=headers)
    return {tool["name"] for tool in response.json()["result"]["tools"]}


async def refusal(call: Any) -> tuple[int, str]:
    with pytest.raises(CallFailed) as failed:
        await call
    return failed.value.status, failed.value.reason


async def test_an_agent_that_is_added_is_served_at_every_door_at_once():
    async with world() as here:
        assert (await here.http.get(f"/agents/coming{CARD}")).status_code == 404
        assert await refusal(here.client.send("hello")) == (404, "AGENT_NOT_FOUND")
        here.agents.add(coming("one").hosted())
        assert text_of(await send(here.client, "hello")) == "one"
        card = (await here.http.get(f"/agents/coming{CARD}")).json()
        assert card["description"] == "says one"
        listed = (await here.http.get("/agents/")).json()["agents"]
        assert [one["name"] for one in listed] == ["resident", "coming"]
        models = (await here.http.get("/openai/v1/models")).json()["data"]
        assert "coming" in {model["id"] for model in models}
        catalog = (await here.http.get("/.well-known/ai-catalog.json")).text
        assert "/agents/coming" in catalog
        assert "coming" in await tools(here.http)


async def test_a_run_keeps_the_agent_it_was_accepted_with_and_the_next_turn_has_the_new_one():
    gate = asyncio.Event()
    async with world(coming("one", gate)) as here:
        running = await send(here.client, "wait", wait=False)
        paused = await send(here.client, "ask")
        here.agents.replace(coming("two", gate).hosted())
        assert (await here.http.get(f"/agents/coming{CARD}")).json()["description"] == "says two"
        gate.set()
        assert text_of(await until_state(here.client, running, TaskState.COMPLETED)) == "one"
        assert text_of(await send(here.client, "this", task=paused)) == "this two"


async def test_a_replacement_may_change_whether_turns_of_a_context_run_at_the_same_time():
    gate = asyncio.Event()
    async with world(coming("one", gate)) as here:
        first = await send(here.client, "wait", wait=False, context="c")
        behind = await send(here.client, "behind", wait=False, context="c")
        here.agents.replace(coming("two", gate, parallel=True).hosted())
        assert text_of(await send(here.client, "beside", context="c")) == "two", "it waits for nobody"
        here.agents.replace(coming("three", gate).hosted())
        last = await send(here.client, "last", wait=False, context="c")
        gate.set()
        ended = [await until_state(here.client, task, TaskState.COMPLETED) for task in (first, behind, last)]
        assert [text_of(task) for task in ended] == ["one", "one", "three"]


async def test_a_removed_agent_has_no_card_and_takes_no_message_but_its_tasks_are_still_there():
    async with world(coming("one")) as here:
        done, paused, other = [await send(here.client, text) for text in ("hello", "ask", "ask")]
        here.agents.remove("coming")
        assert (await here.http.get(f"/agents/coming{CARD}")).status_code == 404
        assert await refusal(here.client.send("hello")) == (404, "AGENT_NOT_FOUND")
        assert text_of(await here.client.get(done)) == "one"
        listed = (await here.http.get("/agents/coming/tasks")).json()
        assert {task["id"] for task in listed["tasks"]} == {done.id, paused.id, other.id}
        assert (await here.client.cancel(other)).status.state is TaskState.CANCELED
        assert await refusal(here.client.send("this", task=paused)) == (503, "UNAVAILABLE")
        assert await refusal(here.client.send("this", task="none")) == (404, "TASK_NOT_FOUND")
        replay = await here.http.post(f"/agents/coming/tasks/{done.id}:subscribe", headers={"Last-Event-ID": "1"})
        assert "TASK_STATE_COMPLETED" in replay.text
        here.agents.add(coming("again").hosted())
        assert text_of(await send(here.client, "this", task=paused)) == "this again"


async def test_accepted_tasks_of_a_removed_agent_finish():
    gate = asyncio.Event()
    async with world(coming("one", gate)) as here:
        running = await send(here.client, "wait", wait=False, context="c")
        waiting = await send(here.client, "behind", wait=False, context="c")
        here.agents.remove("coming")
        assert here.host.engine is not None
        assert "coming" in here.host.engine.runner.queues, "its runs have not ended"
        gate.set()
        for task in (running, waiting):
            assert text_of(await until_state(here.client, task, TaskState.COMPLETED)) == "one"
        await until(lambda: here.host.engine is not None and "coming" not in here.host.engine.runner.queues)


async def test_accepted_tasks_are_canceled_if_the_removal_says_so():
    gate = asyncio.Event()
    async with world(coming("one", gate)) as here:
        running = await send(here.client, "wait", wait=False, context="c")
        waiting = await send(here.client, "behind", wait=False, context="c")
        here.agents.remove("coming", cancel=True)
        for task in (running, waiting):
            await until_state(here.client, task, TaskState.CANCELED)


async def test_after_a_restart_without_the_agent_its_tasks_wait_and_go_on_when_it_is_back():
    store = KeptStore()
    gate = asyncio.Event()
    async with world(coming("one", gate), store=store) as here:
        task = await send(here.client, "wait", wait=False)
    async with world(store=store) as here:
        assert here.host.engine is not None
        await here.host.engine.recovered.wait()
        assert (await here.client.get(task)).status.state in (TaskState.SUBMITTED, TaskState.WORKING)
        gate.set()
        here.agents.add(coming("two", gate).hosted())
        assert text_of(await until_state(here.client, task, TaskState.COMPLETED)) == "two"


async def test_after_a_restart_without_the_agent_its_tasks_can_be_canceled():
    store = KeptStore()
    async with world(coming("one", asyncio.Event()), store=store) as here:
        task = await send(here.client, "wait", wait=False)
    async with world(store=store) as here:
        assert (await here.client.cancel(task)).status.state is TaskState.CANCELED


async def test_unfinished_tasks_of_an_agent_that_nobody_serves_fail_after_the_set_time():
    store = KeptStore()
    async with world(coming("one", asyncio.Event()), store=store) as here:
        running = await send(here.client, "wait", wait=False)
        paused: Task = await send(here.client, "ask")
        done = await send(here.client, "hello")
    async with world(store=store, unserved_days=0.5 / 86_400) as here:
        assert here.host.engine is not None
        sweeper = here.host.engine.retention
        await sweeper.sweep()
        assert (await here.client.get(paused)).status.state is TaskState.INPUT_REQUIRED, "it counts from now on"

        async def failed() -> bool:
            await sweeper.sweep()
            return (await here.client.get(paused)).status.state is TaskState.FAILED

        await until(failed)
        for task in (running, paused):
            ended = await here.client.get(task)
            assert ended.status.state is TaskState.FAILED
            assert "No host has served the agent 'coming'" in status_text(ended)
        assert (await here.client.get(done)).status.state is TaskState.COMPLETED


@pytest.mark.parametrize("cancel", [False, True])
async def test_a_task_that_waits_to_be_resumed_when_its_agent_is_removed_counts_as_accepted(cancel, monkeypatch):
    """Its run waits for the delay between two attempts."""
    monkeypatch.setattr("roost.engine.recovery.BACKOFF_S", (0.05,) * 3)
    store, gate = KeptStore(), asyncio.Event()
    async with world(coming("one", asyncio.Event(), parallel=True), store=store) as here:
        task = await send(here.client, "wait", wait=False)
    async with world(coming("two", gate, parallel=True), store=store) as here:
        assert here.host.engine is not None
        await here.host.engine.recovered.wait()
        here.agents.remove("coming", cancel=cancel)
        gate.set()
        await until_state(here.client, task, TaskState.CANCELED if cancel else TaskState.COMPLETED)
        await until(lambda: here.host.engine is not None and "coming" not in here.host.engine.runner.queues)


async def test_messages_that_are_being_committed_when_their_agent_is_removed_with_cancel_are_canceled():
    store = GateStore()
    async with world(coming("one", asyncio.Event()), store=store) as here:
        store.commits.clear()
        sending = [asyncio.create_task(send(here.client, "wait", wait=False)) for _ in range(5)]
        await until(lambda: store.committing)
        here.agents.remove("coming", cancel=True)
        store.commits.set()
        for task in [await one for one in sending]:
            await until_state(here.client, task, TaskState.CANCELED)
        assert here.host.engine is not None
        assert "coming" not in here.host.engine.runner.queues


async def test_a_repeat_to_a_removed_agent_has_the_first_answer():
    async with world(coming("one")) as here:
        said = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        first = await here.http.post("/agents/coming/message:send", json={"message": said})
        here.agents.remove("coming")
        again = await here.http.post("/agents/coming/message:send", json={"message": said})
        assert (again.status_code, again.headers["Idempotent-Replayed"]) == (200, "true")
        assert again.content == first.content


async def test_a_message_to_an_ended_task_of_a_removed_agent_is_refused_for_good():
    async with world(coming("one")) as here:
        done = await send(here.client, "hello")
        here.agents.remove("coming")
        assert await refusal(here.client.send("more", task=done)) == (400, "UNSUPPORTED_OPERATION")


@pytest.mark.parametrize("back", [False, True])
async def test_an_agent_that_is_removed_while_a_webhook_is_checked(back, monkeypatch):
    """The message is for the agent that is served when it is accepted, or for nobody."""
    checking, checked = asyncio.Event(), asyncio.Event()

    async def check(self: object, url: str) -> None:
        checking.set()
        await checked.wait()

    monkeypatch.setattr("roost.wiring.egress.WebhookSender.check", check)
    async with world(coming("one")) as here:
        webhook = {"taskPushNotificationConfig": {"url": "https://hooks.example.com/"}}
        said = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        sending = asyncio.create_task(
            here.http.post("/agents/coming/message:send", json={"message": said, "configuration": webhook})
        )
        await checking.wait()
        here.agents.remove("coming")
        if back:
            here.agents.add(coming("two").hosted())
        checked.set()
        answer = await sending
        assert answer.status_code == (200 if back else 404)
        if back:
            assert '"text":"two"' in answer.text
