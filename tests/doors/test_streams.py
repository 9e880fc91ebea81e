"""Streams: what a client sees is the journal, in order, from wherever it asks, at whatever pace it reads."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import Any

import httpx
import pytest

from roost import Agent, asgi
from roost.doors import heartbeat, sse
from tests.doors.wire import VERSION, Door, Frame, Rest, Rpc, kind_of, sending, streams, text_of, unread
from tests.processes import Server
from tests.waiting import PATIENCE_S, eventually

FROM = "Last-Event-ID"


def kinds(frames: list[Frame]) -> list[str]:
    return [kind_of(frame.data) for frame in frames]


def applied(frames: list[Frame]) -> dict[str, Any]:
    """The task that a client has after these frames: the first is a Task."""
    task: dict[str, Any] = json.loads(json.dumps(frames[0].data["task"]))
    for frame in frames[1:]:
        if "statusUpdate" in frame.data:
            task["status"] = frame.data["statusUpdate"]["status"]
            continue
        update = frame.data["artifactUpdate"]
        known = {artifact["artifactId"]: artifact for artifact in task.setdefault("artifacts", [])}
        artifact = known.get(update["artifact"]["artifactId"])
        if artifact is None:
            task["artifacts"].append(json.loads(json.dumps(update["artifact"])))
        elif update["append"]:
            artifact["parts"].extend(update["artifact"]["parts"])
        else:
            artifact.update(update["artifact"])
    return task


def resumed(door: Door, task_id: str, agent: str, last: int) -> list[Frame]:
    return door.stream("SubscribeToTask", {"id": task_id}, agent, headers={FROM: str(last)})


@pytest.fixture
def gate(rest: Rest) -> Iterator[str]:
    """The name of a gate; open at the end, so that nothing waits there for ever."""
    name = str(uuid.uuid4())
    yield name
    rest.task(name, "release")


# Form


def test_the_first_frame_is_the_task_and_ids_count_the_events_from_there(door: Door) -> None:
    found = door.stream("SendStreamingMessage", sending("one two three"), "stream")
    assert kinds(found) == ["task", "WORKING", *["artifactUpdate"] * 3, "COMPLETED"]
    assert [frame.id for frame in found] == [1, 2, 3, 4, 5, 6]
    assert found[0].data["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert [message["parts"][0]["text"] for message in found[0].data["task"]["history"]] == ["one two three"]


def test_every_frame_of_a_json_rpc_stream_is_an_answer_to_its_request(rpc: Rpc) -> None:
    body = {"jsonrpc": "2.0", "id": "my-id", "method": "SendStreamingMessage", "params": sending("one two")}
    lines = rpc.http.send(rpc.raw(json.dumps(body).encode(), "stream")).text.split("\n")
    frames = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert len(frames) == 5
    assert {frame["id"] for frame in frames} == {"my-id"}
    assert {frame["jsonrpc"] for frame in frames} == {"2.0"}


def test_both_bindings_stream_the_same_events(rest: Rest, rpc: Rpc) -> None:
    task = rest.stream("SendStreamingMessage", sending("one two three"), "stream")[0].data["task"]
    assert resumed(rest, task["id"], "stream", 1) == resumed(rpc, task["id"], "stream", 1)


def test_lines_end_with_lf_and_nothing_buffers(door: Door) -> None:
    response = door.call("SendStreamingMessage", sending("a\r\nb\rc\nd"), "stream")
    assert b"\r" not in response.content
    assert response.content.endswith(b"\n\n")
    assert all(block.count(b"\n") == 1 for block in response.content.split(b"\n\n")[:-1])
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"


def test_every_artifact_update_says_whether_it_appends(door: Door) -> None:
    found = door.stream("SendStreamingMessage", sending("one two three"), "stream")
    said = [frame.data["artifactUpdate"]["append"] for frame in found if "artifactUpdate" in frame.data]
    assert said == [False, True, True]


def test_the_events_applied_to_the_first_task_give_the_last_one(door: Door) -> None:
    found = door.stream("SendStreamingMessage", sending("one two three four"), "stream")
    last = door.get(found[0].data["task"]["id"], "stream")
    mine = applied(found)
    assert (mine["status"], mine["artifacts"]) == (last["status"], last["artifacts"])


def test_a_direct_reply_is_the_only_frame_and_has_no_id(door: Door) -> None:
    params = sending()
    params["message"]["messageId"] = f"tck-message-response-{uuid.uuid4()}"
    (frame,) = door.stream("SendStreamingMessage", params, "tck")
    assert (frame.id, kind_of(frame.data)) == (None, "message")


def test_history_length_trims_the_first_task(door: Door) -> None:
    params = sending("x", configuration={"historyLength": 0})
    assert "history" not in door.stream("SendStreamingMessage", params, "stream")[0].data["task"]


# Where streams end


def test_a_sending_stream_closes_at_a_question(door: Door) -> None:
    found = door.stream("SendStreamingMessage", sending("x"), "interview")
    assert kinds(found)[-1] == "INPUT_REQUIRED"
    assert found[-1].data["statusUpdate"]["status"]["message"]["parts"] == [{"text": "Your name?"}]


def test_a_stream_that_an_answer_begins_goes_on_where_the_question_was(door: Door, gate: str) -> None:
    """Its first Task holds what its id says, and nothing of the events that follow."""
    door.task(gate, "release")
    first = door.stream("SendStreamingMessage", sending(gate), "interview")
    task_id = first[0].data["task"]["id"]
    second = door.stream("SendStreamingMessage", sending("Ada", taskId=task_id), "interview")
    assert second[0].id == (first[-1].id or 0) + 1
    opening = second[0].data["task"]
    assert (opening["status"]["state"], text_of(opening)) == ("TASK_STATE_WORKING", "Welcome. ")
    assert [frame.id for frame in second[1:]] == [6, 7]
    assert text_of(applied(second)) == "Welcome. Hello, Ada. "
    third = door.stream("SendStreamingMessage", sending("Blue", taskId=task_id), "interview")
    assert text_of(third[0].data["task"]) == "Welcome. Hello, Ada. "
    assert text_of(applied(third)) == text_of(door.get(task_id, "interview")) == "Welcome. Hello, Ada. Blue, then."


def test_the_first_task_of_a_stream_never_holds_what_is_not_committed(door: Door) -> None:
    """However fast the agent is: the journal's own view as of that id is the same."""
    for _ in range(10):
        asked = door.task("hi", "ask")
        first, *tail = door.stream("SendStreamingMessage", sending("Ada", taskId=asked["id"]), "ask")
        again, *tail_again = resumed(door, asked["id"], "ask", first.id or 0)
        assert first.data == again.data
        assert tail == tail_again
        assert text_of(applied([first, *tail])) == "Nice to meet you, Ada!"


