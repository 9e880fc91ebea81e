"""ListTasks: one owner's tasks, newest status first, in pages that neither skip nor repeat."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from roost import Agent
from roost.engine.engine import Engine
from roost.engine.ids import now_us, timestamp
from roost.fleet.registry import Registry
from roost.identity.principal import LOCAL, Principal
from roost.protocol.types import ListTasksRequest, TaskState
from roost.stores.memory import MemoryStore
from roost.testing import InProcessClient
from tests.agents.programs import request
from tests.agents.talk import emitting, send, serving, until_state
from tests.waiting import until


@pytest.fixture(params=["memory", "sqlite"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "" if request.param == "memory" else str(tmp_path)


def talking() -> Agent:
    agent = Agent("talking")

    @agent.on_message
    async def talk(task):
        if task.text == "wait":
            await asyncio.Event().wait()
        if task.text == "ask":
            await task.ask("?")
        if task.text == "fail":
            task.fail("as told")
        yield f"said {task.text}"

    return agent


async def listed(host: InProcessClient, agent: str = "talking", **query: Any) -> dict[str, Any]:
    response = await host.http.get(f"/agents/{agent}/tasks", params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def test_pages_hold_all_tasks_once_newest_status_first(data):
    async with serving(talking(), data=data) as (host, _):
        sent = [await send(host, f"{number}", context=f"context {number % 2}") for number in range(23)]
        pages, token = [], ""
        while True:
            page = await listed(host, pageSize=5, pageToken=token)
            assert (page["pageSize"], page["totalSize"]) == (5, 23)
            pages.append(page["tasks"])
            token = page["nextPageToken"]
            if not token:
                break
    found = [task for page in pages for task in page]
    assert [len(page) for page in pages] == [5, 5, 5, 5, 3]
    assert sorted(task["id"] for task in found) == sorted(task.id for task in sent)
    times = [task["status"]["timestamp"] for task in found]
    assert times == sorted(times, reverse=True)


async def test_tasks_that_run_wait_or_pause_are_listed_as_they_are(data):
    async with serving(talking(), data=data) as (host, _):
        running = await send(host, "wait", context="busy", wait=False)
        await until_state(host, running, TaskState.WORKING)
        queued = await send(host, "behind", context="busy", wait=False)
        paused = await send(host, "ask")
        failed = await send(host, "fail")
        found = {task["id"]: task["status"]["state"] for task in (await listed(host))["tasks"]}
    assert found == {
        running.id: TaskState.WORKING,
        queued.id: TaskState.SUBMITTED,
        paused.id: TaskState.INPUT_REQUIRED,
        failed.id: TaskState.FAILED,
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"contextId": "one"}, ["a", "fail"]),
        ({"status": "TASK_STATE_FAILED"}, ["fail"]),
        ({"contextId": "one", "status": "TASK_STATE_COMPLETED"}, ["a"]),
        ({"contextId": "nowhere"}, []),
        ({"status": "TASK_STATE_WORKING"}, []),
    ],
    ids=str,
)
async def test_a_filter_keeps_what_it_says_and_counts_only_that(data, query, expected):
    async with serving(talking(), data=data) as (host, engine):
        for text, context in (("a", "one"), ("fail", "one"), ("b", "two")):
            await send(host, text, context=context)
        await until(lambda: not engine.lives.by_id)
        page = await listed(host, **query)
    assert sorted(task["history"][0]["parts"][0]["text"] for task in page["tasks"]) == sorted(expected)
    assert (page["totalSize"], page["nextPageToken"]) == (len(expected), "")


async def test_only_tasks_whose_status_is_at_or_after_the_time_are_kept(data):
    async with serving(talking(), data=data) as (host, _):
        first = await send(host, "a")
        await until(lambda: timestamp(now_us()) > first.status.timestamp)
        second = await send(host, "b")
        at = second.status.timestamp
        assert first.status.timestamp < at
        page = await listed(host, statusTimestampAfter=at)
        assert [task["id"] for task in page["tasks"]] == [second.id]
        everything = await listed(host, statusTimestampAfter=first.status.timestamp)
        assert everything["totalSize"] == 2
        response = await host.http.get("/agents/talking/tasks", params={"statusTimestampAfter": "yesterday"})
        assert response.status_code == 400


async def test_artifacts_are_given_only_to_those_who_ask_and_history_as_long_as_wanted(data):
    async with serving(talking(), data=data) as (host, _):
        running = await send(host, "wait", wait=False)
        asked = await send(host, "ask")
        await send(host, "answer", task=asked)
        await until_state(host, running, TaskState.WORKING)
        plain = {task["id"]: task for task in (await listed(host))["tasks"]}
        assert "artifacts" not in plain[asked.id]
        assert len(plain[asked.id]["history"]) == 3
        full = {task["id"]: task for task in (await listed(host, includeArtifacts="true"))["tasks"]}
        assert full[asked.id]["artifacts"][0]["parts"] == [{"text": "said ask"}]
        assert full[running.id]["artifacts"] == []
        short = {task["id"]: task for task in (await listed(host, historyLength=1))["tasks"]}
        assert [said["parts"][0]["text"] for said in short[asked.id]["history"]] == ["answer"]
        none = {task["id"]: task for task in (await listed(host, historyLength=0))["tasks"]}
        assert "history" not in none[asked.id]
        assert len((await host.get(asked)).history) == 3, "what is stored is not truncated"


async def test_agents_and_owners_see_their_own_tasks_only():
    store = MemoryStore()
    mine, yours = LOCAL, Principal("roost", "someone else", "default")
    agents = [agent.hosted() for agent in (talking(), emitting("coroutine", ["said"]))]
    engine = Engine(store, Registry(agents), "worker")
    await engine.start()
    try:
        await engine.send(mine, "talking", request("a"))
        await engine.send(yours, "talking", request("b"))
        await engine.send(mine, "emitting", request("c"))
        for principal, agent, total in (
            (mine, "talking", 1),
            (yours, "talking", 1),
            (mine, "emitting", 1),
            (yours, "emitting", 0),
        ):
            assert b'"totalSize":%d' % total in await engine.list_tasks(principal, agent, ListTasksRequest())
    finally:
        await engine.close()


@pytest.mark.parametrize(
    "token",
    ["nonsense", "%%%", "MTIz", base64.urlsafe_b64encode(b"x:y").decode(), base64.urlsafe_b64encode(b"1:").decode()],
)
async def test_a_page_token_that_was_not_given_out_is_an_invalid_parameter(token):
    async with serving(talking()) as (host, _):
        response = await host.http.get("/agents/talking/tasks", params={"pageToken": token})
    assert response.status_code == 400
    assert response.json()["error"]["details"][0]["reason"] == "INVALID_PARAMS"


@pytest.mark.parametrize("size", ["0", "101", "-1", "many"])
async def test_a_page_size_out_of_range_is_an_invalid_parameter(size):
    async with serving(talking()) as (host, _):
        response = await host.http.get("/agents/talking/tasks", params={"pageSize": size})
    assert response.status_code == 400


async def test_a_page_has_fifty_tasks_where_none_is_asked_for():
    async with serving(talking()) as (host, _):
        await asyncio.gather(*[send(host, f"{number}") for number in range(60)])
        page = await listed(host)
    assert (len(page["tasks"]), page["pageSize"], page["totalSize"]) == (50, 50, 60)
    assert page["nextPageToken"]
