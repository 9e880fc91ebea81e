"""CancelTask: what runs is stopped, what waits is taken back, and the journal says CANCELED once and for all."""

from __future__ import annotations

import asyncio
import threading

import pytest

from roost import Agent
from roost.protocol.codec import decoder
from roost.protocol.states import TERMINAL
from roost.protocol.types import StreamResponse, Task, TaskState
from roost.testing import CallFailed, InProcessClient, client
from tests.agents.talk import SYNC_KINDS, of_kind, others_go_on, said, send, serving, status_text, text_of, until_state
from tests.waiting import PATIENCE_S, until


async def ends(host: InProcessClient, task: Task) -> list[TaskState]:
    """Every terminal state that the task's journal says, in order: there must be one."""
    response = await host.http.get(f"/agents/{host.agent}/tasks/{task.id}:subscribe", headers={"Last-Event-ID": "1"})
    lines = [line for line in response.content.split(b"\n") if line.startswith(b"data: ")]
    events = [decoder(StreamResponse)(line[6:]) for line in lines]
    said = [event.status_update.status.state for event in events if event.status_update]
    return [state for state in said if state in TERMINAL]


# What runs


@pytest.mark.parametrize("kind", ["async generator", "coroutine"])
async def test_a_coroutine_is_really_stopped_its_cleanup_runs_and_it_says_nothing_more(kind):
    seen: list[str] = []

    async def async_generator(task):
        try:
            while True:
                yield "."
                await asyncio.sleep(0.001)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    async def coroutine(task):
        try:
            while True:
                task.emit(".")
                await asyncio.sleep(0.001)
        finally:
            await asyncio.sleep(0)
            seen.append("cleaned up")

    agent = Agent("endless")
    agent.on_message(async_generator if kind == "async generator" else coroutine)
    async with client(agent) as host:
        task = await send(host, "go", wait=False)
        await until(lambda: said(host, task))
        canceled = await host.cancel(task)
        assert canceled.status.state is TaskState.CANCELED
        assert seen == ["cleaned up"]
        await others_go_on(host)
        assert await host.get(task) == canceled
        assert await ends(host, task) == [TaskState.CANCELED]


@pytest.mark.parametrize("kind", SYNC_KINDS)
@pytest.mark.parametrize("call", ["emit", "status", "step", "ask"])
async def test_a_thread_stops_at_its_next_call_of_task(kind, call):
    began, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def work(task):
        try:
            began.set()
            go_on.wait(PATIENCE_S)
            if call == "step":
                task.step("late", lambda: seen.append("step ran"))
            else:
                getattr(task, call)("late")
            seen.append("went on")
        finally:
            seen.append("ended")

    def generator(task):
        yield "first"
        work(task)

    agent = Agent("threaded")
    agent.on_message(of_kind(kind, None, None, generator, work))
    async with client(agent) as host:
        task = await send(host, "go", wait=False)
        await until(began.is_set)
        canceling = asyncio.create_task(host.cancel(task))
        await others_go_on(host)
        assert not canceling.done(), "a thread is waited for"
        go_on.set()
        canceled = await canceling
        assert canceled.status.state is TaskState.CANCELED
        assert await ends(host, task) == [TaskState.CANCELED]
    assert seen == ["ended"]
    assert "late" not in text_of(canceled)


async def test_a_stream_of_a_canceled_task_ends_with_canceled():
    agent, began = Agent("waiting"), asyncio.Event()

    @agent.on_message
    async def wait(task):
        yield "said"
        began.set()
        await asyncio.Event().wait()

    async with serving(agent) as (host, engine):
        streaming = asyncio.create_task(host.stream("go"))
        await began.wait()
        (task_id,) = engine.lives.by_id
        await host.cancel(task_id)
        events = await asyncio.wait_for(streaming, PATIENCE_S)
    assert events[-1].status_update.status.state is TaskState.CANCELED


