"""Accepting a message: on record before the agent runs, whatever the client does meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from roost import Agent
from roost.protocol.types import TaskState
from roost.testing import CallFailed
from tests.agents.talk import others_go_on, send, serving, text_of, until_state
from tests.engine.gates import GateStore
from tests.waiting import PATIENCE_S, until


def echoing(**options: object) -> Agent:
    agent = Agent("echo", **options)

    @agent.on_message
    async def echo(task):
        yield task.text

    return agent


def waiting(release: asyncio.Event, **options: object) -> Agent:
    agent = Agent("waiting", **options)

    @agent.on_message
    async def wait(task):
        await release.wait()
        yield task.text

    return agent


async def test_the_agent_is_called_only_after_its_message_is_on_record():
    store, called = GateStore(), []
    agent = Agent("called")

    @agent.on_message
    async def call(task):
        called.append(list(store.rows))
        yield "done"

    async with serving(agent, store=store) as (host, _):
        store.commits.clear()
        sending = asyncio.create_task(send(host, "go"))
        await until(lambda: store.committing)
        assert called == []
        store.commits.set()
        task = await sending
    assert called == [[task.id]]


async def test_a_client_that_goes_while_its_message_is_committed_leaves_a_task_that_runs():
    store = GateStore()
    async with serving(echoing(), store=store) as (host, engine):
        store.commits.clear()
        sending = asyncio.create_task(host.send("go"))
        await until(lambda: store.committing)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        store.commits.set()
        await until(lambda: store.rows)
        (task_id,) = store.rows
        done = await until_state(host, task_id, TaskState.COMPLETED)
        assert text_of(done) == "go"
        await until(lambda: not engine.lives.by_id)


async def test_a_client_that_goes_while_its_answer_is_committed_leaves_a_task_that_runs():
    store, agent = GateStore(), Agent("asking")

    @agent.on_message
    async def ask(task):
        yield (await task.ask("?")).text

    async with serving(agent, store=store) as (host, engine):
        task = await send(host, "go")
        store.commits.clear()
        answering = asyncio.create_task(host.send("answer", task=task))
        await until(lambda: store.committing)
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        store.commits.set()
        done = await until_state(host, task, TaskState.COMPLETED)
        assert text_of(done) == "answer"
        await until(lambda: not engine.lives.by_id)


async def test_a_client_that_goes_does_not_stop_the_agent_that_waits_for_the_same_commit():
    """With a direct agent, the request and the agent's first step wait for one commit."""
    store, agent = GateStore(), Agent("direct", direct=True)

    @agent.on_message
    async def step(task):
        store.commits.clear()
        yield await task.step("look", lambda: "found")

    async with serving(agent, store=store) as (host, _):
        sending = asyncio.create_task(host.send("go"))
        await until(lambda: store.committing)
        await others_go_on(host)  # the request has seen that it is a task, and waits too
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        store.commits.set()
        (task_id,) = store.rows
        await until(lambda: store.rows[task_id].head.state is not TaskState.SUBMITTED)
        done = await until_state(host, task_id, TaskState.COMPLETED, TaskState.FAILED)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "found")


async def test_a_cancel_that_overtakes_an_answer_leaves_nobody_waiting():
    """The answer is committed, its run not begun: a cancel then ends the task, and the answer's sender is told."""
    store, agent, calls = GateStore(), Agent("asking"), []

    @agent.on_message
    async def ask(task):
        calls.append(1)
        await task.ask("?")
        yield "answered"

    async with serving(agent, store=store) as (host, _):
        task = await send(host, "go")
        store.records.clear()
        answering = asyncio.create_task(host.send("answer", task=task))
        await until(lambda: store.rows[task.id].head.state is TaskState.WORKING)
        canceled = await host.cancel(task)
        assert canceled.status.state is TaskState.CANCELED
        store.records.set()
        found = await asyncio.wait_for(answering, PATIENCE_S)
        assert found.status.state is TaskState.CANCELED
        assert (await host.get(task)).status.state is TaskState.CANCELED
    assert len(calls) == 1


async def test_an_answered_task_is_one_live_object_to_everyone_while_it_runs():
    release, agent = asyncio.Event(), Agent("asking")

    @agent.on_message
    async def ask(task):
        await task.ask("?")
        await release.wait()
        yield "answered"

    async with serving(agent) as (host, engine):
        task = await send(host, "go")
        await send(host, "answer", task=task, wait=False)
        assert list(engine.lives.by_id) == [task.id]
        subscribing = asyncio.create_task(host.http.get(f"/agents/asking/tasks/{task.id}:subscribe"))
        await until(lambda: engine.lives.by_id[task.id].ring)
        release.set()
        events = (await asyncio.wait_for(subscribing, PATIENCE_S)).text
    assert "answered" in events
    assert TaskState.COMPLETED in events


@pytest.mark.parametrize("queue", [0, 1, 3])
async def test_a_burst_of_messages_does_not_outrun_the_queue(queue):
    release = asyncio.Event()
    async with serving(waiting(release, concurrency=2, queue=queue)) as (host, _):
        calls = [host.send(str(number), wait=False) for number in range(12)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        refused = [result for result in results if isinstance(result, CallFailed)]
        taken = [result for result in results if not isinstance(result, BaseException)]
        release.set()
        for task in taken:
            await until_state(host, task, TaskState.COMPLETED)
    assert (len(taken), len(refused)) == (2 + queue, 10 - queue)
    assert {error.reason for error in refused} == {"TOO_MANY_REQUESTS"}


async def test_without_a_queue_a_free_agent_takes_messages():
    async with serving(echoing(queue=0, concurrency=1)) as (host, _):
        assert text_of(await send(host, "one")) == "one"
        assert text_of(await send(host, "two")) == "two"


async def test_a_direct_agents_message_that_has_to_wait_is_a_task_at_once(monkeypatch):
    """Otherwise a send that asked to return immediately would wait for the turns before it."""
    monkeypatch.setattr("roost.engine.intake.DIRECT_WITHIN_S", 0.05)
    release = asyncio.Event()
    async with serving(waiting(release, direct=True, concurrency=1)) as (host, _):
        running = await send(host, "first", wait=False)
        queued = await send(host, "second", wait=False)
        assert (await host.get(queued)).status.state is TaskState.SUBMITTED
        release.set()
        for task, text in ((running, "first"), (queued, "second")):
            assert text_of(await until_state(host, task, TaskState.COMPLETED)) == text
