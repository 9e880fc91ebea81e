"""kill -9 at any moment: nothing that was acknowledged is lost or changed, and no task is stuck."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from roost.protocol.codec import encode
from roost.protocol.entries import NO_CHAIN, STATUS, Entry, link
from roost.protocol.fold import fold, new_task
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import TaskState
from roost.stores.sqlite import SQLiteStore
from tests.processes import Server, running
from tests.waiting import PATIENCE_S, eventually, until

from .agents import expected
from .client import CALLS, HEADERS, events, text_of
from .conftest import AGENTS

KILLS = 10
CLIENTS = 4
"""The number of clients of each kind."""
LONGEST_LIFE_S = 0.5


class Acknowledged(NamedTuple):
    """All that the hosts told their clients, over all their lives."""

    tasks: list[dict[str, Any]]
    """The tasks in responses to sends."""
    events: list[tuple[str, int, dict[str, Any]]]
    """(task id, event id, event), as they were streamed; a stream's first is the task."""
    answers: list[tuple[str, str]]
    """(task id, text of a message that the host took for it)"""


class Client:
    def __init__(self, http: httpx.AsyncClient, acknowledged: Acknowledged, name: str) -> None:
        self.http = http
        self.acknowledged = acknowledged
        self.name = name
        self.sent = 0

    async def run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Send until the host is gone."""
        try:
            while True:
                self.sent += 1
                await work(self)
        except httpx.TransportError:
            return

    async def send(self, agent: str, text: str, **message: Any) -> dict[str, Any]:
        body = CALLS["rest-send"].body(text)
        body["message"].update(message)
        response = await self.http.post(f"/agents/{agent}/message:send", json=body)
        assert response.status_code == 200, response.text
        task: dict[str, Any] = response.json()["task"]
        self.acknowledged.tasks.append(task)
        return task

    async def count(self) -> None:
        await self.send("counting", f"{self.name} {self.sent}")

    async def ask(self) -> None:
        task = await self.send("asking", f"{self.name} {self.sent}")
        assert task["status"]["state"] == TaskState.INPUT_REQUIRED
        await self.send("asking", "that", taskId=task["id"])
        self.acknowledged.answers.append((task["id"], "that"))

    async def stream(self) -> None:
        body = CALLS["rest-stream"].body(f"{self.name} {self.sent}")
        async with self.http.stream("POST", "/agents/counting/message:stream", json=body) as response:
            assert response.status_code == 200
            task_id, received = "", b""
            async for piece in response.aiter_bytes():
                received += piece
                whole, separator, received = received.rpartition(b"\n\n")
                for number, event in events(whole + separator):
                    task_id = task_id or event["task"]["id"]
                    self.acknowledged.events.append((task_id, number, event))


def told(acknowledged: Acknowledged) -> int:
    return sum(map(len, acknowledged))


async def traffic(server: Server, acknowledged: Acknowledged, life: int, seconds: float) -> None:
    """Let many clients send, and kill the host among them; every other host not before it has told them something."""
    before = told(acknowledged)
    async with httpx.AsyncClient(base_url=server.url, headers=HEADERS, timeout=PATIENCE_S) as http:
        works = {"count": Client.count, "ask": Client.ask, "stream": Client.stream}
        clients = [
            asyncio.create_task(Client(http, acknowledged, f"{kind} {life}.{number}").run(work))
            for kind, work in works.items()
            for number in range(CLIENTS)
        ]
        if life % 2:
            await until(lambda: told(acknowledged) > before, "an acknowledgement")
        await asyncio.sleep(seconds)
        server.process.kill()
        await asyncio.gather(*clients)


def in_states(server: Server, agent: str, state: TaskState) -> int:
    answer = httpx.get(f"{server.url}/agents/{agent}/tasks?status={state}&pageSize=1", headers=HEADERS).json()
    return int(answer["totalSize"])


def nothing_runs(server: Server) -> bool:
    states = (TaskState.SUBMITTED, TaskState.WORKING)
    return not any(in_states(server, agent, state) for agent in ("counting", "asking") for state in states)


def all_tasks(server: Server, agent: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with httpx.Client(base_url=server.url, headers=HEADERS) as http:
        token = ""
        while not found or token:
            page = http.get(f"/agents/{agent}/tasks?includeArtifacts=true&pageSize=100&pageToken={token}").json()
            found += page["tasks"]
            token = page["nextPageToken"]
    return [{key: value for key, value in task.items() if value != []} for task in found]


async def journals(data: Path) -> dict[str, tuple[TaskState, list[Entry]]]:
    """Every task in the file with its state and its entries."""
    connection = sqlite3.connect(data / "journal.db")
    ids = [task_id for (task_id,) in connection.execute("SELECT id FROM tasks")]
    connection.close()
    store = SQLiteStore(data)
    found = {}
    for task_id in ids:
        stored = await store.read_task(task_id)
        assert stored is not None
        found[task_id] = (stored.head.state, await store.read_entries(task_id, -1, 100_000, wire=False))
    await store.close()
    return found


def expect_whole(entries: list[Entry]) -> None:
    """Positions without a gap, and a chain that verifies."""
    chain, seq, sub = NO_CHAIN, 0, 0
    for entry in entries:
        assert (entry.seq, entry.sub) in ((seq + 1, 0), (seq, sub + 1))
        seq, sub = entry.seq, entry.sub
        chain = link(chain, *entry[:6])
        assert entry.chain == chain


def task_as_of(task: dict[str, Any], entries: list[Entry], last: int) -> Any:
    """The same task, folded from its journal."""
    folded = fold(new_task(task["id"], task["contextId"]), [entry for entry in entries if entry.seq <= last])
    return json.loads(encode(folded))


def expect_ended_well(task: dict[str, Any]) -> None:
    """A task ends with the text of an undisturbed run, or FAILED after three attempts with that reason."""
    said = task["history"][0]["parts"][0]["text"]
    if task["status"]["state"] == TaskState.COMPLETED:
        assert text_of(task) == (expected(said) if not said.startswith("ask") else f"{said} that")
    elif task["status"]["state"] != TaskState.INPUT_REQUIRED:
        assert task["status"]["state"] == TaskState.FAILED
        assert "The host died 4 times" in task["status"]["message"]["parts"][0]["text"]


async def test_kill_9_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged = Acknowledged([], [], [])
    for life in range(KILLS):
        with running(AGENTS, data=tmp_path) as server:
            await traffic(server, acknowledged, life, chance.uniform(0, LONGEST_LIFE_S))
    with running(AGENTS, data=tmp_path) as server:
        eventually(lambda: nothing_runs(server), "the end of every task")
        now = {task["id"]: task for agent in ("counting", "asking") for task in all_tasks(server, agent)}
    kept = await journals(tmp_path)
    assert set(kept) == set(now)
    for task_id, (state, entries) in kept.items():
        expect_whole(entries)
        assert state in SETTLED
        assert now[task_id] == task_as_of(now[task_id], entries, entries[-1].seq)
        expect_ended_well(now[task_id])
    expect_kept(acknowledged, now, {task_id: entries for task_id, (_, entries) in kept.items()})


def expect_kept(told: Acknowledged, now: dict[str, dict[str, Any]], kept: dict[str, list[Entry]]) -> None:
    assert sum(map(len, told)) >= KILLS // 2
    for task in told.tasks:
        statuses = [json.loads(entry.data) for entry in kept[task["id"]] if entry.kind == STATUS]
        assert task["status"] in [event["statusUpdate"]["status"] for event in statuses]
        if task["status"]["state"] in TERMINAL:
            assert task == now[task["id"]]
    for task_id, number, event in told.events:
        if "task" in event:
            assert event["task"] == task_as_of(event["task"], kept[task_id], number)
        else:
            assert [json.loads(entry.data) for entry in kept[task_id] if entry[:2] == (number, 0)] == [event]
    for task_id, text in told.answers:
        assert text in [message["parts"][0]["text"] for message in now[task_id]["history"]]