async def test_a_canceled_run_makes_room_for_the_next():
    agent = Agent("narrow", concurrency=1)

    @agent.on_message
    async def wait(task):
        if task.text == "wait":
            await asyncio.Event().wait()
        yield task.text

    async with client(agent) as host:
        waiting = await send(host, "wait", context="one", wait=False)
        same_context = await send(host, "second", context="one", wait=False)
        other = await send(host, "third", wait=False)
        assert (await host.cancel(waiting)).status.state is TaskState.CANCELED
        for task, text in ((same_context, "second"), (other, "third")):
            assert text_of(await until_state(host, task, TaskState.COMPLETED)) == text


# What waits


@pytest.mark.parametrize("direct", [False, True])
async def test_a_queued_task_is_canceled_and_never_called(direct, monkeypatch):
    monkeypatch.setattr("roost.engine.intake.DIRECT_WITHIN_S", 0.01)
    agent, called, release = Agent("queueing", concurrency=1, direct=direct), [], asyncio.Event()

    @agent.on_message
    async def wait(task):
        called.append(task.text)
        await release.wait()
        yield task.text

    async with serving(agent) as (host, engine):
        first = await send(host, "first", context="one", wait=False)
        rest = [
            asyncio.create_task(host.send("behind it", context="one")),
            asyncio.create_task(host.send("for a place")),
        ]
        await until(lambda: len(engine.runner.runs) == 3)
        for task_id in [task_id for task_id in engine.runner.runs if task_id != first.id]:
            await until(lambda task_id=task_id: not engine.lives.by_id[task_id].hidden or not direct)
            assert (await host.cancel(task_id)).status.state is TaskState.CANCELED
        assert [(await sent).status.state for sent in rest] == [TaskState.CANCELED] * 2
        release.set()
        assert text_of(await until_state(host, first, TaskState.COMPLETED)) == "first"
        assert text_of(await send(host, "after", context="one")) == "after"
    assert called == ["first", "after"]


async def test_a_paused_task_is_canceled_and_takes_no_answer():
    agent = Agent("asking")

    @agent.on_message
    async def ask(task):
        yield (await task.ask("?")).text

    async with client(agent) as host:
        task = await send(host, "go")
        canceled = await host.cancel(task)
        assert canceled.status.state is TaskState.CANCELED
        with pytest.raises(CallFailed, match="UNSUPPORTED_OPERATION"):
            await host.send("answer", task=task)
        assert await host.get(task) == canceled
        assert await ends(host, task) == [TaskState.CANCELED]


# What cannot be canceled


@pytest.mark.parametrize("how", ["done", "fail", "reject", "cancel"])
async def test_a_task_that_is_over_is_not_cancelable(how):
    agent = Agent("ending")

    @agent.on_message
    async def end(task):
        if how == "cancel":
            await task.ask("?")
        getattr(task, how)("over")

    async with client(agent) as host:
        task = await send(host, "go")
        if how == "cancel":
            await host.cancel(task)
        before = await host.get(task)
        with pytest.raises(CallFailed) as refusal:
            await host.cancel(task)
        assert (refusal.value.status, refusal.value.reason) == (400, "TASK_NOT_CANCELABLE")
        assert await host.get(task) == before


async def test_a_task_that_is_not_there_is_not_found():
    agent = Agent("empty")
    agent.on_message(lambda task: None)
    async with client(agent) as host:
        with pytest.raises(CallFailed, match="TASK_NOT_FOUND"):
            await host.cancel("nothing")


# Agents that do not want to stop


@pytest.mark.parametrize("late", ["return", "raise", "yield", "ask", "done", "fail"])
async def test_a_cancel_that_wins_is_never_overwritten_by_what_the_agent_does_late(late):
    """The agent swallows CancelledError once and goes on: whatever comes of it, the task ends once."""
    agent, began = Agent("stubborn"), asyncio.Event()

    @agent.on_message
    async def go_on(task):
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if late == "raise":
                raise ValueError("late") from None
            if late == "yield":
                yield "late"
            elif late == "ask":
                await task.ask("Really?")
            elif late != "return":
                getattr(task, late)("late")

    async with client(agent) as host:
        task = await send(host, "go", wait=False)
        await began.wait()
        canceled = await host.cancel(task)
        assert canceled.status.state in TERMINAL
        if late not in ("done", "fail"):  # the agent's own word, said before CANCELED was, stands
            assert canceled.status.state is TaskState.CANCELED
        assert await ends(host, task) == [canceled.status.state]
        assert await host.get(task) == canceled


