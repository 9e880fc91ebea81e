"""Problems that users of other A2A servers reported. Each test shows that this host does not have the problem.

A docstring names the report. Reports about webhooks, gRPC, replicas and OpenAI are covered by the tests of these areas.
"""

from __future__ import annotations

import json
import re
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.doors.serving import AGENTS, free_port, healthy
from tests.doors.wire import VERSION, Door, Frame, Rest, Rpc, kind_of, metrics, sending, streams, text_of, unread
from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S, eventually

CARD = "/.well-known/agent-card.json"
WORDS = "one two three four five six"


@pytest.fixture
def gate() -> str:
    return str(uuid.uuid4())


def kinds(frames: list[Frame]) -> list[str]:
    return [kind_of(frame.data) for frame in frames]


# Streams


def test_events_between_a_disconnect_and_a_resubscribe_are_not_lost(door: Door, rest: Rest, gate: str) -> None:
    """a2a-python #832, A2A #1635."""
    with door.open("SendStreamingMessage", sending(gate), "hold") as stream:
        seen = [next(stream) for _ in range(3)]
    task_id = seen[0].data["task"]["id"]
    rest.task(gate, "release")
    door.until(task_id, "hold", "COMPLETED")
    _, *tail = door.stream("SubscribeToTask", {"id": task_id}, "hold", headers={"Last-Event-ID": str(seen[-1].id)})
    assert [frame.id for frame in (*seen, *tail)] == list(range(1, 10))
    pieces = [frame.data["artifactUpdate"] for frame in (*seen, *tail) if "artifactUpdate" in frame.data]
    assert "".join(piece["artifact"]["parts"][0]["text"] for piece in pieces) == WORDS


def test_events_before_a_crash_are_not_lost(http: httpx.Client, tmp_path: Path) -> None:
    """a2a-python #832: kill -9 loses no event either, and the ids stay the same."""
    with running(FLEET, AGENTS, data=tmp_path) as host:
        rest = Rest(http, host.url)
        whole = rest.stream("SendStreamingMessage", sending("one two three"), "stream")
        host.kill()
        port = host.port
    with healthy(data=tmp_path, port=port) as host:
        for door in (Rest(http, host.url), Rpc(http, host.url)):
            task = {"id": whole[0].data["task"]["id"]}
            resumed = door.stream("SubscribeToTask", task, "stream", headers={"Last-Event-ID": "2"})
            assert resumed[1:] == whole[2:]


def test_a_subscriber_that_does_not_read_freezes_nothing(door: Door, rest: Rest, server: Server) -> None:
    """a2a-python #1101, #1136: one such client stopped the whole server, the card route too."""
    context = str(uuid.uuid4())
    request = door.request("SendStreamingMessage", sending("1000 4096", contextId=context), "flood")
    with unread(request) as slow:
        ended = {"contextId": context, "status": "TASK_STATE_COMPLETED"}
        assert eventually(lambda: rest.ok("ListTasks", ended, "flood")["tasks"])
        assert streams(rest.http, server.url) == 1
        assert rest.http.get(f"{server.url}/agents/flood{CARD}").status_code == 200
        assert rest.http.get(f"{server.url}/readyz").status_code == 200
        assert rest.task("you")["status"]["state"] == "TASK_STATE_COMPLETED"
        assert len(slow()) == 1003


def test_a_streamed_answer_is_not_a_store_write_for_every_piece(rest: Rest, server: Server) -> None:
    """a2a-python #494: over 100 writes for one answer. Here 1,000 pieces take a few group commits."""

    def commits() -> float:
        return metrics(rest.http, server.url)["roost_commit_seconds_count", frozenset()]

    before = commits()
    assert text_of(rest.task("1000 10", "flood")).count(".") > 0
    assert commits() - before < 100


def test_work_in_the_background_still_emits(door: Door) -> None:
    """a2a-python #471: the queue was closed while workers were still emitting."""
    found = door.stream("SendStreamingMessage", sending(), "workers")
    pieces = [frame.data["artifactUpdate"] for frame in found if "artifactUpdate" in frame.data]
    emitted = "".join(piece["artifact"]["parts"][0]["text"] for piece in pieces).split()
    assert sorted(emitted) == sorted(f"{worker}:{number}" for worker in range(5) for number in range(20))
    assert kinds(found)[-1] == "COMPLETED"


