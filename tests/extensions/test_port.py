"""The port for extensions: an extension of the tests declares itself, checks, records, and adds for its readers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from msgspec.structs import replace

from roost import Agent
from roost.engine.extension import Extension, Incoming
from roost.engine.hosted import Profile
from roost.engine.store_types import Scope
from roost.host import Host
from roost.protocol.errors import InvalidParams
from roost.protocol.types import AgentExtension, JSONObject, Task
from roost.settings import Settings
from roost.testing import BASE
from tests.waiting import PATIENCE_S, until

URI = "urn:roost:test:mood:v1"


class Mood(Extension):
    """Refuses a bad mood, records the mood of the host, and shows readers who ask for it a smile."""

    uri = URI

    def declaration(self, profile: Profile | None) -> AgentExtension:
        return AgentExtension(uri=URI, params={"of": "fleet" if profile is None else profile.id})

    def accept(self, incoming: Incoming) -> Incoming:
        if URI not in incoming.activated:
            return incoming
        if (incoming.request.metadata or {}).get("mood") == "bad":
            raise InvalidParams("metadata.mood is bad", field="metadata.mood")
        return replace(incoming, stamped_by=(*incoming.stamped_by, self))

    def stamp(self, scope: Scope) -> JSONObject:
        return {"mood": scope.agent}

    def add_to_task(self, task: Task) -> None:
        task.metadata = {**(task.metadata or {}), "smile": "task"}

    def add_to_event(self, event: Any) -> None:
        event.metadata = {**(event.metadata or {}), "smile": "event"}


def agent() -> Agent:
    agent = Agent("echo")

    @agent.on_message
    async def echo(task):
        if task.text == "ask":
            yield (await task.ask("what?")).text
        yield task.text

    return agent


class Client(httpx.AsyncClient):
    """A client of a host in this process."""

    def __init__(self, served: Host) -> None:
        headers = {"A2A-Version": "1.0"}
        super().__init__(transport=httpx.ASGITransport(served), base_url=BASE, headers=headers, timeout=PATIENCE_S)
        self.served = served

    def streams(self) -> int:
        """How many streams are open now."""
        assert self.served.engine is not None
        return self.served.engine.stats.streams


@asynccontextmanager
async def host(served_agent: Agent | None = None) -> AsyncIterator[Client]:
    served = Host([served_agent or agent()], Settings(public_url=BASE, memory=True), more_extensions=[Mood()])
    await served.start()
    try:
        async with Client(served) as client:
            yield client
    finally:
        await served.close()


ACTIVATED = {"A2A-Extensions": URI}
AT_ONCE = {"returnImmediately": True}


def message(text: str = "hello", message_id: str = "", **more: Any) -> dict[str, Any]:
    said = {"messageId": message_id or str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": {**said, **more}}


async def test_the_card_declares_it():
    async with host() as client:
        declared = (await client.get("/agents/echo/.well-known/agent-card.json")).json()["capabilities"]["extensions"]
        assert {"uri": URI, "params": {"of": "echo"}} in declared


async def test_it_refuses_a_message_and_nothing_is_recorded():
    async with host() as client:
        refused = await client.post(
            "/agents/echo/message:send", json={**message(), "metadata": {"mood": "bad"}}, headers=ACTIVATED
        )
        assert refused.status_code == 400
        assert "metadata.mood" in refused.text
        assert (await client.get("/agents/echo/tasks")).json()["totalSize"] == 0


async def test_what_it_records_is_in_the_base_and_what_it_adds_only_for_its_readers():
    async with host() as client:
        sent = (await client.post("/agents/echo/message:send", json=message(), headers=ACTIVATED)).json()["task"]
        assert sent["metadata"] == {"mood": "echo", "smile": "task"}
        base = (await client.get(f"/agents/echo/tasks/{sent['id']}")).json()
        assert base["metadata"] == {"mood": "echo"}
        assert (await client.get(f"/agents/echo/tasks/{sent['id']}", headers=ACTIVATED)).json() == sent
        page = (await client.get("/agents/echo/tasks", headers=ACTIVATED)).json()
        assert [task["metadata"] for task in page["tasks"]] == [{"mood": "echo", "smile": "task"}]
        assert (await client.get("/agents/echo/tasks")).json()["tasks"][0]["metadata"] == {"mood": "echo"}


async def test_streams_add_it_for_the_reader_who_activated_it_and_for_no_other():
    async with host() as client:
        body = message("ask")
        asked = await client.post("/agents/echo/message:stream", json=body, headers=ACTIVATED)
        assert asked.text.count('"smile":"event"') == asked.text.count("Update") > 0
        assert '"smile":"task"' in asked.text
        task_id = asked.text.partition('"taskId":"')[2].partition('"')[0]
        plain = await client.post("/agents/echo/message:stream", json=message("this", taskId=task_id))
        assert "smile" not in plain.text
        assert '"mood":"echo"' in plain.text, "later events carry the stamp too"
        again = await client.post(
            f"/agents/echo/tasks/{task_id}:subscribe", headers={**ACTIVATED, "Last-Event-ID": "1"}, json={}
        )
        assert again.text.count('"smile":"event"') == again.text.count("Update") > 0


async def test_two_readers_of_one_stream_get_each_their_own_bytes():
    """Readers at the same position share their bytes, unless an extension adds to them."""
    gate = asyncio.Event()
    waiting = Agent("echo")

    @waiting.on_message
    async def wait(task):
        await gate.wait()
        yield "done"

    async with host(waiting) as client:
        sent = await client.post("/agents/echo/message:send", json={**message(), "configuration": AT_ONCE})
        path = f"/agents/echo/tasks/{sent.json()['task']['id']}:subscribe"
        reading = [asyncio.create_task(client.post(path, headers=one, json={})) for one in (ACTIVATED, {}, ACTIVATED)]
        await until(lambda: client.streams() == 3)
        gate.set()
        first, plain, last = [(await one).text for one in reading]
        assert first.count('"smile":"event"') == first.count("Update") > 0
        assert "smile" not in plain
        assert last == first


async def test_a_list_says_that_a_task_has_no_artifacts_to_every_reader():
    async with host() as client:
        await client.post("/agents/echo/message:send", json=message("ask"))
        path = "/agents/echo/tasks?includeArtifacts=true"
        plain, shown = [(await client.get(path, headers=headers)).json() for headers in ({}, ACTIVATED)]
        [task], [same] = plain["tasks"], shown["tasks"]
        assert task["artifacts"] == []
        assert same == {**task, "metadata": {"smile": "task"}}


async def test_a_repeat_has_the_first_answer_with_what_the_repeat_activates():
    async with host() as client:
        body = message()
        first = (await client.post("/agents/echo/message:send", json=body, headers=ACTIVATED)).json()["task"]
        repeat = await client.post("/agents/echo/message:send", json=body)
        assert repeat.headers["Idempotent-Replayed"] == "true"
        assert repeat.json()["task"] == {**first, "metadata": {"mood": "echo"}}
        assert (await client.post("/agents/echo/message:send", json=body, headers=ACTIVATED)).json()["task"] == first