async def test_an_agent_that_ignores_cancel_is_canceled_regardless_and_not_heard_again(monkeypatch, caplog):
    monkeypatch.setattr("roost.engine.cancellation.CANCEL_WAIT_S", 0.05)
    monkeypatch.setattr("roost.engine.runner.CANCEL_FORCED_S", 1.0)
    agent, began, release, seen = Agent("deaf"), asyncio.Event(), asyncio.Event(), []

    @agent.on_message
    async def ignore(task):
        began.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                seen.append("ignored")
        try:
            task.emit("late")
            seen.append("said")
        finally:
            seen.append("ended")

    async with serving(agent) as (host, engine):
        task = await send(host, "go", wait=False)
        await began.wait()
        as_it_is = await host.cancel(task)
        assert as_it_is.status.state is TaskState.WORKING, "CancelTask returns the task as it is"
        canceled = await until_state(host, task, TaskState.CANCELED)
        assert seen == ["ignored"]
        release.set()
        await until(lambda: not engine.runner.runs)
        assert seen == ["ignored", "ended"]
        assert await host.get(task) == canceled
        assert await ends(host, task) == [TaskState.CANCELED]
        assert not engine.lives.by_id
    assert "it is canceled regardless" in caplog.text


async def test_a_thread_that_ignores_cancel_is_canceled_regardless(monkeypatch):
    monkeypatch.setattr("roost.engine.cancellation.CANCEL_WAIT_S", 0.05)
    monkeypatch.setattr("roost.engine.runner.CANCEL_FORCED_S", 1.0)
    agent, began, release, seen = Agent("deaf"), threading.Event(), threading.Event(), []

    @agent.on_message
    def ignore(task):
        began.set()
        release.wait(PATIENCE_S)
        seen.append("woke")
        return "late"

    async with serving(agent) as (host, engine):
        task = await send(host, "go", wait=False)
        await until(began.is_set)
        assert (await host.cancel(task)).status.state is TaskState.WORKING
        canceled = await until_state(host, task, TaskState.CANCELED)
        release.set()
        await until(lambda: not engine.runner.runs)
        assert (await host.get(task), seen) == (canceled, ["woke"])
    assert text_of(canceled) == ""


async def test_two_cancels_at_once_end_the_task_once():
    agent, began, cleaned = Agent("waiting"), asyncio.Event(), asyncio.Event()

    @agent.on_message
    async def wait(task):
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned.wait()

    async with client(agent) as host:
        task = await send(host, "go", wait=False)
        await began.wait()
        canceling = asyncio.gather(host.cancel(task), host.cancel(task))
        await others_go_on(host)
        cleaned.set()
        first, second = await canceling
        assert first.status.state is second.status.state is TaskState.CANCELED
        assert await ends(host, task) == [TaskState.CANCELED]


async def test_an_agent_that_cancels_itself_is_failed_and_says_so():
    agent = Agent("giving-up")

    @agent.on_message
    async def give_up(task):
        raise asyncio.CancelledError

    async with client(agent) as host:
        task = await send(host, "go")
    assert (task.status.state, status_text(task)) == (TaskState.FAILED, "The agent cancelled itself.")


async def test_a_cancel_while_a_question_is_being_committed_is_not_lost():
    """However the two interleave: the task does not wait for an answer that nobody will give."""
    agent, asking = Agent("asking"), asyncio.Event()

    @agent.on_message
    async def ask(task):
        await asking.wait()
        await task.ask("?")

    async with client(agent) as host:
        for turns in range(12):
            asking.clear()
            task = await send(host, "go", wait=False)
            asking.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            canceled = await host.cancel(task)
            assert canceled.status.state is TaskState.CANCELED
            assert await ends(host, task) == [TaskState.CANCELED]
