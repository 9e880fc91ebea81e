"""A host continues everything that it finds in its journal when it starts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from roost import Agent
from roost.agents.task import AgentTask
from roost.protocol.types import Task, TaskState
from roost.testing import InProcessClient, client
from tests.processes import Server
from tests.waiting import PATIENCE_S, eventually

from .client import HEADERS, sent, text_of
from .conftest import Disk

PAGE = 1000
"""Entries that recovery reads at once."""


def only_task(server: Server, agent: str) -> dict[str, object]:
    [task] = httpx.get(f"{server.url}/agents/{agent}/tasks?includeArtifacts=true", headers=HEADERS).json()["tasks"]
    return dict(task)


def is_completed(server: Server, agent: str) -> bool:
    return "TASK_STATE_COMPLETED" in json.dumps(only_task(server, agent)["status"])


def interrupt(start: Callable[[], AbstractContextManager[Server]]) -> None:
    """Leave a task behind whose host was killed in the middle."""
    with start() as server, sent(server.url, "held", "rest-stream", "hello") as stream:
        stream.read_until(b'"one"')
        server.kill()


def test_an_interrupted_task_goes_on_in_the_next_host(
    start: Callable[[], AbstractContextManager[Server]], disk: Disk
) -> None:
    interrupt(start)
    disk.tell("go")
    with start() as server:
        eventually(lambda: is_completed(server, "held"), "the end of the task")
        assert text_of(only_task(server, "held")) == "one two"


def test_an_interrupted_task_goes_on_though_the_disk_was_broken_when_the_host_started(
    start: Callable[[], AbstractContextManager[Server]], disk: Disk
) -> None:
    interrupt(start)
    disk.tell("go")
    disk.tell("fail")
    with start() as server:
        eventually(lambda: httpx.get(f"{server.url}/readyz").status_code == 503, "a host that is not ready")
        disk.untell("fail")
        eventually(lambda: httpx.get(f"{server.url}/readyz").status_code == 200, "a host that is ready")
        eventually(lambda: is_completed(server, "held"), "the end of the task")


def stepping(steps: int) -> Agent:
    agent = Agent("stepping")

    @agent.on_message
    async def step(task: AgentTask) -> AsyncIterator[str]:
        """Makes steps, asks, and repeats the answer."""
        for _ in range(steps):
            await task.step("step", int)
        yield (await task.ask("And now?")).text

    return agent


async def asked(client: InProcessClient, text: str = "go") -> Task:
    task = await client.send(text)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.INPUT_REQUIRED
    return task


@pytest.mark.parametrize(
    "steps",
    [
        10,
        PAGE + 10,
    ],
)
async def test_a_task_goes_on_after_a_restart_however_many_steps_it_made(tmp_path: Path, steps: int) -> None:
    agent = stepping(steps)
    async with client(agent, data=str(tmp_path)) as before:
        task = await asked(before)
    async with client(agent, data=str(tmp_path)) as after:
        answered = await asyncio.wait_for(after.send("this", task=task), PATIENCE_S)
        assert isinstance(answered, Task)
        assert answered.status.state is TaskState.COMPLETED


@pytest.mark.parametrize(
    "pieces",
    [
        PAGE - 6,
        PAGE - 5,
        PAGE - 4,
    ],
)
async def test_a_resumed_stream_begins_with_each_message_once_wherever_a_page_ends(pieces: int) -> None:
    agent = Agent("talking")

    @agent.on_message
    async def talk(task: AgentTask) -> AsyncIterator[str]:
        """Says much, asks, and repeats the answer."""
        for _ in range(pieces):
            yield "."
        yield (await task.ask("And now?")).text

    async with client(agent) as talking:
        task = await asked(talking)
        ended = await talking.send("this", task=task)
        assert isinstance(ended, Task)
        events_after = {"Last-Event-ID": str(pieces + 5)}
        stream = await talking.http.get(f"/agents/talking/tasks/{task.id}:subscribe", headers=events_after)
        opening = json.loads(stream.text.partition("data: ")[2].partition("\n")[0])["task"]
    assert [message["parts"][0]["text"] for message in opening["history"]] == [one.text for one in ended.history]
