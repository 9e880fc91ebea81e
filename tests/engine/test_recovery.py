"""A new host continues the tasks that another one left in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from roost import Agent
from roost.engine.engine import Engine
from roost.engine.ids import now_us
from roost.engine.journal import PAGE
from roost.engine.recovery import MAX_ATTEMPTS
from roost.engine.store_types import Adopted, Append, StoreUnavailable
from roost.fleet.registry import Registry
from roost.identity.principal import LOCAL
from roost.protocol.codec import decoder
from roost.protocol.entries import ATTEMPT, MESSAGE, NO_CHAIN, STATUS, Entry
from roost.protocol.types import StreamResponse, TaskState
from tests.agents.programs import MortalStore, abandon, request
from tests.agents.talk import said, send, serving, states, status_text, text_of, until_state
from tests.waiting import PATIENCE_S, until


class Left:
    """A store with tasks that a dead host left in the middle: one message each, WORKING."""

    def __init__(self, **options: object) -> None:
        self.store = FlakyStore()
        self.options = options
        self.called: list[str] = []
        self.gate = asyncio.Event()

    def agent(self) -> Agent:
        agent = Agent("left", **self.options)

        @agent.on_message
        async def work(task):
            self.called.append(task.text)
            yield f"{task.text} begun "
            await self.gate.wait()
            yield "ended"

        return agent

    async def leave(self, *texts: str) -> list[str]:
        engine = await self.engine("dead worker")
        for text in texts:
            await engine.send(LOCAL, "left", request(text, wait=False))
        await until(lambda: len(self.called) >= len(texts))
        for task_id in self.store.rows:
            await until(lambda task_id=task_id: any(e.kind == "a" for e in self.store.rows[task_id].entries))
        await abandon(engine)
        return list(self.store.rows)

    async def engine(self, worker: str) -> Engine:
        engine = Engine(self.store, Registry([self.agent().hosted()]), worker)
        await engine.start()
        return engine

    def state(self, task_id: str) -> TaskState:
        return self.store.rows[task_id].head.state


class FlakyStore(MortalStore):
    """Does not answer for a while."""

    failures = 0
    failures_of_records = 0

    async def close(self) -> None:
        """It can be read afterwards."""

    async def read_internal(self, task_id: str) -> list[Entry]:
        if self.failures_of_records:
            self.failures_of_records -= 1
            raise StoreUnavailable("not now")
        return await super().read_internal(task_id)

    async def adopt(self, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("not yet")
        return await super().adopt(worker, agents, limit)


async def test_every_task_that_was_left_goes_on_oldest_first():
    left = Left()
    tasks = await left.leave("one", "two", "three")
    left.gate.set()
    engine = await left.engine("new worker")
    await until(lambda: all(left.state(task_id) is TaskState.COMPLETED for task_id in tasks))
    assert left.called == ["one", "two", "three"] * 2
    assert {row.head.fence for row in left.store.rows.values()} == {2}, "every writer before is outdated"
    await until(lambda: not engine.lives.by_id)
    await engine.close()


async def test_a_store_that_does_not_answer_at_the_start_delays_recovery_and_does_not_end_it(caplog):
    left = Left()
    (task_id,) = await left.leave("one")
    left.gate.set()
    left.store.failures = 1
    engine = await left.engine("new worker")
    await until(lambda: left.state(task_id) is TaskState.COMPLETED)
    await engine.close()
    assert "not yet" in caplog.text


async def test_a_store_that_fails_while_a_task_is_taken_over_does_not_leave_it_behind():
    left = Left()
    (task_id,) = await left.leave("one")
    left.gate.set()
    left.store.failures_of_records = 1
    engine = await left.engine("new worker")
    try:
        await asyncio.wait_for(engine.recovered.wait(), PATIENCE_S)
        assert task_id in engine.lives.by_id or left.state(task_id) is TaskState.COMPLETED, (
            "recovery is over, without it"
        )
        await until(lambda: left.state(task_id) is TaskState.COMPLETED)
    finally:
        await engine.close()


async def test_a_task_that_cannot_be_read_does_not_keep_the_others_from_going_on(caplog):
    left = Left()
    broken, whole = await left.leave("broken", "whole")
    head, last = left.store.rows[broken].head, left.store.rows[broken].entries[-1]
    unreadable = Entry(last.seq + 1, 0, STATUS, b"not json", now_us(), 0, NO_CHAIN)
    assert await left.store.commit([Append(broken, head.fence, [unreadable], None, head)]) == [None]
    left.gate.set()
    engine = await left.engine("new worker")
    await until(lambda: left.state(whole) is TaskState.COMPLETED)
    await engine.close()
    assert broken in caplog.text


async def test_tasks_of_agents_that_are_not_served_here_are_left_alone():
    left = Left()
    (task_id,) = await left.leave("one")
    other = Agent("other")
    other.on_message(lambda task: None)
    engine = Engine(left.store, Registry([other.hosted()]), "new worker")
    await engine.start()
    await asyncio.wait_for(engine.recovered.wait(), PATIENCE_S)
    assert (left.state(task_id), left.store.rows[task_id].head.fence) == (TaskState.WORKING, 1)
    assert left.store.rows[task_id].head.worker == "dead worker"
    await engine.close()


async def test_an_attempt_is_on_record_before_the_agent_is_called_again():
    left = Left()
    (task_id,) = await left.leave("one")
    engine = await left.engine("new worker")
    await until(lambda: len(left.called) == 2)
    kinds = [entry.kind for entry in await left.store.read_internal(task_id)]
    assert kinds == [MESSAGE, ATTEMPT]
    await abandon(engine)


async def test_a_task_that_was_tried_too_often_is_failed_and_its_agent_not_called(monkeypatch):
    monkeypatch.setattr("roost.engine.recovery.BACKOFF_S", (0.0,) * MAX_ATTEMPTS)
    left = Left()
    (task_id,) = await left.leave("one")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        engine = await left.engine(f"worker {attempt}")
        await until(lambda attempt=attempt: len(left.called) == 1 + attempt)
        await abandon(engine)
    engine = await left.engine("last worker")
    await until(lambda: left.state(task_id) is TaskState.FAILED)
    await engine.close()
    assert len(left.called) == 1 + MAX_ATTEMPTS


async def test_a_step_is_progress_and_makes_the_attempts_before_it_count_for_nothing(monkeypatch):
    monkeypatch.setattr("roost.engine.recovery.BACKOFF_S", (0.0,) * MAX_ATTEMPTS)
    store, called = MortalStore(), []

    def agent() -> Agent:
        made = Agent("progress")

        @made.on_message
        async def work(task):
            called.append(1)
            for number in range(2 * MAX_ATTEMPTS):
                yield await task.step("count", lambda number=number: f"{number} ")
                if number + 1 == len(called):
                    store.dead = True
                    await asyncio.Event().wait()

        return made

    for worker in range(2 * MAX_ATTEMPTS + 1):
        engine = Engine(store, Registry([agent().hosted()]), f"worker {worker}")
        await engine.start()
        if worker == 0:
            await engine.send(LOCAL, "progress", request("go", wait=False))
        (row,) = store.rows.values()
        await until(lambda row=row: store.dead or row.head.state is TaskState.COMPLETED)
        store.dead = False
        await abandon(engine)
    assert row.head.state is TaskState.COMPLETED
    assert len(called) == 2 * MAX_ATTEMPTS + 1


async def test_a_task_that_someone_else_took_is_not_run_here():
    left = Left()
    (task_id,) = await left.leave("one")
    taken = left.store.adopt

    async def too_late(worker, agents, limit):
        adopted = await taken(worker, agents, limit) if worker == "new worker" and not faster else []
        if adopted:
            faster.extend(await taken("a faster worker", agents, limit))
        return adopted

    faster = []
    left.store.adopt = too_late
    engine = await left.engine("new worker")
    await asyncio.wait_for(engine.recovered.wait(), PATIENCE_S)
    assert (engine.lives.by_id, engine.runner.runs, len(left.called)) == ({}, {}, 1)
    assert left.store.rows[task_id].head.worker == "a faster worker"
    await engine.close()


async def test_more_steps_than_a_page_without_a_word_between_them_are_read_all():
    agent, ran = Agent("silent"), []

    @agent.on_message
    async def work(task):
        for number in range(PAGE + 100):
            await task.step("count", ran.append, number)
        yield (await task.ask("?")).text
        await task.ask("And?")

    async with serving(agent) as (host, engine):
        task = await send(host, "go")
        await until(lambda: not engine.lives.by_id)
        second = await send(host, "answer", task=task)
        assert (second.status.state, text_of(second)) == (TaskState.INPUT_REQUIRED, "answer")
        assert ran == list(range(PAGE + 100))
        await host.cancel(task)
        response = await host.http.get(f"/agents/silent/tasks/{task.id}:subscribe", headers={"Last-Event-ID": "5"})
        lines = [line for line in response.content.split(b"\n") if line.startswith(b"data: ")]
        opening = decoder(StreamResponse)(lines[0][6:]).task
    assert [said.text for said in opening.history] == ["go", "?", "answer"]


# Graceful stops


def interrupted(how: str, gate: asyncio.Event, **options: object) -> Agent:
    """An agent that does something of its own when it is stopped."""
    agent = Agent("interrupted", **options)

    @agent.on_message
    async def work(task):
        yield "begun "
        try:
            await gate.wait()
        except asyncio.CancelledError:
            if how == "raises":
                raise RuntimeError("something went wrong while I was stopped") from None
            if how == "says":
                yield "[stopped]"
            if how == "asks":
                await task.ask("Why?")
            return
        yield "ended"

    return agent


@pytest.mark.parametrize("how", ["returns", "raises", "says", "asks"])
async def test_what_an_agent_does_when_the_host_stops_does_not_end_its_task(how, tmp_path: Path):
    """Otherwise every deployment would end the tasks in flight, and their results would be halves."""
    gate = asyncio.Event()
    async with serving(interrupted(how, gate), data=str(tmp_path)) as (host, _):
        task = await send(host, "go", wait=False)
        await until(lambda: said(host, task))
    gate.set()
    async with serving(interrupted(how, gate), data=str(tmp_path)) as (host, _):
        done = await until_state(host, task, *_ends())
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "begun ended")


def _ends() -> tuple[TaskState, ...]:
    return (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.INPUT_REQUIRED)


async def test_an_agent_that_is_not_called_twice_is_failed_by_a_restart_and_the_client_is_told_why(tmp_path: Path):
    def agent() -> Agent:
        made = Agent("once", on_crash="fail")

        @made.on_message
        async def work(task):
            yield "begun"
            await asyncio.Event().wait()

        return made

    async with serving(agent(), data=str(tmp_path)) as (host, _):
        task = await send(host, "go", wait=False)
        await until(lambda: said(host, task))
    async with serving(agent(), data=str(tmp_path)) as (host, _):
        failed = await until_state(host, task, TaskState.FAILED)
    assert (text_of(failed), "interrupted" in status_text(failed)) == ("begun", True)


async def test_an_agent_that_is_not_called_twice_is_working_while_it_works_like_any_other():
    agent = Agent("once", on_crash="fail")

    @agent.on_message
    async def work(task):
        yield "said"

    async with serving(agent) as (host, _):
        events = await host.stream("go")
    assert states(events) == [TaskState.WORKING, TaskState.COMPLETED]


async def test_a_turn_that_was_left_goes_on_before_a_new_one_of_its_context():
    """Also while it waits for its next attempt: the new turn must not overtake it."""
    left = Left()
    (task_id,) = await left.leave("one")
    context = left.store.rows[task_id].new.context_id
    hosted = left.agent()
    engine = Engine(left.store, Registry([hosted.hosted()]), "new worker")
    await engine.start()
    asked = request("two", wait=False)
    asked.message.context_id = context
    await engine.send(LOCAL, "left", asked)
    await until(lambda: len(left.called) == 2)
    await engine.send(LOCAL, "left", request("three", wait=False))
    await until(lambda: "three" in left.called)
    assert left.called == ["one", "one", "three"], "the new turn waits"
    left.gate.set()
    await until(lambda: left.called == ["one", "one", "three", "two"])
    await until(lambda: not engine.lives.by_id)
    await engine.close()


async def test_tasks_that_were_adopted_and_not_begun_are_handed_over_when_the_host_stops():
    left = Left()
    (task_id,) = await left.leave("one")
    engine = await left.engine("new worker")
    left.store.failures_of_records = 10_000
    await until(lambda: left.store.rows[task_id].head.worker == "new worker")
    await engine.close()
    assert left.store.rows[task_id].head.worker is None
    left.store.failures_of_records = 0
    left.gate.set()
    last = await left.engine("last worker")
    await until(lambda: left.state(task_id) is TaskState.COMPLETED)
    assert last.stats.adopted == {"handed over": 1, "worker lost": 0}
    await last.close()