def test_work_that_outlives_its_task_changes_nothing(door: Door, rest: Rest, gate: str) -> None:
    """a2a-python #471, the reverse: an emission after the end is refused, and the host keeps running."""
    task = door.task(gate, "leaver")
    assert (task["status"]["state"], text_of(task)) == ("TASK_STATE_COMPLETED", "in time")
    rest.task(gate, "release")
    assert rest.task("you")["status"]["state"] == "TASK_STATE_COMPLETED"
    assert door.get(task["id"], "leaver") == task


def test_no_stream_is_left_without_its_last_event(door: Door, rest: Rest) -> None:
    """protolabs: terminal frames were lost, so that clients showed "working" for ever.

    A client may subscribe at any moment of a task that is about to end: it is over already, or the last event arrives.
    """
    ends = []
    for _ in range(50):
        task = rest.begin("a b c", "stream")
        response = door.http.send(door.request("SubscribeToTask", {"id": task["id"]}, "stream"))
        if response.headers["content-type"] == "text/event-stream":
            ends.append(b"TASK_STATE_COMPLETED" in response.content.split(b"\n\n")[-2])
        else:
            ends.append(door.problem(response).reason == "UNSUPPORTED_OPERATION")
    assert ends == [True] * 50


def test_lines_of_a_stream_end_with_lf(door: Door) -> None:
    """protolabs: lines of SSE ended with CRLF."""
    response = door.call("SendStreamingMessage", sending("a\r\nb"), "stream")
    assert b"\r" not in response.content
    assert b"\n\n" in response.content


def test_an_update_always_says_whether_it_appends(door: Door) -> None:
    """protolabs: an absent `append` was read as true, so that artifacts were duplicated."""
    found = door.stream("SendStreamingMessage", sending("one two"), "stream")
    updates = [frame.data["artifactUpdate"] for frame in found if "artifactUpdate" in frame.data]
    assert [update["append"] for update in updates] == [False, True]


def test_a_client_that_lost_frames_can_repair_its_artifact(door: Door) -> None:
    """protolabs: lost append frames left truncated artifacts.

    The ids show the gap, the stream can be resumed before it, and the task has the whole text.
    """
    found = door.stream("SendStreamingMessage", sending("one two three four"), "stream")
    task_id = found[0].data["task"]["id"]
    kept = [frame for frame in found if frame.id not in (4, 5)]
    gaps = [a.id for a, b in pairwise(kept) if (b.id or 0) != (a.id or 0) + 1]
    assert gaps == [3]
    again = door.stream("SubscribeToTask", {"id": task_id}, "stream", headers={"Last-Event-ID": "3"})
    assert again[1:] == found[3:]
    assert text_of(door.get(task_id, "stream")) == "one two three four"


def test_stalled_agents_do_not_exhaust_the_host(door: Door, rest: Rest, server: Server, gate: str) -> None:
    """protolabs: a stalled agent took all connections. Here waiting connections do not affect other clients."""
    with ExitStack() as opened, httpx.Client(timeout=PATIENCE_S, limits=httpx.Limits(max_connections=None)) as many:
        waiting = type(door)(many, server.url)
        begun = [opened.enter_context(waiting.open("SendStreamingMessage", sending(gate), "hold")) for _ in range(30)]
        assert [kind_of(next(stream).data) for stream in begun] == ["task"] * 30
        assert streams(rest.http, server.url) == 30
        assert rest.task("you")["status"]["state"] == "TASK_STATE_COMPLETED"
        rest.task(gate, "release")
    eventually(lambda: streams(rest.http, server.url) == 0)


def test_an_agent_that_blocks_a_thread_does_not_block_the_host(door: Door, rest: Rest, gate: str) -> None:
    """protolabs: synchronous calls blocked the event loop. Here a plain function runs in its own thread."""
    tasks = [door.begin(gate, "blocking") for _ in range(3)]
    for task in tasks:
        eventually(lambda task=task: text_of(door.get(task["id"], "blocking")) == "begun")
    assert rest.task("you")["status"]["state"] == "TASK_STATE_COMPLETED"
    rest.task(gate, "release")
    for task in tasks:
        assert text_of(door.until(task["id"], "blocking", "COMPLETED")) == "begun and ended"


# Sending


