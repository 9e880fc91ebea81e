"""Clients that drop their connection, hosts that stop, and streams that are silent for long."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from roost import Agent
from roost.doors import heartbeat, sse
from roost.host import asgi
from tests.doors.serving import healthy
from tests.doors.wire import Rest, unread
from tests.openai_door.conftest import AGENTS, client_of
from tests.processes import Server, running
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture(scope="module")
def cancelling() -> Iterator[Server]:
    with healthy(AGENTS, args=("--openai-cancel",)) as host:
        yield host


def leave(server: Server, http: httpx.Client, path: str, body: dict[str, Any]) -> tuple[str, str]:
    """The gate and the task of a client that leaves while the agent works."""
    name = str(uuid.uuid4())
    said = {"messages": [{"role": "user", "content": name}]} if "chat" in path else {"input": name}
    whole = {"model": "hold", "session_id": name, **said, **body}
    rest = Rest(http, server.url)

    def working() -> str | None:
        tasks = rest.ok("ListTasks", {"contextId": name, "status": "TASK_STATE_WORKING"}, "hold")["tasks"]
        return tasks[0]["id"] if tasks else None

    with unread(http.build_request("POST", f"{server.url}/openai/v1/{path}", json=whole)):
        return name, eventually(working)


WAYS = [
    ("chat/completions", {}),
    ("chat/completions", {"stream": True}),
    ("responses", {}),
    ("responses", {"stream": True}),
]


@pytest.mark.parametrize(("path", "body"), WAYS)
def test_a_client_that_leaves_lets_its_task_go_on(server: Server, rest: Rest, path: str, body: dict[str, Any]) -> None:
    name, task = leave(server, rest.http, path, body)
    rest.task(name, "release")
    assert rest.until(task, "hold", "COMPLETED", "CANCELED")["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize(("path", "body"), WAYS)
def test_where_the_operator_wants_so_its_task_ends_with_it(
    cancelling: Server, rest: Rest, path: str, body: dict[str, Any]
) -> None:
    _, task = leave(cancelling, rest.http, path, body)
    assert Rest(rest.http, cancelling.url).until(task, "hold", "CANCELED")["id"] == task


def test_what_runs_in_the_background_goes_on_even_then(cancelling: Server, rest: Rest) -> None:
    name, task = leave(cancelling, rest.http, "responses", {"stream": True, "background": True})
    there = Rest(rest.http, cancelling.url)
    there.task(name, "release")
    assert there.until(task, "hold", "COMPLETED")["id"] == task


def test_a_host_that_stops_ends_streams_with_an_error_and_waits_not(rest: Rest) -> None:
    """A client that waits for a whole answer does not ask again by itself, unless that begins nothing new."""
    with (
        running(AGENTS, args=("--drain-s", "0")) as server,
        client_of(server.url) as client,
        ThreadPoolExecutor() as pool,
    ):
        messages: Any = [{"role": "user", "content": "never"}]
        there = Rest(rest.http, server.url)

        def wait(**more: str) -> httpx.Response:
            body = {"model": "hold", "messages": messages, "session_id": "whole"}
            return httpx.post(f"{server.url}/openai/v1/chat/completions", json=body, headers=more, timeout=PATIENCE_S)

        def working() -> list[dict[str, Any]] | None:
            tasks = there.ok("ListTasks", {"contextId": "whole"}, "hold")["tasks"]
            return tasks if len(tasks) == 2 else None

        waiting = [pool.submit(wait), pool.submit(wait, **{"Idempotency-Key": "k"})]
        with client.chat.completions.create(model="hold", messages=messages, stream=True) as chunks:
            arrived = iter(chunks)
            assert [next(arrived).choices[0].delta.content for _ in range(2)] == ["", "one "]
            tasks = eventually(working)
            server.process.terminate()
            with pytest.raises(openai.APIError) as broken:
                list(arrived)
        assert broken.value.code == "unavailable"
        answers = [future.result() for future in waiting]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert [answer.headers.get("x-should-retry") for answer in answers] == ["false", None]
        assert {answer.headers["x-task-id"] for answer in answers} == {task["id"] for task in tasks}
        assert {answer.headers["x-session-id"] for answer in answers} == {"whole"}


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
async def test_a_silent_stream_gets_a_comment_now_and_then(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host runs in this process, where the heartbeat interval can be made short."""
    monkeypatch.setattr(heartbeat, "IDLE_S", 0.03)
    gate = asyncio.Event()
    agent = Agent("quiet")

    @agent.on_message
    async def wait(task: Any) -> str:
        await gate.wait()
        return "done"

    host = asgi(agent)
    said = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"input": "x"}
    body = json.dumps({"model": "quiet", "stream": True, **said}).encode()
    requests = iter([{"type": "http.request", "body": body, "more_body": False}])
    chunks: list[bytes] = []
    comments = asyncio.Event()

    async def receive() -> dict[str, Any]:
        for request in requests:
            return request
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        chunks.append(message.get("body", b""))
        if chunks.count(sse.KEEP_ALIVE) == 3:
            comments.set()

    await host.start()
    try:
        serving = asyncio.create_task(host(_scope(f"/openai/v1/{path}"), receive, send))
        async with asyncio.timeout(PATIENCE_S):
            await comments.wait()
            gate.set()
            await serving
    finally:
        await host.close()
    assert b'"done"' in b"".join(chunks)


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
