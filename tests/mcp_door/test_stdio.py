"""`roost mcp serve`: the same tools for clients that start their servers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp.shared.exceptions import MCPError

from tests.access.people import AGENTS as PEOPLE_AGENTS
from tests.access.people import OPERATOR, People
from tests.doors import serving
from tests.doors.wire import Rest
from tests.mcp_door.clients import Progress, data, each_version, on_stdio, open_gate, says, task_of, text
from tests.mcp_door.raw import asking, opening
from tests.processes import Server, begun, finish, roost, running
from tests.waiting import PATIENCE_S, eventually

NOWHERE = "http://127.0.0.1:9"


@each_version
async def test_the_same_tools(server: Server, mode: str) -> None:
    async with on_stdio(server.url, mode) as client:
        assert "interview" in {tool.name for tool in (await client.list_tools()).tools}
        result = await client.call_tool("release", {"text": "x"})
        assert (text(result), data(result)["state"]) == ("open", "completed")
        assert (await client.call_tool("release", {})).is_error
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("nothing", {"text": "x"})


async def test_a_client_that_speaks_either_version(server: Server) -> None:
    async with on_stdio(server.url, "auto") as client:
        assert client.session.protocol_version == "2026-07-28"
        assert text(await client.call_tool("release", {"text": "x"})) == "open"


@each_version
async def test_progress_and_questions(server: Server, mode: str) -> None:
    gate = f"stdio-{mode}"
    await open_gate(server, gate)
    progress = Progress()
    async with on_stdio(server.url, mode, elicitation_callback=says("Ann", "blue")) as client:
        result = await client.call_tool("interview", {"text": gate}, progress_callback=progress)
        assert text(result) == "Welcome. Hello, Ann. blue, then."
        assert "Welcome" in progress.said


@each_version
async def test_a_call_that_is_cancelled(server: Server, rest: Rest, mode: str) -> None:
    progress = Progress()
    async with on_stdio(server.url, mode) as client:
        call = asyncio.ensure_future(client.call_tool("plodder", {"text": "?"}, progress_callback=progress))
        await progress.wait_for("begun")
        listed = await client.call_tool("list_tasks", {"agent": "plodder", "limit": 1})
        call.cancel()
        task = data(listed)["tasks"][0]["taskId"]
        await asyncio.to_thread(rest.until, task, "plodder", "CANCELED")


async def test_odd_line_ends_inside_a_text_are_no_ends(server: Server) -> None:
    async with on_stdio(server.url) as client:
        said = "a\u2028b\u0085c\r\nd\u2029"
        result = await client.call_tool("direct", {"text": said})
        assert text(result) == f"you said {said}"


async def test_a_host_that_comes_back_is_the_same_to_the_client(tmp_path: Path) -> None:
    with running(serving.AGENTS, data=tmp_path, args=("--drain-s", "0")) as server:
        async with on_stdio(server.url) as client:
            asked = await client.call_tool("interview", {"text": "again"})
            server.kill()
            with pytest.raises(MCPError, match="nothing answers"):
                await client.call_tool("get_task", {"taskId": task_of(asked)})
            with serving.healthy(serving.AGENTS, data=tmp_path, port=server.port) as back:
                await open_gate(back, "again")
                both = await asyncio.gather(*(client.call_tool("list_tasks", {}) for _ in range(5)))
                assert len({json.dumps(data(one)) for one in both}) == 1
                answered = await client.call_tool("interview", {"text": "Ann", "taskId": task_of(asked)})
                assert data(answered)["message"] == "Your color?"


async def test_a_token_is_the_clients_credential() -> None:
    with running(PEOPLE_AGENTS, args=("--drain-s", "0"), env=OPERATOR) as server, People(server) as people:
        token = people.operator.make("agent:desk")["token"]
        async with on_stdio(server.url, token=token) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert tools == {"list_tasks", "get_task", "cancel_task", "desk"}
        with pytest.raises((MCPError, ExceptionGroup)) as raised:
            async with on_stdio(server.url, token="roost_" + "x" * 43):
                raise AssertionError
        assert raised.group_contains(MCPError, match="credential") or "credential" in str(raised.value)


# As bytes


class Pipe:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def piped(url: str) -> Iterator[Pipe]:
    with begun("mcp", "serve", url=url, stdin=subprocess.PIPE) as process:
        yield Pipe(process)


def test_lines_that_are_no_messages_do_not_end_it(server: Server) -> None:
    with piped(server.url) as pipe:
        for line in ("", "{", "[]", '"a"', '{"jsonrpc": "1.0"}', "x" * 100_000):
            pipe.say(line)
            assert pipe.hear()["error"]["code"] == mcp.PARSE_ERROR
        pipe.say(json.dumps(asking("tools/list", {})))
        assert "session" in pipe.hear()["error"]["message"]
        pipe.say(json.dumps(asking("initialize", opening())))
        assert pipe.hear()["result"]["serverInfo"]["name"] == "roost"


def test_a_host_that_is_not_there_is_an_error_of_each_request() -> None:
    with piped(NOWHERE) as pipe:
        for number in range(2):
            pipe.say(json.dumps(asking("initialize", opening(), number)))
            answer = pipe.hear()
            assert answer["id"] == number
            assert f"nothing answers at {NOWHERE}" in answer["error"]["message"]


def test_it_ends_with_its_client_and_tasks_do_not(server: Server, rest: Rest) -> None:
    with piped(server.url) as pipe:
        pipe.say(json.dumps(asking("initialize", opening())))
        pipe.hear()
        pipe.say(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        pipe.say(json.dumps(asking("tools/call", {"name": "hold", "arguments": {"text": "stdin"}}, 2)))
        (task,) = eventually(lambda: rest.ok("ListTasks", {"status": "TASK_STATE_WORKING"}, "hold")["tasks"] or None)
        assert pipe.process.stdin is not None
        pipe.process.stdin.close()
        _, said = finish(pipe.process)
        assert (pipe.process.returncode, said) == (0, "")
    assert rest.get(task["id"], "hold")["status"]["state"] == "TASK_STATE_WORKING"
    server.send("release", "stdin")
    rest.until(task["id"], "hold", "COMPLETED")


def test_what_was_asked_before_stdin_ended_is_answered(server: Server) -> None:
    with piped(server.url) as pipe:
        pipe.say(json.dumps(asking("initialize", opening(), 0)))
        pipe.say(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        for number in (1, 2, 3):
            pipe.say(json.dumps(asking("tools/list", {}, number)))
        assert pipe.process.stdin is not None
        pipe.process.stdin.close()
        answers, said = finish(pipe.process)
        assert (pipe.process.returncode, said) == (0, "")
    assert {json.loads(line)["id"] for line in answers.splitlines()} == {0, 1, 2, 3}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(server: Server, number: int) -> None:
    with piped(server.url) as pipe:
        pipe.say(json.dumps(asking("initialize", opening())))
        pipe.hear()
        pipe.process.send_signal(number)
        assert pipe.process.wait(PATIENCE_S) == -number


def test_a_url_that_is_none() -> None:
    wrong = roost("mcp", "serve", "--url", "ftp://example.com")
    assert wrong.returncode == 2
    assert "--url" in wrong.stderr