def test_a_non_blocking_send_returns_while_the_agent_works(door: Door, rest: Rest, gate: str) -> None:
    """a2a-tck #217: servers passed that ignored it. Here the agent cannot end before the response arrives."""
    task = door.begin(gate, "hold")
    assert task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    rest.task(gate, "release")
    assert text_of(door.until(task["id"], "hold", "COMPLETED")) == WORDS


def test_a_non_blocking_send_does_not_wait_for_the_load(door: Door, rest: Rest, server: Server, gate: str) -> None:
    """a2a-python #253: it blocked for seconds while others were served."""
    with ThreadPoolExecutor(20) as pool, httpx.Client(timeout=PATIENCE_S, limits=httpx.Limits()) as many:
        busy = type(door)(many, server.url)
        others = [pool.submit(busy.task, gate, "hold") for _ in range(20)]
        tasks = [door.begin(gate, "hold") for _ in range(20)]
        assert not any(other.done() for other in others)
        rest.task(gate, "release")
        assert [text_of(other.result()) for other in others] == [WORDS] * 20
    for task in tasks:
        assert text_of(door.until(task["id"], "hold", "COMPLETED")) == WORDS


def test_a_client_that_gives_up_waiting_does_not_end_its_task(
    door: Door, rest: Rest, server: Server, gate: str
) -> None:
    """protolabs: a blocking send exceeded a client's 30 s timeout. The task continues and can be found and read."""
    for seconds in (0.2, 2, PATIENCE_S):  # a host that has not read the message yet is given longer
        context = str(uuid.uuid4())
        limits = httpx.Timeout(PATIENCE_S, read=seconds)
        with httpx.Client(timeout=limits) as impatient, pytest.raises(httpx.ReadTimeout):
            type(door)(impatient, server.url).task(gate, "hold", contextId=context)
        if tasks := rest.ok("ListTasks", {"contextId": context}, "hold")["tasks"]:
            break
    (task,) = tasks
    rest.task(gate, "release")
    assert text_of(door.until(task["id"], "hold", "COMPLETED")) == WORDS


def test_a_reconnect_cannot_send_a_message_twice(door: Door) -> None:
    """A2A #1987, #928: a message sent twice made two tasks.

    Without an idempotency key two sends make two tasks. But an EventSource that reconnects by itself, with the id of
    the last event, is refused and does not make a second task.
    """
    context = str(uuid.uuid4())
    params = sending("one", contextId=context)
    last = door.stream("SendStreamingMessage", params, "stream")[-1].id
    problem = door.refused("SendStreamingMessage", params, "stream", headers={"Last-Event-ID": str(last)})
    assert problem.fields == ["Last-Event-ID"]
    assert door.ok("ListTasks", {"contextId": context}, "stream")["totalSize"] == 1


def test_a_follow_up_with_only_a_task_id_stays_in_its_context(door: Door) -> None:
    """a2a-sdk 1.3.0: it got a new contextId."""
    asked = door.task("hi", "ask")
    done = door.task("Ada", "ask", taskId=asked["id"])
    assert (done["id"], done["contextId"]) == (asked["id"], asked["contextId"])
    assert {message["contextId"] for message in done["history"]} == {asked["contextId"]}


def test_a_message_with_a_task_id_starts_no_new_task(door: Door) -> None:
    """FastA2A 2.1.1: it did."""
    context = str(uuid.uuid4())
    asked = door.task("hi", "ask", contextId=context)
    door.task("Ada", "ask", taskId=asked["id"])
    assert door.ok("ListTasks", {"contextId": context}, "ask")["totalSize"] == 1
    assert door.refused("SendMessage", sending("Bob", taskId=asked["id"]), "ask").reason == "UNSUPPORTED_OPERATION"
    assert door.refused("SendMessage", sending(taskId="unknown"), "ask").reason == "TASK_NOT_FOUND"


def test_the_metadata_of_a_request_is_kept(door: Door) -> None:
    """protolabs: it was dropped."""
    params = {**sending("x"), "metadata": {"trace": "abc"}}
    task = door.ok("SendMessage", params, "echo")["task"]
    assert task["metadata"] == {"trace": "abc"}
    assert task["artifacts"][0]["parts"][0]["data"]["metadata"] == {"trace": "abc"}
    assert door.get(task["id"], "echo")["metadata"] == {"trace": "abc"}