def test_a_sending_stream_stays_open_while_authorization_is_required(door: Door, rest: Rest) -> None:
    with door.open("SendStreamingMessage", sending(), "login") as stream:
        found = [next(stream), next(stream), next(stream)]
        assert kinds(found)[-1] == "AUTH_REQUIRED"
        rest.task("token", "login", taskId=found[0].data["task"]["id"])
        assert kinds(list(stream)) == ["WORKING", "artifactUpdate", "COMPLETED"]


def test_a_subscription_stays_open_through_questions_and_closes_at_the_end(
    door: Door, rest: Rest, rpc: Rpc, gate: str
) -> None:
    asked = door.task(gate, "interview")
    with door.open("SubscribeToTask", {"id": asked["id"]}, "interview") as stream:
        first = next(stream)
        assert first.data["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        rest.begin("Ada", "interview", taskId=asked["id"])
        assert kinds([next(stream), next(stream)]) == ["WORKING", "artifactUpdate"]
        rest.task(gate, "release")
        assert kind_of(next(stream).data) == "INPUT_REQUIRED"
        rpc.task("Blue", "interview", taskId=asked["id"])
        assert kinds(list(stream)) == ["WORKING", "artifactUpdate", "COMPLETED"]


def test_a_subscription_that_begins_while_an_answered_task_works_sees_it_through(
    door: Door, rest: Rest, gate: str
) -> None:
    asked = door.task(gate, "interview")
    rest.begin("Ada", "interview", taskId=asked["id"])
    with door.open("SubscribeToTask", {"id": asked["id"]}, "interview") as stream:
        assert next(stream).data["task"]["status"]["state"] == "TASK_STATE_WORKING"
        rest.task(gate, "release")
        found = next(stream)
        if kind_of(found.data) == "artifactUpdate":
            found = next(stream)
        assert kind_of(found.data) == "INPUT_REQUIRED"


def test_cancel_of_a_task_that_was_answered_ends_its_streams(door: Door, rest: Rest, gate: str) -> None:
    asked = door.task(gate, "interview")
    rest.begin("Ada", "interview", taskId=asked["id"])
    with door.open("SubscribeToTask", {"id": asked["id"]}, "interview") as stream:
        assert kind_of(next(stream).data) == "task"
        assert door.ok("CancelTask", {"id": asked["id"]}, "interview")["status"]["state"] == "TASK_STATE_CANCELED"
        assert kinds(list(stream))[-1] == "CANCELED"


@pytest.mark.parametrize(("agent", "state"), [("boom", "FAILED"), ("reject", "REJECTED"), ("hello", "COMPLETED")])
def test_a_stream_closes_at_every_end(door: Door, agent: str, state: str) -> None:
    assert kinds(door.stream("SendStreamingMessage", sending(), agent))[-1] == state


def test_a_cancelled_task_ends_its_streams(door: Door, rest: Rest) -> None:
    with door.open("SendStreamingMessage", sending(str(uuid.uuid4())), "hold") as stream:
        task_id = next(stream).data["task"]["id"]
        rest.ok("CancelTask", {"id": task_id}, "hold")
        assert kinds(list(stream))[-1] == "CANCELED"


def test_a_finished_task_cannot_be_subscribed_to(door: Door) -> None:
    task = door.task()
    problem = door.refused("SubscribeToTask", {"id": task["id"]})
    assert problem.reason == "UNSUPPORTED_OPERATION"
    assert FROM in problem.message


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_subscribe_is_served_by_get_and_by_post(rest: Rest, method: str) -> None:
    """The proto says GET, the specification's text says POST."""
    asked = rest.task("hi", "ask")
    request = rest.http.build_request(method, f"{rest.base}/agents/ask/tasks/{asked['id']}:subscribe", headers=VERSION)
    response = rest.http.send(request, stream=True)
    with closing(response):
        assert response.headers["content-type"] == "text/event-stream"
        assert b'"task":' in next(response.iter_raw())


# Resuming


@pytest.mark.parametrize("agent", ["stream", "hello", "boom"])
def test_a_finished_stream_resumes_at_every_position_with_its_tail(door: Door, agent: str) -> None:
    whole = door.stream("SendStreamingMessage", sending("one two three four five"), agent)
    task_id = whole[0].data["task"]["id"]
    final = door.get(task_id, agent)
    for index, frame in enumerate(whole, 1):
        assert frame.id is not None
        first, *tail = resumed(door, task_id, agent, frame.id)
        assert first.id is None
        assert kind_of(first.data) == "task"
        assert tail == whole[index:]
        mine = applied([first, *tail])
        assert (mine["status"], mine.get("artifacts")) == (final["status"], final.get("artifacts"))


def test_a_stream_with_questions_resumes_at_every_position_with_its_tail(door: Door, gate: str) -> None:
    door.task(gate, "release")
    asked = door.task(gate, "interview")
    with door.open("SubscribeToTask", {"id": asked["id"]}, "interview", headers={FROM: "1"}) as stream:
        first = next(stream)
        found = [next(stream) for _ in range(3)]
        door.task("Ada", "interview", taskId=asked["id"])
        door.task("Blue", "interview", taskId=asked["id"])
        found += list(stream)
    assert first.data["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert [frame.id for frame in found] == list(range(2, len(found) + 2))
    final = door.get(asked["id"], "interview")
    assert text_of(final) == "Welcome. Hello, Ada. Blue, then."
    for index, frame in enumerate(found, 1):
        assert frame.id is not None
        begin, *tail = resumed(door, asked["id"], "interview", frame.id)
        assert tail == found[index:]
        assert applied([begin, *tail])["artifacts"] == final["artifacts"]


def test_a_running_stream_resumes_at_every_position_without_a_gap_or_a_repeat(
    door: Door, server: Server, gate: str
) -> None:
    with door.open("SendStreamingMessage", sending(gate), "hold") as stream:
        whole = [next(stream) for _ in range(5)]
        task_id = whole[0].data["task"]["id"]
        with ThreadPoolExecutor(len(whole)) as pool, ExitStack() as clients:
            begun = []
            for frame in whole:
                http = clients.enter_context(httpx.Client(timeout=PATIENCE_S))
                other = type(door)(http, server.url)
                begun.append(pool.submit(resumed, other, task_id, "hold", frame.id or 0))
            eventually(lambda: streams(door.http, server.url) == 1 + len(whole))
            door.task(gate, "release")
            whole += list(stream)
            tails = [future.result() for future in begun]
    assert [frame.id for frame in whole] == list(range(1, 10))
    for index, (first, *tail) in enumerate(tails, 1):
        assert first.id is None
        assert tail == whole[index:]
        assert text_of(applied([first, *tail])) == "one two three four five six"


def test_the_task_that_a_resumed_stream_begins_with_is_as_old_as_the_position(door: Door) -> None:
    whole = door.stream("SendStreamingMessage", sending("one two three"), "stream")
    task_id = whole[0].data["task"]["id"]
    texts = [text_of(resumed(door, task_id, "stream", position)[0].data["task"]) for position in range(1, 7)]
    assert texts == ["", "", "one ", "one two ", "one two three", "one two three"]


def test_a_position_beyond_the_end_is_refused(door: Door) -> None:
    whole = door.stream("SendStreamingMessage", sending("one"), "stream")
    task = {"id": whole[0].data["task"]["id"]}
    assert [frame.id for frame in resumed(door, task["id"], "stream", len(whole))] == [None]
    problem = door.refused("SubscribeToTask", task, "stream", headers={FROM: str(len(whole) + 1)})
    assert (problem.reason, problem.fields) == ("INVALID_PARAMS", [FROM])
    assert f"1 to {len(whole)}" in problem.message


def test_a_long_stream_resumes_in_its_middle(door: Door) -> None:
    """Longer than what is kept in memory, and than a page of what is read from the store."""
    whole = door.stream("SendStreamingMessage", sending("1500 10"), "flood")
    assert [frame.id for frame in whole] == list(range(1, 1504))
    for position in (1, 255, 256, 257, 1023, 1024, 1025, 1502):
        assert resumed(door, whole[0].data["task"]["id"], "flood", position)[1:] == whole[position:]


# Many readers


def test_parallel_streams_get_the_same_events_in_the_same_order(
    door: Door, rest: Rest, server: Server, gate: str
) -> None:
    task = rest.begin(gate, "hold")
    eventually(lambda: len(rest.get(task["id"], "hold").get("artifacts", [{"parts": []}])[0]["parts"]) == 3)
    with ThreadPoolExecutor(8) as pool, ExitStack() as clients:
        futures = []
        for number in range(8):
            http = clients.enter_context(httpx.Client(timeout=PATIENCE_S))
            other: Door = (Rest, Rpc)[number % 2](http, server.url)
            futures.append(pool.submit(other.stream, "SubscribeToTask", {"id": task["id"]}, "hold"))
        eventually(lambda: streams(door.http, server.url) == 8)
        rest.task(gate, "release")
        found = [future.result() for future in futures]
    assert all(stream == found[0] for stream in found)
    assert kinds(found[0]) == ["task", *["artifactUpdate"] * 3, "COMPLETED"]


def test_closing_one_stream_leaves_the_others_alone(door: Door, rest: Rest, server: Server, gate: str) -> None:
    with door.open("SendStreamingMessage", sending(gate), "hold") as stream:
        task_id = next(stream).data["task"]["id"]
        with httpx.Client() as http:
            response = http.send(
                Rest(http, server.url).request("SubscribeToTask", {"id": task_id}, "hold"), stream=True
            )
            assert response.status_code == 200
            response.close()
        rest.task(gate, "release")
        assert kinds(list(stream))[-1] == "COMPLETED"


def test_a_reader_that_does_not_read_holds_up_nobody_and_misses_nothing(door: Door, rest: Rest, server: Server) -> None:
    """8 MB are streamed to a socket that takes a few kB: the task ends, others are served, then it reads it all."""
    context = str(uuid.uuid4())
    request = door.request("SendStreamingMessage", sending("2000 4096", contextId=context), "flood")
    with unread(request) as slow:
        ended = {"contextId": context, "status": "TASK_STATE_COMPLETED"}
        (task,) = eventually(lambda: rest.ok("ListTasks", ended, "flood")["tasks"])
        assert rest.http.get(f"{server.url}/agents/flood/.well-known/agent-card.json").status_code == 200
        assert rest.task("you")["status"]["state"] == "TASK_STATE_COMPLETED"
        assert kinds(door.stream("SendStreamingMessage", sending("a b"), "stream"))[-1] == "COMPLETED"
        assert streams(rest.http, server.url) == 1
        seen = [door.unwrap(frame.data) for frame in slow()]
    assert seen[0]["task"]["id"] == task["id"]
    pieces = [data["artifactUpdate"]["artifact"]["parts"][0]["text"] for data in seen if "artifactUpdate" in data]
    assert pieces == [f"{number} ".ljust(4096, ".") for number in range(2000)]
    assert kind_of(seen[-1]) == "COMPLETED"


# Signs of life


async def test_a_silent_stream_gets_a_comment_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host runs in this process, where the heartbeat interval can be made short."""
    monkeypatch.setattr(heartbeat, "IDLE_S", 0.03)
    gate = asyncio.Event()
    agent = Agent("quiet")

    @agent.on_message
    async def wait(task: Any) -> str:
        await gate.wait()
        return "done"

    host = asgi(agent)
    chunks: list[bytes] = []
    comments = asyncio.Event()
    body = json.dumps(sending()).encode()
    requests = iter([{"type": "http.request", "body": body, "more_body": False}])

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
        serving = asyncio.create_task(host(_scope("/agents/quiet/message:stream"), receive, send))
        async with asyncio.timeout(PATIENCE_S):
            await comments.wait()
            gate.set()
            await serving
    finally:
        await host.close()
    text = b"".join(chunks)
    assert sse.KEEP_ALIVE.startswith(b":")
    blocks = text.replace(sse.KEEP_ALIVE, b"").split(b"\n\n")[:-1]
    assert [int(block.split(b"\n")[0].removeprefix(b"id: ")) for block in blocks] == [1, 2, 3, 4]
    assert b"TASK_STATE_COMPLETED" in blocks[-1]


def _scope(path: str) -> dict[str, Any]:
    headers = [(b"host", b"localhost"), (b"a2a-version", b"1.0"), (b"content-type", b"application/json")]
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
    }
