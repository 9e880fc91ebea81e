"""The table in docs/agents.md, what an author writes and what a client sees: the rows that emit, answer and end.

`step` and `ask` have their own modules, test_step.py and test_ask.py.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys

import pytest

from roost import Agent, Artifact, Part
from roost.protocol import entries as kinds
from roost.protocol.types import Message, Role, TaskState
from roost.testing import CallFailed, client
from tests.agents.talk import (
    KINDS,
    artifact_events,
    emitting,
    message_of,
    of_kind,
    replayed,
    said,
    send,
    serving,
    states,
    status_text,
    text_of,
    until_state,
)
from tests.waiting import until

# yield


@pytest.mark.parametrize("kind", KINDS)
async def test_text_is_appended_to_the_artifact_output_one_event_each(kind):
    async with client(emitting(kind, ["one ", "two ", "three"])) as host:
        events = await host.stream("go")
        task = await host.get(events[0].task)
    pieces = artifact_events(events)
    assert [piece.artifact.parts[0].text for piece in pieces] == ["one ", "two ", "three"]
    assert [piece.append for piece in pieces] == [False, True, True]
    assert {piece.artifact.artifact_id for piece in pieces} == {"output"}
    assert text_of(task) == replayed(events) == "one two three"
    assert task.status.state is TaskState.COMPLETED


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_is_the_task_then_working_then_what_was_said_then_completed(kind):
    async with client(emitting(kind, ["hello"])) as host:
        events = await host.stream("go")
    assert events[0].task.status.state is TaskState.SUBMITTED
    assert states(events) == [TaskState.WORKING, TaskState.COMPLETED]
    assert [events.index(event) for event in events if event.artifact_update] == [2]


@pytest.mark.parametrize("kind", KINDS)
async def test_empty_text_and_none_are_no_events(kind):
    async with client(emitting(kind, ["", None, "x", ""])) as host:
        events = await host.stream("go")
    assert [piece.artifact.parts[0].text for piece in artifact_events(events)] == ["x"]


@pytest.mark.parametrize("kind", KINDS)
async def test_parts_data_and_bytes_are_parts_of_output(kind):
    link = Part(url="https://example.com/a.png", media_type="image/png")
    async with client(emitting(kind, ["see ", link, {"n": 1}, b"\x00\x01"])) as host:
        task = await send(host, "go")
    (artifact,) = task.artifacts
    assert artifact.artifact_id == "output"
    text, url, data, raw = artifact.parts
    assert (text.text, url, data.data) == ("see ", link, {"n": 1})
    assert (raw.raw, raw.media_type) == (b"\x00\x01", "application/octet-stream")


@pytest.mark.parametrize("kind", KINDS)
async def test_an_artifact_is_its_own_and_replaces_the_one_with_its_id(kind):
    def made(text):
        return Artifact(artifact_id="report", name="Report", parts=[Part(text=text)], metadata={"by": "me"})

    async with client(emitting(kind, ["intro", made("draft"), made("final")])) as host:
        events = await host.stream("go")
        task = await host.get(events[0].task)
    assert [(a.artifact_id, a.parts[0].text) for a in task.artifacts] == [("output", "intro"), ("report", "final")]
    assert task.artifacts[1] == made("final")
    assert [piece.append for piece in artifact_events(events)] == [False, False, False]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_said_is_on_record_as_it_was_though_its_author_changes_it_later(kind):
    data, part = {"n": 0}, Part(data={"n": 0})
    artifact = Artifact(artifact_id="own", parts=[Part(data={"n": 0})], metadata={"n": 0})

    def change():
        for value in (data, part.data, artifact.parts[0].data, artifact.metadata):
            value["n"] += 1

    async def async_generator(task):
        for _ in range(3):
            change()
            yield data
            yield part
            yield artifact

    async def coroutine(task):
        for _ in range(3):
            change()
            task.emit(data)
            task.emit(part)
            task.emit(artifact)

    def generator(task):
        for _ in range(3):
            change()
            yield data
            yield part
            yield artifact

    def function(task):
        for _ in range(3):
            change()
            task.emit(data)
            task.emit(part)
            task.emit(artifact)
        change()

    agent = Agent("changing")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        events = await host.stream("go")
        task = await host.get(events[0].task)
    said = [piece.artifact.parts[0].data["n"] for piece in artifact_events(events)]
    assert said == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    output, own = task.artifacts
    assert [found.data["n"] for found in output.parts] == [1, 1, 2, 2, 3, 3]
    assert (own.parts[0].data, own.metadata) == ({"n": 3}, {"n": 3})


# join_ms


@pytest.mark.parametrize("kind", KINDS)
async def test_join_ms_joins_pieces_and_loses_none(kind):
    async with client(emitting(kind, ["a", "b", "c"], join_ms=60_000)) as host:
        events = await host.stream("go")
    assert [piece.artifact.parts[0].text for piece in artifact_events(events)] == ["abc"]


@pytest.mark.parametrize("kind", KINDS)
async def test_joined_text_keeps_its_place_among_other_events(kind):
    values = ["a", "b", {"n": 1}, "c", "d"]
    async with client(emitting(kind, values, join_ms=60_000)) as host:
        task = await send(host, "go")
    first, data, last = task.artifacts[0].parts
    assert (first.text, data.data, last.text) == ("ab", {"n": 1}, "cd")


async def test_joined_text_is_shown_when_its_time_is_over_though_the_agent_is_silent():
    agent, seen = Agent("joining", join_ms=1), asyncio.Event()

    @agent.on_message
    async def wait(task):
        yield "early"
        await seen.wait()
        yield " late"

    async with client(agent) as host:
        task = await send(host, "go", wait=False)
        await until(lambda: said(host, task))
        seen.set()
        done = await until_state(host, task, TaskState.COMPLETED)
    assert text_of(done) == "early late"


@pytest.mark.parametrize("join_ms", [0, 60_000])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_said_before_an_exception_is_kept(kind, join_ms):
    async def async_generator(task):
        yield "kept"
        raise ValueError

    async def coroutine(task):
        task.emit("kept")
        raise ValueError

    def generator(task):
        yield "kept"
        raise ValueError

    def function(task):
        task.emit("kept")
        raise ValueError

    agent = Agent("failing", join_ms=join_ms)
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        task = await send(host, "go")
    assert (task.status.state, text_of(task)) == (TaskState.FAILED, "kept")


# return


def returning(kind: str, value: object) -> Agent:
    agent = Agent("returning")

    async def coroutine(task):
        return value

    def function(task):
        return value

    agent.on_message(coroutine if kind == "coroutine" else function)
    return agent


@pytest.mark.parametrize("kind", ["coroutine", "function"])
@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("text", [Part(text="text")]),
        ({"a": [1, None]}, [Part(data={"a": [1, None]})]),
        ([1, 2], [Part(data=[1, 2])]),
        (0, [Part(data=0)]),
        (Part(url="https://example.com/"), [Part(url="https://example.com/")]),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_returned_value_is_one_artifact(kind, value, parts):
    async with client(returning(kind, value)) as host:
        task = await send(host, "go")
    assert [(artifact.artifact_id, artifact.parts) for artifact in task.artifacts] == [("output", parts)]


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_nothing_returned_completes_without_an_artifact(kind):
    async with client(returning(kind, None)) as host:
        task = await send(host, "go")
    assert (task.status.state, task.artifacts) == (TaskState.COMPLETED, [])


# task.status


@pytest.mark.parametrize("kind", KINDS)
async def test_status_is_a_working_status_with_that_message(kind):
    async def async_generator(task):
        task.status("looking")
        yield "found"
        task.status({"percent": 50})

    async def coroutine(task):
        task.status("looking")
        task.emit("found")
        task.status({"percent": 50})

    def generator(task):
        task.status("looking")
        yield "found"
        task.status({"percent": 50})

    def function(task):
        task.status("looking")
        task.emit("found")
        task.status({"percent": 50})

    agent = Agent("telling")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        events = await host.stream("go")
    said = [event.status_update.status for event in events if event.status_update]
    assert [status.state for status in said] == [TaskState.WORKING] * 3 + [TaskState.COMPLETED]
    looking, percent = said[1].message, said[2].message
    assert (looking.role, looking.text, percent.parts) == (Role.AGENT, "looking", [Part(data={"percent": 50})])
    assert looking.task_id == events[0].task.id


# task.done, task.fail, task.reject


@pytest.mark.parametrize(
    ("how", "state"),
    [("done", TaskState.COMPLETED), ("fail", TaskState.FAILED), ("reject", TaskState.REJECTED)],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_an_end_with_a_message_ends_the_function_too(kind, how, state):
    after = []

    async def async_generator(task):
        yield "said"
        getattr(task, how)("that was it")
        after.append(1)

    async def coroutine(task):
        task.emit("said")
        getattr(task, how)("that was it")
        after.append(1)

    def generator(task):
        yield "said"
        getattr(task, how)("that was it")
        after.append(1)

    def function(task):
        task.emit("said")
        getattr(task, how)("that was it")
        after.append(1)

    agent = Agent("ending")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        task = await send(host, "go")
    assert (task.status.state, status_text(task), text_of(task)) == (state, "that was it", "said")
    assert after == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_function_that_swallows_its_end_can_say_nothing_more(kind):
    async def async_generator(task):
        try:
            task.done("over")
        except BaseException:
            yield "late"

    async def coroutine(task):
        try:
            task.done("over")
        except BaseException:
            task.emit("late")

    def generator(task):
        try:
            task.done("over")
        except BaseException:
            yield "late"

    def function(task):
        try:
            task.done("over")
        except BaseException:
            task.emit("late")

    agent = Agent("swallowing")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        events = await host.stream("go")
    assert states(events) == [TaskState.WORKING, TaskState.COMPLETED]
    assert artifact_events(events) == []


# task.reply


@pytest.mark.parametrize("kind", KINDS)
async def test_reply_is_a_direct_message_and_no_task_but_on_record(kind):
    async def async_generator(task):
        task.reply(f"hello {task.text}")
        yield "never"

    async def coroutine(task):
        task.reply(f"hello {task.text}")

    def generator(task):
        task.reply(f"hello {task.text}")
        yield "never"

    def function(task):
        task.reply(f"hello {task.text}")

    agent = Agent("direct", direct=True)
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with serving(agent) as (host, engine):
        reply = message_of(await host.send("you"))
        assert (reply.text, reply.role, reply.task_id) == ("hello you", Role.AGENT, "")
        assert reply.context_id
        (task_id,) = engine.store.rows
        with pytest.raises(CallFailed, match="TASK_NOT_FOUND"):
            await host.get(task_id)
        listed = (await host.http.get("/agents/direct/tasks")).json()
        assert (listed["tasks"], listed["totalSize"]) == ([], 0)
        recorded = [entry.kind for entry in await engine.store.read_internal(task_id)]
        assert recorded == [kinds.MESSAGE, kinds.REPLY]


async def test_reply_on_a_stream_is_the_message_alone():
    agent = Agent("direct", direct=True)

    @agent.on_message
    async def answer(task):
        task.reply("hello")

    async with client(agent) as host:
        (event,) = await host.stream("you")
    assert message_of(event.message).text == "hello"


@pytest.mark.parametrize("kind", KINDS)
async def test_reply_as_the_second_thing_ends_the_task_with_the_message(kind):
    async def async_generator(task):
        yield "first"
        task.reply("second")

    async def coroutine(task):
        task.emit("first")
        task.reply("second")

    def generator(task):
        yield "first"
        task.reply("second")

    def function(task):
        task.emit("first")
        task.reply("second")

    agent = Agent("direct", direct=True)
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        task = await send(host, "go")
        assert await host.get(task) == task
    assert (task.status.state, text_of(task), status_text(task)) == (TaskState.COMPLETED, "first", "second")


async def test_reply_after_the_time_for_it_ends_the_task_with_the_message(monkeypatch):
    monkeypatch.setattr("roost.engine.intake.DIRECT_WITHIN_S", 0.01)
    agent, became_task = Agent("slow", direct=True), asyncio.Event()

    @agent.on_message
    async def answer(task):
        await became_task.wait()
        task.reply("at last")

    async with client(agent) as host:
        task = await send(host, "go", wait=False)
        assert task.status.state in (TaskState.SUBMITTED, TaskState.WORKING)
        became_task.set()
        done = await until_state(host, task, TaskState.COMPLETED)
    assert status_text(done) == "at last"


@pytest.mark.parametrize("values", [["said"], []], ids=["says", "is silent"])
async def test_a_direct_agent_that_does_not_reply_has_a_task(values):
    async with client(emitting("async generator", values, direct=True)) as host:
        events = await host.stream("go")
        task = await host.get(events[0].task)
    assert states(events) == [TaskState.WORKING, TaskState.COMPLETED]
    assert text_of(task) == replayed(events) == "".join(values)


async def test_reply_of_an_agent_that_is_not_direct_fails_and_says_why_in_the_log(caplog):
    agent = Agent("plain")

    @agent.on_message
    async def answer(task):
        task.reply("hello")

    async with client(agent) as host:
        task = await send(host, "go")
    assert task.status.state is TaskState.FAILED
    assert "direct=True" in caplog.text


# An exception


@pytest.mark.parametrize("kind", KINDS)
async def test_an_exception_is_failed_with_an_error_id_and_its_traceback_is_in_the_log_only(kind, caplog):
    async def async_generator(task):
        yield "said"
        raise ValueError("the secret password")

    async def coroutine(task):
        raise ValueError("the secret password")

    def generator(task):
        yield "said"
        raise ValueError("the secret password")

    def function(task):
        raise ValueError("the secret password")

    agent = Agent("failing")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    with caplog.at_level(logging.ERROR, "roost"):
        async with client(agent) as host:
            task = await send(host, "go")
            raw = (await host.http.get(f"/agents/failing/tasks/{task.id}")).text
    assert task.status.state is TaskState.FAILED
    found = re.search(r"Error id: (\S+)", status_text(task))
    assert found is not None
    (record,) = [record for record in caplog.records if found.group(1) in record.getMessage()]
    assert "ValueError: the secret password" in record.getMessage()
    assert "Traceback" in record.getMessage()
    assert (record.task, record.agent) == (task.id, "failing")
    assert "secret" not in raw
    assert "Traceback" not in raw


class Abort(BaseException):
    pass


@pytest.mark.parametrize("leave", [SystemExit, StopIteration, Abort], ids=lambda error: error.__name__)
@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_an_agent_that_exits_fails_its_task_and_not_the_host(kind, leave):
    async def coroutine(task):
        if task.text == "leave":
            raise leave
        return "still here"

    def function(task):
        if task.text == "leave":
            raise leave
        return "still here"

    agent = Agent("leaving")
    agent.on_message(coroutine if kind == "coroutine" else function)
    async with client(agent) as host:
        failed = await send(host, "leave")
        assert failed.status.state is TaskState.FAILED
        assert text_of(await send(host, "stay")) == "still here"


async def test_sys_exit_in_an_async_generator_fails_its_task():
    agent = Agent("leaving")

    @agent.on_message
    async def leave(task):
        yield "bye"
        sys.exit(3)

    async with client(agent) as host:
        task = await send(host, "go")
    assert (task.status.state, text_of(task)) == (TaskState.FAILED, "bye")


@pytest.mark.parametrize("how", ["status", "done", "fail", "emit"])
async def test_what_cannot_be_json_fails_the_task_and_leaves_nobody_waiting(how):
    agent = Agent("odd")

    @agent.on_message
    async def odd(task):
        getattr(task, how)({"value": object()})

    async with client(agent) as host:
        task = await send(host, "go")
        assert (await host.get(task)).status.state is TaskState.FAILED
    assert "Error id" in status_text(task)


async def test_metadata_that_cannot_be_json_leaves_the_task_where_it_was():
    """The status is encoded before anything changes: a task must not be over in memory only."""
    agent = Agent("odd")

    @agent.on_message
    async def odd(task):
        with pytest.raises(TypeError):
            task._turn.status(TaskState.COMPLETED, None, {"value": object()})
        yield "went on"

    async with client(agent) as host:
        task = await send(host, "go")
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "went on")
    assert not isinstance(task, Message)
