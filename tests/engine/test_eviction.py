"""A task that nothing happens to is in the journal and nowhere else."""

from __future__ import annotations

import asyncio
import gc

import pytest

from roost import Agent
from roost.engine.live import LiveTask
from roost.engine.run import Run
from roost.protocol.types import Message, TaskState
from roost.testing import CallFailed
from tests.agents.talk import emitting, send, serving, text_of, until_state
from tests.waiting import PATIENCE_S, until


def asking(**options: object) -> Agent:
    agent = Agent("asking", **options)

    @agent.on_message
    async def ask(task):
        yield (await task.ask("?")).text

    return agent


def in_memory() -> int:
    """Live tasks and runs that exist in this process, those of other tests included."""
    gc.collect()
    return sum(isinstance(found, LiveTask | Run) for found in gc.get_objects())


@pytest.mark.parametrize("wait", [True, False])
async def test_tasks_that_ended_are_no_live_objects(wait):
    async with serving(emitting("async generator", ["said"])) as (host, engine):
        tasks = [await send(host, "go", wait=wait) for _ in range(5)]
        for task in tasks:
            await until_state(host, task, TaskState.COMPLETED)
        await until(lambda: not engine.lives.by_id)
        assert (engine.runner.runs, engine.lives.loading) == ({}, {})


@pytest.mark.parametrize("kind", ["send", "stream"])
async def test_direct_replies_are_no_live_objects(kind):
    agent = Agent("direct", direct=True)

    @agent.on_message
    async def answer(task):
        task.reply("hello")

    async with serving(agent) as (host, engine):
        if kind == "send":
            assert isinstance(await host.send("you"), Message)
        else:
            assert len(await host.stream("you")) == 1
        await until(lambda: not engine.lives.by_id)


async def test_failed_canceled_and_rejected_tasks_are_no_live_objects():
    agent = Agent("ending")

    @agent.on_message
    async def end(task):
        if task.text == "fail":
            raise ValueError
        if task.text == "reject":
            task.reject("no")
        await asyncio.Event().wait()

    async with serving(agent) as (host, engine):
        await send(host, "fail")
        await send(host, "reject")
        await host.cancel(await send(host, "wait", wait=False))
        await until(lambda: not engine.lives.by_id)
        assert engine.runner.runs == {}


async def test_a_stream_that_ended_leaves_nothing_behind():
    async with serving(emitting("async generator", ["a", "b"])) as (host, engine):
        events = await host.stream("go")
        await until(lambda: not engine.lives.by_id)
        response = await host.http.get(
            f"/agents/emitting/tasks/{events[0].task.id}:subscribe", headers={"Last-Event-ID": "1"}
        )
        assert response.status_code == 200
        await until(lambda: not engine.lives.by_id)
        assert engine.stats.streams == 0


async def test_looking_at_a_task_that_is_over_does_not_keep_it():
    async with serving(emitting("async generator", ["said"])) as (host, engine):
        task = await send(host, "go")
        await until(lambda: not engine.lives.by_id)
        await host.get(task)
        with pytest.raises(CallFailed):
            await host.cancel(task)
        with pytest.raises(CallFailed):
            await host.send("more", task=task)
        with pytest.raises(CallFailed):
            await host.cancel("unknown")
        await host.http.get("/agents/emitting/tasks?includeArtifacts=true")
        await until(lambda: not engine.lives.by_id)
        assert engine.lives.loading == {}


async def test_a_thousand_paused_tasks_leave_no_coroutine_and_no_live_object():
    async with serving(asking()) as (host, engine):
        await send(host, "warm up")
        await until(lambda: not engine.lives.by_id)
        before, objects = len(asyncio.all_tasks()), in_memory()
        tasks = []
        for _ in range(10):
            tasks += await asyncio.gather(*[send(host, "go") for _ in range(100)])
        assert {task.status.state for task in tasks} == {TaskState.INPUT_REQUIRED}
        await until(lambda: not engine.lives.by_id)
        assert engine.runner.runs == {}
        queue = engine.runner.queues["asking"]
        assert (queue.running, queue.turns, list(queue.ready), queue.waiting) == (set(), {}, [], 0)
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert in_memory() < objects + 20, "paused tasks are in memory"
        done = await send(host, "answer", task=tasks[500])
        assert text_of(done) == "answer"


async def test_a_task_is_kept_while_someone_follows_it_and_forgotten_when_he_leaves():
    async with serving(asking()) as (host, engine):
        task = await send(host, "go")
        await until(lambda: not engine.lives.by_id)
        following = asyncio.create_task(host.http.get(f"/agents/asking/tasks/{task.id}:subscribe"))
        await until(lambda: engine.stats.streams == 1)
        assert list(engine.lives.by_id) == [task.id]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await until(lambda: not engine.lives.by_id)
        assert engine.stats.streams == 0


async def test_a_refused_message_leaves_nothing_behind():
    release = asyncio.Event()
    agent = Agent("full", concurrency=1, queue=1)

    @agent.on_message
    async def wait(task):
        await release.wait()

    async with serving(agent) as (host, engine):
        tasks = [await send(host, "go", wait=False) for _ in range(2)]
        for _ in range(3):
            with pytest.raises(CallFailed, match="TOO_MANY_REQUESTS"):
                await host.send("go", wait=False)
        assert sorted(engine.lives.by_id) == sorted(task.id for task in tasks)
        release.set()
        await until(lambda: not engine.lives.by_id)


async def test_a_client_that_stops_waiting_does_not_keep_its_task():
    release, agent = asyncio.Event(), Agent("slow")

    @agent.on_message
    async def wait(task):
        await release.wait()
        yield "done"

    async with serving(agent) as (host, engine):
        sending = asyncio.create_task(host.send("go"))
        await until(lambda: engine.runner.runs)
        (task_id,) = engine.runner.runs
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        release.set()
        await until(lambda: not engine.lives.by_id)
        done = await asyncio.wait_for(host.get(task_id), PATIENCE_S)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "done")