def test_the_first_requests_may_come_all_at_once(http: httpx.Client, tmp_path: Path) -> None:
    """a2a-sdk 1.3.0: they raced to create the table and were answered with 500."""
    with healthy(data=tmp_path) as host, ThreadPoolExecutor(16) as pool:
        doors = (Rest(http, host.url), Rpc(http, host.url))
        futures = [pool.submit(doors[number % 2].task, f"{number}") for number in range(32)]
        states = [future.result()["status"]["state"] for future in futures]
    assert states == ["TASK_STATE_COMPLETED"] * 32


def test_one_agent_serves_many_at_the_same_time(door: Door, rest: Rest, gate: str) -> None:
    """FastA2A 2.1.1: it had one serial worker."""
    tasks = [door.begin(gate, "hold") for _ in range(10)]
    for task in tasks:
        eventually(lambda task=task: text_of(door.get(task["id"], "hold")) == "one two three ")
    rest.task(gate, "release")
    for task in tasks:
        assert text_of(door.until(task["id"], "hold", "COMPLETED")) == WORDS


# Tasks


def test_a_read_does_not_truncate_what_is_stored(door: Door) -> None:
    """FastA2A 2.1.1: a read with historyLength=1 did."""
    task = door.task("Ada", "ask", taskId=door.task("hi", "ask")["id"])
    lengths = [1, 0, 1]
    reads = [door.ok("GetTask", {"id": task["id"], "historyLength": length}, "ask") for length in lengths]
    assert [len(read.get("history", [])) for read in reads] == lengths
    assert door.get(task["id"], "ask") == task
    assert len(task["history"]) == 3


def test_cancel_of_an_unknown_task_kills_nothing(door: Door) -> None:
    """FastA2A 2.1.1: it killed the worker."""
    assert door.refused("CancelTask", {"id": "unknown"}).reason == "TASK_NOT_FOUND"
    assert door.task("you")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_completed_task_stays_completed(door: Door) -> None:
    """FastA2A 2.1.1: a cancel changed it to canceled."""
    task = door.task()
    assert door.refused("CancelTask", {"id": task["id"]}).reason == "TASK_NOT_CANCELABLE"
    assert door.get(task["id"]) == task


def test_a_canceled_task_stays_canceled_whatever_its_agent_emits_afterwards(door: Door, rest: Rest, gate: str) -> None:
    """FastA2A 2.1.1, the reverse."""
    task = door.begin(gate, "hold")
    canceled = door.ok("CancelTask", {"id": task["id"]}, "hold")
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    rest.task(gate, "release")
    assert door.get(task["id"], "hold") == canceled


def test_timestamps_are_in_utc_with_a_zone(door: Door) -> None:
    """FastA2A 2.1.1: they had no zone. Section 5.6.1: milliseconds, Z."""
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
    assert form.fullmatch(door.task()["status"]["timestamp"])
    found = door.stream("SendStreamingMessage", sending("a"), "stream")
    times = [frame.data["statusUpdate"]["status"]["timestamp"] for frame in found if "statusUpdate" in frame.data]
    assert len(times) == 2
    assert all(form.fullmatch(time) for time in times)


def test_progress_does_not_fill_the_history(door: Door) -> None:
    """protolabs: hundreds of one-word history rows per turn. The stream has all 300 messages, the history none."""
    found = door.stream("SendStreamingMessage", sending(), "steps")
    messages = [frame for frame in found if frame.data.get("statusUpdate", {}).get("status", {}).get("message")]
    assert len(messages) == 300
    assert len(door.get(found[0].data["task"]["id"], "steps")["history"]) == 1


def test_turns_of_one_context_run_one_after_another(door: Door, rest: Rest) -> None:
    """protolabs: concurrent turns in one context corrupted its history."""
    context, gates = str(uuid.uuid4()), [str(uuid.uuid4()) for _ in range(3)]
    tasks = [door.begin(name, "turns", contextId=context)["id"] for name in gates]
    for index, name in enumerate(gates):
        eventually(lambda index=index: text_of(door.get(tasks[index], "turns")) == "begun")
        states = [door.get(task, "turns")["status"]["state"].removeprefix("TASK_STATE_") for task in tasks]
        assert states == ["COMPLETED"] * index + ["WORKING"] + ["SUBMITTED"] * (2 - index)
        rest.task(name, "release")
        door.until(tasks[index], "turns", "COMPLETED")


