"""The end of a call that is cancelled, abandoned, answered at another door, or overtaken by the end of the host."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx
import mcp_types as mcp
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.doors import serving
from tests.doors.wire import Rest, streams, text_of
from tests.mcp_door.clients import (
    AGENTS,
    Progress,
    accepted,
    connected,
    data,
    each_version,
    never,
    open_gate,
    task_of,
    text,
)
from tests.mcp_door.raw import Session, asking
from tests.processes import Server, running
from tests.waiting import PATIENCE_S, eventually


async def until(rest: Rest, task_id: str, agent: str, state: str) -> dict[str, Any]:
    return await asyncio.to_thread(rest.until, task_id, agent, state)


async def newest(client: Client, agent: str) -> str:
    listed = await client.call_tool("list_tasks", {"agent": agent, "limit": 1})
    found: str = data(listed)["tasks"][0]["taskId"]
    return found


def working(rest: Rest, agent: str) -> dict[str, Any]:
    """The one task of the agent that is at work."""
    (found,) = eventually(lambda: rest.ok("ListTasks", {"status": "TASK_STATE_WORKING"}, agent)["tasks"] or None)
    task: dict[str, Any] = found
    return task


def all_streams_end(server: Server) -> None:
    with httpx.Client(timeout=PATIENCE_S) as http:
        eventually(lambda: streams(http, server.url) == 0 or None)


# Cancellation


@each_version
async def test_a_call_that_is_cancelled_cancels_its_task(server: Server, rest: Rest, mode: str) -> None:
    progress = Progress()
    async with connected(server.url, mode) as client:
        call = asyncio.ensure_future(client.call_tool("plodder", {"text": "?"}, progress_callback=progress))
        await progress.wait_for("begun")
        task_id = await newest(client, "plodder")
        call.cancel()
        await until(rest, task_id, "plodder", "CANCELED")
    all_streams_end(server)


@each_version
async def test_a_call_that_is_cancelled_at_a_question_cancels_its_task(server: Server, rest: Rest, mode: str) -> None:
    """In the version without sessions a call ends when the agent asks, so only the task can be cancelled."""
    asked = asyncio.Event()
    async with connected(server.url, mode, elicitation_callback=never(asked)) as client:
        call = asyncio.ensure_future(client.call_tool("interview", {"text": "?"}))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        task_id = await newest(client, "interview")
        call.cancel()
        if mode != "legacy":
            assert rest.get(task_id, "interview")["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            await client.call_tool("cancel_task", {"taskId": task_id})
        await until(rest, task_id, "interview", "CANCELED")
    all_streams_end(server)


async def test_a_call_is_cancelled_however_early(server: Server, rest: Rest) -> None:
    """The cancel follows the call at once: it finds the message still on its way in, or the task."""
    with Session(server.url) as session:
        for number in range(20):
            with session.sent("tools/call", {"name": "plodder", "arguments": {"text": "?"}}, number) as answer:
                session.tell("notifications/cancelled", {"requestId": number})
                assert session.answer(answer, number)["error"]["message"] == "Request cancelled"

    def none_works() -> bool | None:
        found = rest.ok("ListTasks", {"status": "TASK_STATE_WORKING"}, "plodder")
        return found["totalSize"] == 0 or None

    await asyncio.to_thread(eventually, none_works)
    all_streams_end(server)


def test_an_id_is_taken_until_its_call_is_over(server: Server, rest: Rest) -> None:
    """Nobody could tell the answers of two such calls apart, or say which of them is cancelled."""
    params = {"name": "plodder", "arguments": {"text": "?"}}
    with Session(server.url) as session, session.sent("tools/call", params, 1) as answer:
        task = working(rest, "plodder")
        for taken in (1, "1"):
            refused = session.http.post(session.url, json=asking("tools/call", params, taken))
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)
        assert working(rest, "plodder")["id"] == task["id"]
        session.tell("notifications/cancelled", {"requestId": "1"})
        assert session.answer(answer, 1)["error"]["message"] == "Request cancelled"
        rest.until(task["id"], "plodder", "CANCELED")
    all_streams_end(server)


def test_a_user_at_the_unix_socket_cancels_what_is_theirs(server: Server, socket: Path) -> None:
    def states() -> list[str]:
        tasks = session.call("list_tasks", {"agent": "plodder"})["structuredContent"]["tasks"]
        return [task["state"] for task in tasks]

    with Session("http://localhost", socket=socket) as session:
        with session.sent("tools/call", {"name": "plodder", "arguments": {"text": "?"}}, 1) as answer:
            eventually(lambda: states() == ["working"] or None)
            session.tell("notifications/cancelled", {"requestId": 1})
            assert session.answer(answer, 1)["error"]["message"] == "Request cancelled"
        eventually(lambda: states() == ["canceled"] or None)
        at_the_port = httpx.post(f"{server.url}/mcp", json=asking("ping", {}), headers=session.http.headers)
        assert (at_the_port.status_code, at_the_port.json()["error"]["message"]) == (404, "Session not found")


# Left alone


def test_a_task_goes_on_without_the_session_that_began_it(server: Server, rest: Rest) -> None:
    with Session(server.url) as session:
        arguments = {"name": "hold", "arguments": {"text": "left"}}
        with session.sent("tools/call", arguments, 1):
            task = working(rest, "hold")
        session.end()
    all_streams_end(server)
    assert rest.get(task["id"], "hold")["status"]["state"] == "TASK_STATE_WORKING"
    server.send("release", "left")
    assert text_of(rest.until(task["id"], "hold", "COMPLETED")) == "one two three four five six"


def test_a_connection_that_drops_is_no_cancel_where_there_are_sessions(server: Server, rest: Rest) -> None:
    with Session(server.url) as session:
        arguments = {"name": "hold", "arguments": {"text": "dropped"}}
        with session.sent("tools/call", arguments, 1):
            task = working(rest, "hold")
        read = session.call("get_task", {"taskId": task["id"]})
        assert read["structuredContent"]["state"] == "working"
        server.send("release", "dropped")
        rest.until(task["id"], "hold", "COMPLETED")


# Answered elsewhere


async def test_a_question_that_somebody_else_answers_is_not_asked_any_more(server: Server, rest: Rest) -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def answer(context: Any, params: mcp.ElicitRequestParams) -> mcp.ElicitResult:
        if params.message == "Your color?":
            second.set()
            return accepted("green")
        first.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with connected(server.url, elicitation_callback=answer) as client:
        call = asyncio.ensure_future(client.call_tool("interview", {"text": "elsewhere"}))
        await asyncio.wait_for(first.wait(), PATIENCE_S)
        task_id = await newest(client, "interview")
        await open_gate(server, "elsewhere")
        await asyncio.to_thread(server.send, "interview", "Bob", task=task_id, wait=False)
        result = await call
    assert second.is_set()
    assert text(result) == "Welcome. Hello, Bob. green, then."
    all_streams_end(server)


async def test_a_task_that_is_cancelled_elsewhere_at_its_question(server: Server, rest: Rest) -> None:
    asked = asyncio.Event()
    async with connected(server.url, elicitation_callback=never(asked)) as client:
        call = asyncio.ensure_future(client.call_tool("interview", {"text": "?"}))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        rest.ok("CancelTask", {"id": await newest(client, "interview")}, "interview")
        result = await call
    assert result.is_error
    assert data(result)["state"] == "canceled"
    all_streams_end(server)


async def test_an_answer_that_is_sent_twice_is_taken_once(server: Server) -> None:
    """A client of the version without sessions that lost the result sends its answer again."""
    await open_gate(server, "twice")
    async with connected(server.url, "2026-07-28", elicitation_callback=lambda *_: None) as client:
        session = client.session
        first = await session.call_tool("interview", {"text": "twice"}, allow_input_required=True)
        assert isinstance(first, mcp.InputRequiredResult)
        given: Any = {"input_responses": {"answer": accepted("Ann")}, "request_state": first.request_state}
        answers = [
            await session.call_tool("interview", {"text": "twice"}, allow_input_required=True, **given)
            for _ in range(2)
        ]
        assert all(isinstance(answer, mcp.InputRequiredResult) for answer in answers)
        assert answers[0] == answers[1]
        wrong = await session.call_tool(
            "interview", {"text": "twice"}, allow_input_required=True, request_state="nothing"
        )
        assert isinstance(wrong, mcp.CallToolResult)
        assert wrong.is_error
        assert "requestState" in text(wrong)


# The host ends


@each_version
async def test_a_host_that_is_stopped_says_that_the_task_goes_on(tmp_path: Path, mode: str) -> None:
    progress = Progress()
    with serving.running(serving.AGENTS, AGENTS, data=tmp_path, args=("--drain-s", "5")) as server:
        async with connected(server.url, mode) as client:
            await client.list_tools()  # so that the client need not ask a host that ends what a result is like
            call = asyncio.ensure_future(client.call_tool("hold", {"text": "?"}, progress_callback=progress))
            await progress.wait_for("three")
            server.process.send_signal(signal.SIGTERM)
            result = await call
            assert data(result)["state"] == "working"
            assert "get_task" in text(result)
            await asyncio.to_thread(server.process.wait, PATIENCE_S)
    assert "Traceback" not in server.stderr
    with serving.healthy(serving.AGENTS, AGENTS, data=tmp_path) as server:
        async with connected(server.url, mode) as client:
            assert data(await client.call_tool("get_task", {"taskId": task_of(result)}))["state"] == "working"
            await open_gate(server, "?")
            with httpx.Client(timeout=PATIENCE_S) as http:
                task = await until(Rest(http, server.url), task_of(result), "hold", "COMPLETED")
            assert text_of(task) == "one two three four five six"


async def test_a_session_ends_with_its_host_and_tasks_do_not(tmp_path: Path) -> None:
    with running(serving.AGENTS, data=tmp_path, args=("--drain-s", "0")) as server:
        async with connected(server.url) as client:
            asked = await client.call_tool("interview", {"text": "again"})
            server.kill()
            with serving.healthy(serving.AGENTS, data=tmp_path, port=server.port) as back:
                with pytest.raises(MCPError, match="Session not found"):
                    await client.list_tools()
                async with connected(back.url) as again:
                    await open_gate(back, "again")
                    answered = await again.call_tool("interview", {"text": "Ann", "taskId": task_of(asked)})
                    assert data(answered)["message"] == "Your color?"


async def test_a_client_without_sessions_does_not_notice_a_new_host(tmp_path: Path) -> None:
    with running(serving.AGENTS, data=tmp_path, args=("--drain-s", "0")) as server:
        async with connected(server.url, "2026-07-28") as client:
            asked = await client.call_tool("interview", {"text": "again"})
            server.kill()
            with serving.healthy(serving.AGENTS, data=tmp_path, port=server.port) as back:
                await open_gate(back, "again")
                answered = await client.call_tool("interview", {"text": "Ann", "taskId": task_of(asked)})
                assert not answered.is_error
