"""Limits, queues and turns: how many run at once, who waits, in which order, and for how long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable

import pytest

from roost import Agent
from roost.protocol.types import TaskState
from roost.testing import CallFailed, client
from tests.agents.talk import KINDS, of_kind, send, status_text, text_of, until_state
from tests.waiting import PATIENCE_S, until


class Turns:
    """An agent whose runs wait until they are let go, and what it saw: who began, in which order, how many at once."""

    def __init__(self, **options: object) -> None:
        self.began: list[str] = []
        self.now: set[str] = set()
        self.most = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.agent = Agent("turns", **options)
        self.agent.on_message(self._run)

    async def _run(self, task):
        name = task.text
        self.began.append(name)
        self.now.add(name)
        self.most = max(self.most, len(self.now))
        try:
            await self.gate(name).wait()
        finally:
            self.now.remove(name)
        return name

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    def let_go(self, names: Iterable[str]) -> None:
        for name in names:
            self.gate(name).set()


# Concurrency and queue


async def test_no_more_run_at_once_than_the_concurrency_allows_and_the_rest_waits_submitted():
    turns = Turns(concurrency=2)
    async with client(turns.agent) as host:
        tasks = [await send(host, name, wait=False) for name in "abcde"]
        await until(lambda: len(turns.now) == 2)
        states = [(await host.get(task)).status.state for task in tasks]
        assert states == [TaskState.WORKING] * 2 + [TaskState.SUBMITTED] * 3
        turns.let_go("abcde")
        for task in tasks:
            await until_state(host, task, TaskState.COMPLETED)
    assert turns.most == 2
    assert turns.began == list("abcde"), "those who wait begin in the order in which they came"


async def test_threads_are_limited_too():
    agent, gate, running = Agent("threads", concurrency=2), threading.Event(), []

    @agent.on_message
    def wait(task):
        running.append(task.text)
        gate.wait(PATIENCE_S)
        return task.text

    async with client(agent) as host:
        tasks = [await send(host, name, wait=False) for name in "abc"]
        await until(lambda: len(running) == 2)
        assert (await host.get(tasks[2])).status.state is TaskState.SUBMITTED
        gate.set()
        done = [await until_state(host, task, TaskState.COMPLETED) for task in tasks]
    assert [text_of(task) for task in done] == ["a", "b", "c"]


async def test_a_full_queue_is_429_with_retry_after_and_has_room_again_later():
    turns = Turns(concurrency=1, queue=2)
    async with client(turns.agent) as host:
        tasks = [await send(host, name, wait=False) for name in "abc"]
        with pytest.raises(CallFailed) as refusal:
            await host.send("d", wait=False)
        assert (refusal.value.status, refusal.value.reason) == (429, "TOO_MANY_REQUESTS")
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "e"}]}}
        response = await host.http.post("/agents/turns/message:send", json=body)
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body}
        response = await host.http.post("/agents/turns/", json=rpc)
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
        assert response.json()["error"]["data"][0]["reason"] == "TOO_MANY_REQUESTS"
        turns.let_go("abcf")
        for task in tasks:
            await until_state(host, task, TaskState.COMPLETED)
        assert text_of(await send(host, "f")) == "f"
        listed = (await host.http.get("/agents/turns/tasks")).json()["totalSize"]
    assert listed == 4, "a refused message leaves no task"


async def test_those_who_wait_for_their_turn_in_a_context_count_as_waiting():
    turns = Turns(queue=2)
    async with client(turns.agent) as host:
        for name in "abc":
            await send(host, name, context="one", wait=False)
        with pytest.raises(CallFailed, match="TOO_MANY_REQUESTS"):
            await host.send("d", context="one", wait=False)
        turns.let_go("abc")
        await until(lambda: turns.began == ["a", "b", "c"])


# Time


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_longer_than_wall_s_is_failed_and_stopped(kind, caplog):
    ended = threading.Event()

    async def async_generator(task):
        try:
            while True:
                yield "."
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    async def coroutine(task):
        try:
            while True:
                task.emit(".")
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    def generator(task):
        try:
            while True:
                yield "."
                time.sleep(0.01)
        finally:
            ended.set()

    def function(task):
        try:
            while True:
                task.emit(".")
                time.sleep(0.01)
        finally:
            ended.set()

    agent = Agent("long", wall_s=0.1)
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        task = await send(host, "go")
        assert task.status.state is TaskState.FAILED
        assert status_text(task) == "The agent exceeded its time limit of 0.1 s."
        await until(ended.is_set)
        assert await host.get(task) == task, "nothing is said after the end"
    assert "exceeded its time limit" in caplog.text


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        """The number of times that the clock was read."""

    def monotonic(self) -> float:
        self.looks += 1
        return self.now


async def test_a_run_silent_for_longer_than_silence_s_is_failed_and_stopped(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("roost.engine.runner.time", clock)
    agent, ended = Agent("silent", silence_s=0.1), asyncio.Event()

    @agent.on_message
    async def fall_silent(task):
        try:
            yield "last words"
            await until(lambda looks=clock.looks: clock.looks > looks, "a look at the limit")
            clock.now += 0.2
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with client(agent) as host:
        task = await send(host, "go")
        assert (task.status.state, text_of(task)) == (TaskState.FAILED, "last words")
        assert status_text(task) == "The agent was silent for longer than 0.1 s."
        await until(ended.is_set)


async def test_a_run_that_speaks_often_enough_is_not_silent(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("roost.engine.runner.time", clock)
    agent = Agent("talking", silence_s=0.01)

    @agent.on_message
    async def talk(task):
        for _ in range(5):
            yield "."
            clock.now += 0.009  # five times that is long over the limit
            looks = clock.looks
            await until(lambda looks=looks: clock.looks > looks, "a look at the limit")

    async with client(agent) as host:
        task = await send(host, "go")
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, ".....")


async def test_time_that_a_task_waits_for_its_client_counts_as_nothing(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("roost.engine.runner.time", clock)
    agent = Agent("patient", wall_s=0.01, silence_s=0.01)

    @agent.on_message
    async def ask(task):
        if task.text == "hang":
            await asyncio.Event().wait()
        yield (await task.ask("?")).text

    async with client(agent) as host:
        task = await send(host, "go")
        later = await send(host, "hang", wait=False)
        await until_state(host, later, TaskState.WORKING)
        clock.now += 3600
        await until_state(host, later, TaskState.FAILED)
        assert (await host.get(task)).status.state is TaskState.INPUT_REQUIRED
        done = await send(host, "at last", task=task)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "at last")


# Turns


async def test_turns_of_one_context_run_one_after_another_in_the_order_of_acceptance():
    turns = Turns()
    async with client(turns.agent) as host:
        tasks = [await send(host, name, context="one", wait=False) for name in "abcd"]
        await until(lambda: turns.now == {"a"})
        states = [(await host.get(task)).status.state for task in tasks]
        assert states == [TaskState.WORKING] + [TaskState.SUBMITTED] * 3
        turns.let_go("dcba")
        for task in tasks:
            await until_state(host, task, TaskState.COMPLETED)
    assert (turns.began, turns.most) == (list("abcd"), 1)


async def test_other_contexts_run_at_the_same_time():
    turns = Turns()
    async with client(turns.agent) as host:
        for name in "abc":
            await send(host, name, context=f"context {name}", wait=False)
        await until(lambda: turns.now == {"a", "b", "c"})
        turns.let_go("abc")
        await until(lambda: not turns.now)
    assert turns.most == 3


async def test_parallel_agents_run_the_turns_of_one_context_at_the_same_time():
    turns = Turns(parallel=True)
    async with client(turns.agent) as host:
        for name in "abc":
            await send(host, name, context="one", wait=False)
        await until(lambda: turns.now == {"a", "b", "c"})
        turns.let_go("abc")
        await until(lambda: not turns.now)
    assert turns.most == 3


async def test_a_turn_that_fails_lets_the_next_one_run():
    agent = Agent("failing")

    @agent.on_message
    async def fail(task):
        if task.text == "bad":
            raise ValueError
        return task.text

    async with client(agent) as host:
        bad, good = await asyncio.gather(send(host, "bad", context="one"), send(host, "good", context="one"))
    assert (bad.status.state, good.status.state) == (TaskState.FAILED, TaskState.COMPLETED)


async def test_a_paused_task_holds_neither_a_place_nor_the_turn_of_its_context():
    agent = Agent("asking", concurrency=1, queue=0)

    @agent.on_message
    async def ask(task):
        if task.text == "ask":
            yield (await task.ask("?")).text
        yield "done"

    async with client(agent) as host:
        paused = [await send(host, "ask", context="one") for _ in range(3)]
        assert {task.status.state for task in paused} == {TaskState.INPUT_REQUIRED}
        assert text_of(await send(host, "other", context="one")) == "done"
        answered = [await send(host, f"{number} ", task=task) for number, task in enumerate(paused)]
    assert [text_of(task) for task in answered] == ["0 done", "1 done", "2 done"]


# Messages to a task


async def test_a_message_to_a_working_task_is_refused_and_changes_nothing():
    turns = Turns()
    async with client(turns.agent) as host:
        task = await send(host, "a", wait=False)
        await until(lambda: turns.now == {"a"})
        with pytest.raises(CallFailed, match="UNSUPPORTED_OPERATION: Task is WORKING and takes no message now"):
            await host.send("more", task=task)
        turns.let_go("a")
        done = await until_state(host, task, TaskState.COMPLETED)
    assert [said.text for said in done.history] == ["a"]
    assert turns.began == ["a"]


async def test_a_message_to_a_waiting_task_is_refused():
    turns = Turns(concurrency=1)
    async with client(turns.agent) as host:
        await send(host, "a", wait=False)
        waiting = await send(host, "b", wait=False)
        with pytest.raises(CallFailed, match="UNSUPPORTED_OPERATION: Task is SUBMITTED"):
            await host.send("more", task=waiting)
        turns.let_go("ab")
        await until_state(host, waiting, TaskState.COMPLETED)


async def test_a_message_to_a_task_that_is_over_is_refused_and_says_what_to_do():
    turns = Turns()
    turns.let_go("a")
    async with client(turns.agent) as host:
        task = await send(host, "a")
        with pytest.raises(CallFailed, match=r"UNSUPPORTED_OPERATION.*without taskId to begin another task"):
            await host.send("more", task=task)


async def test_of_two_answers_at_once_exactly_one_is_accepted():
    agent, runs = Agent("asking"), []

    @agent.on_message
    async def ask(task):
        runs.append(1)
        yield (await task.ask("?")).text

    async with client(agent) as host:
        for round_ in range(10):
            task = await send(host, "go")
            calls = [host.send(f"answer {number}", task=task) for number in range(4)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            refused = [result for result in results if isinstance(result, CallFailed)]
            assert [error.reason for error in refused] == ["UNSUPPORTED_OPERATION"] * 3
            (done,) = [result for result in results if not isinstance(result, BaseException)]
            assert text_of(done) in [f"answer {number}" for number in range(4)]
            assert len(done.history) == 3, "the message, the question and one answer"
            assert len(runs) == 2 * (round_ + 1)


async def test_an_answer_with_another_context_is_refused_and_the_task_still_waits():
    agent = Agent("asking")

    @agent.on_message
    async def ask(task):
        yield (await task.ask("?")).text

    async with client(agent) as host:
        task = await send(host, "go")
        with pytest.raises(CallFailed, match=r"message\.contextId"):
            await host.send("answer", task=task, context="another")
        assert text_of(await send(host, "answer", task=task)) == "answer"