def test_only_one_of_many_concurrent_answers_is_accepted(door: Door, server: Server) -> None:
    """protolabs, the same report: the others are refused and leave no trace in the history."""
    asked = door.task("hi", "ask")
    with ThreadPoolExecutor(8) as pool, httpx.Client(timeout=PATIENCE_S) as many:
        other = type(door)(many, server.url)
        answers = [sending(f"name-{number}", taskId=asked["id"]) for number in range(8)]
        responses = list(pool.map(lambda params: other.call("SendMessage", params, "ask"), answers))
    accepted = [response for response in responses if '"error"' not in response.text]
    assert len(accepted) == 1
    done = door.result(accepted[0])["task"] if door.name == "HTTP+JSON" else accepted[0].json()["result"]["task"]
    assert len(done["history"]) == 3
    assert text_of(done) == f"Nice to meet you, {done['history'][2]['parts'][0]['text']}!"
    refused = {door.problem(response).reason for response in responses if response is not accepted[0]}
    assert refused == {"UNSUPPORTED_OPERATION"}


def test_a_queued_turn_can_be_cancelled_and_the_next_one_runs(door: Door, rest: Rest) -> None:
    """protolabs, the same report: a canceled turn in the middle must not block the turns after it."""
    context, gates = str(uuid.uuid4()), [str(uuid.uuid4()) for _ in range(3)]
    tasks = [door.begin(name, "turns", contextId=context)["id"] for name in gates]
    canceled = door.ok("CancelTask", {"id": tasks[1]}, "turns")
    assert (canceled["status"]["state"], text_of(canceled)) == ("TASK_STATE_CANCELED", "")
    for index in (0, 2):
        rest.task(gates[index], "release")
        door.until(tasks[index], "turns", "COMPLETED")
    assert door.get(tasks[1], "turns") == canceled


def test_a_question_that_nobody_answers_blocks_nobody(door: Door) -> None:
    """protolabs: human-in-the-loop deadlocked without a human. The question can be cancelled, too."""
    context = str(uuid.uuid4())
    waiting = door.task("hi", "ask", contextId=context)
    assert door.task("hi", "ask", contextId=context)["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    canceled = door.ok("CancelTask", {"id": waiting["id"]}, "ask")
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


def test_a_question_is_the_message_of_the_status_and_its_answer_resumes_the_task(door: Door) -> None:
    """kagent #2304, adk-python #5871: there was no stable payload, and the official sample was broken. This is ours."""
    asked = door.task("hi", "ask")
    status = asked["status"]
    assert status["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert (status["message"]["role"], status["message"]["parts"]) == ("ROLE_AGENT", [{"text": "What is your name?"}])
    assert (status["message"]["taskId"], status["message"]["contextId"]) == (asked["id"], asked["contextId"])
    done = door.task("Ada", "ask", taskId=asked["id"])
    assert text_of(done) == "Nice to meet you, Ada!"
    assert done["history"][1] == status["message"]


def test_an_agents_exception_ends_the_task_and_reveals_nothing(door: Door) -> None:
    """a2a-sdk 1.3.0 left such a task WORKING in some cases. Here it is FAILED, with an error id for the operator."""
    task = door.task("x", "boom")
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "hunter2" not in json.dumps(task)
    assert "Error id" in task["status"]["message"]["parts"][0]["text"]


# Crashes and deploys


def test_a_task_does_not_stay_working_after_a_crash(http: httpx.Client, tmp_path: Path, gate: str) -> None:
    """a2a-sdk 1.3.0: it stayed WORKING, and subscribe hung."""
    with running(FLEET, AGENTS, data=tmp_path) as host:
        rest = Rest(http, host.url)
        task = rest.begin(gate, "hold")
        eventually(lambda: text_of(rest.get(task["id"], "hold")) == "one two three ")
        host.kill()
        port = host.port
    with healthy(data=tmp_path, port=port) as host:
        for door in (Rest(http, host.url), Rpc(http, host.url)):
            with door.open("SubscribeToTask", {"id": task["id"]}, "hold") as stream:
                assert kind_of(next(stream).data) == "task"
        with Rest(http, host.url).open("SubscribeToTask", {"id": task["id"]}, "hold") as stream:
            next(stream)
            rest.task(gate, "release")
            assert kinds(list(stream))[-1] == "COMPLETED"
        assert text_of(rest.get(task["id"], "hold")) == WORDS


def test_a_deploy_does_not_kill_the_runs_in_flight(http: httpx.Client, tmp_path: Path, gate: str) -> None:
    """mastra #19056: after SIGTERM and a new process the task continues to its end."""
    with running(FLEET, AGENTS, data=tmp_path, args=("--drain-s", "0")) as host:
        rest = Rest(http, host.url)
        task = rest.begin(gate, "hold")
        eventually(lambda: text_of(rest.get(task["id"], "hold")) == "one two three ")
        port = host.port
        host.stop()
    with healthy(data=tmp_path, port=port):
        rest.task(gate, "release")
        assert text_of(rest.until(task["id"], "hold", "COMPLETED")) == WORDS


def test_a_stream_ends_at_a_deploy_and_resumes_where_it_was(http: httpx.Client, tmp_path: Path, gate: str) -> None:
    """mastra #19056: the client's stream is closed, not reset, and resumes at the next process."""
    with running(FLEET, AGENTS, data=tmp_path, args=("--drain-s", "0")) as host:
        rest = Rest(http, host.url)
        with rest.open("SendStreamingMessage", sending(gate), "hold") as stream:
            seen = [next(stream) for _ in range(5)]
            host.process.terminate()
            assert list(stream) == []
        port = host.port
        host.stop()
    task = {"id": seen[0].data["task"]["id"]}
    with (
        healthy(data=tmp_path, port=port),
        rest.open("SubscribeToTask", task, "hold", headers={"Last-Event-ID": str(seen[-1].id)}) as stream,
    ):
        assert text_of(next(stream).data["task"]) == "one two three "
        rest.task(gate, "release")
        tail = list(stream)
        assert [frame.id for frame in tail] == list(range(6, 6 + len(tail)))
        assert kinds(tail)[-1] == "COMPLETED"
        assert text_of(rest.get(task["id"], "hold")) == WORDS


def test_a_send_that_a_deploy_interrupts_is_answered_with_503_and_its_task_continues(
    http: httpx.Client, tmp_path: Path, gate: str
) -> None:
    """mastra #19056: the response is neither a reset connection nor 500, but 503 in the form of the binding."""
    context = str(uuid.uuid4())
    with running(FLEET, AGENTS, data=tmp_path, args=("--drain-s", "0")) as host, ThreadPoolExecutor() as pool:
        doors = (Rest(http, host.url), Rpc(http, host.url))
        calls = [pool.submit(door.call, "SendMessage", sending(gate, contextId=context), "hold") for door in doors]
        eventually(lambda: doors[0].ok("ListTasks", {"contextId": context}, "hold")["totalSize"] == 2)
        port = host.port
        host.stop()
        answers = [call.result() for call in calls]
    assert "Traceback" not in host.stderr
    for door, answer in zip(doors, answers, strict=True):
        assert door.problem(answer).reason == "UNAVAILABLE"
        assert int(answer.headers["retry-after"]) > 0
    with healthy(data=tmp_path, port=port):
        doors[0].task(gate, "release")
        for task in doors[0].ok("ListTasks", {"contextId": context}, "hold")["tasks"]:
            assert text_of(doors[0].until(task["id"], "hold", "COMPLETED")) == WORDS


# Errors


def test_bad_json_is_answered_with_an_error_in_json(door: Door) -> None:
    """FastA2A 2.1.1: the response was a plain-text 500."""
    assert door.refuses(door.raw(b"{nonsense")).reason == "INVALID_JSON"


def test_the_error_for_a_missing_version_names_the_header(door: Door) -> None:
    """protolabs: 1.0 clients without the header were refused by an error that did not say so."""
    problem = door.refused("SendMessage", sending(), headers={"A2A-Version": None})
    assert "`A2A-Version: 1.0`" in problem.message


def test_errors_are_not_answered_with_http_200(rest: Rest) -> None:
    """protolabs: they did. JSON-RPC errors do by its own rules, except those that reach no method."""
    assert rest.call("GetTask", {"id": "unknown"}).status_code == 404
    assert rest.call("SendMessage", {}).status_code == 400
    assert rest.call("SendMessage", sending(), headers={"A2A-Version": None}).status_code == 400


# Agents, cards, paths


def test_many_agents_are_served_from_one_host(server: Server, http: httpx.Client) -> None:
    """A2A #371, #221; a2a-java #898: there was no way to do so."""
    names = [agent["name"] for agent in http.get(f"{server.url}/agents/").json()["agents"]]
    assert len(names) > 10
    cards = [http.get(f"{server.url}/agents/{name}{CARD}").json() for name in names]
    assert [card["name"] for card in cards] == names
    assert len({card["supportedInterfaces"][0]["url"] for card in cards}) == len(names)


def test_client_supplied_ids_give_no_access_to_other_histories(door: Door) -> None:
    """agent-framework #7050: a session key made of client-supplied ids let one user read another's history."""
    context = str(uuid.uuid4())
    task = door.task("mine", "hello", contextId=context)
    other = door.task("theirs", "stream", contextId=context)
    assert "mine" not in json.dumps(other)
    assert [found["id"] for found in door.ok("ListTasks", {"contextId": context}, "stream")["tasks"]] == [other["id"]]
    for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
        assert door.refused(operation, {"id": task["id"]}, "stream").reason == "TASK_NOT_FOUND"
    assert door.refused("SendMessage", sending(taskId=task["id"]), "stream").reason == "TASK_NOT_FOUND"


def test_a_card_behind_a_proxy_names_no_inner_host_and_doubles_no_path(http: httpx.Client) -> None:
    """agentgateway #3500, #3587; protolabs: cards named hosts that nobody could reach."""
    port, public = free_port(), "https://example.com/a2a"
    with healthy(FLEET, args=("--public-url", public), port=port):
        text = http.get(f"http://127.0.0.1:{port}/agents/hello{CARD}").text
        assert "127.0.0.1" not in text
        assert {found["url"] for found in json.loads(text)["supportedInterfaces"]} == {f"{public}/agents/hello"}


def test_a_card_names_a_host_that_can_be_reached(server: Server, http: httpx.Client) -> None:
    """protolabs: without a public URL the card names the address that the host listens on."""
    for interface in http.get(f"{server.url}/agents/hello{CARD}").json()["supportedInterfaces"]:
        assert http.get(f"{interface['url']}{CARD}").status_code == 200


def test_a_tenant_in_the_path_shadows_no_route(http: httpx.Client) -> None:
    """protolabs: `/{tenant}` mounts shadowed later routes. With an agent at the root every path could be a tenant."""
    with healthy(FLEET, args=("--root", "hello")) as host:
        for path in ("/", "/agents/", "/healthz", "/readyz", "/metrics", CARD, f"/agents/stream{CARD}"):
            assert http.get(f"{host.url}{path}").status_code == 200
        assert http.get(f"{host.url}/agents/stream/tasks", headers=VERSION).json()["totalSize"] == 0
        assert http.get(f"{host.url}/hello/tasks", headers=VERSION).json()["totalSize"] == 0
        assert http.get(f"{host.url}/tasks", headers=VERSION).json()["totalSize"] == 0
        answer = http.get(f"{host.url}/healthz/tasks", headers=VERSION)
        assert Rest.problem(answer).fields == ["tenant"]


@pytest.mark.parametrize("agent", ["files", "echo"])
def test_no_address_out_of_a_message_is_dialled(door: Door, agent: str) -> None:
    """a2a-python #786, a2a-go #373, a2a-js #584, a2a-rs #124: webhooks reached internal addresses.

    A push config with such an address is refused, and the URL of a part is passed on as text. When the task has
    completed, no connection has arrived.
    """
    with socket.socket() as inner:
        inner.bind(("127.0.0.1", 0))
        inner.listen()
        inner.setblocking(False)
        url = f"http://127.0.0.1:{inner.getsockname()[1]}/secret"
        config: dict[str, Any] = {"taskPushNotificationConfig": {"url": url}}
        refused = door.refused("SendMessage", sending(configuration=config), agent)
        assert (refused.reason, refused.fields) == ("INVALID_PARAMS", ["configuration.taskPushNotificationConfig.url"])
        params = sending()
        params["message"]["parts"] = [{"url": url, "mediaType": "text/plain"}]
        assert door.ok("SendMessage", params, agent)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        with pytest.raises(BlockingIOError):
            inner.accept()


def test_a_message_sent_twice_makes_one_task(door: Door) -> None:
    """A2A #1987, #928: a client that got no response sent its message again, and there were two tasks."""
    params = sending()
    params["message"]["messageId"] = str(uuid.uuid4())
    first = door.ok("SendMessage", params, "echo")["task"]
    again = door.ok("SendMessage", params, "echo")["task"]
    assert again == first
    listed = door.ok("ListTasks", {"contextId": first["contextId"]}, "echo")["tasks"]
    assert [task["id"] for task in listed] == [first["id"]]
