"""Any host answers any request: send on one, follow on another, cancel on a third."""

from __future__ import annotations

import asyncio
import time

import pytest

from roost import Agent
from roost.engine import leases, recovery, remote_tasks
from roost.engine.engine import Engine
from roost.engine.follower import SUBSCRIBE_ENDS
from roost.engine.store_types import Adopted, StoreUnavailable
from roost.identity.principal import LOCAL
from roost.protocol.states import ACTIVE
from roost.protocol.types import CancelTaskRequest, SubscribeToTaskRequest, TaskState
from tests.agents.talk import text_of, until_state
from tests.engine.shared import Bus, SharedStore, replicas
from tests.waiting import until


class Fleet:
    """Agents that say what they do, held up until the gate opens."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.called: list[str] = []
        self.stopped: list[str] = []

    def agent(self) -> Agent:
        agent = Agent("talker")

        @agent.on_message
        async def talk(task):
            self.called.append(task.text)
            yield "one "
            if task.text == "ask":
                yield (await task.ask("what?")).text
                return
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.stopped.append(task.text)
                raise
            yield "two"

        return agent


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases and looks that a test need not wait for."""
    monkeypatch.setattr(leases, "LEASE_S", 600.0)
    monkeypatch.setattr(leases, "RENEW_S", 0.05)
    monkeypatch.setattr(recovery, "LOOK_S", 0.05)
    monkeypatch.setattr(remote_tasks, "POLL_S", 0.05)


async def follow(engine: Engine, task_id: str) -> list[bytes]:
    stream = await engine.subscribe(LOCAL, "talker", SubscribeToTaskRequest(id=task_id))
    assert stream.follower is not None
    frames = []
    try:
        while (batch := await stream.follower.batch()) is not None:
            frames += [frame.data for frame in batch]
    finally:
        stream.release()
    return frames


async def test_a_task_that_one_host_runs_is_read_and_followed_on_another():
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("go", wait=False)
        await until(lambda: fleet.called)
        assert (await b.client.get(task)).status.state is TaskState.WORKING
        following = asyncio.create_task(follow(b.engine, task.id))
        await until(lambda: b.engine.lives.by_id[task.id].ring if task.id in b.engine.lives.by_id else False)
        fleet.gate.set()
        frames = await following
        assert b'"two"' in frames[0]
        assert b"TASK_STATE_COMPLETED" in frames[-1]
        assert text_of(await b.client.get(task)) == "one two"
        await until(lambda: not b.engine.lives.by_id), "nobody looks at it any more"


async def test_what_one_host_has_acknowledged_another_knows_at_once_even_if_no_wake_up_comes():
    fleet, bus = Fleet(), Bus()
    bus.deaf = True
    fleet.gate.set()
    async with replicas(fleet.agent, bus=bus) as (a, b):
        task = await a.client.send("ask")
        assert (await b.client.get(task)).status.state is TaskState.INPUT_REQUIRED
        done = await b.client.send("you", task=task)
        assert text_of(done) == "one you"
        assert text_of(await a.client.get(task)) == "one you"


async def test_a_lost_wake_up_costs_time_and_nothing_else(quick):
    fleet, bus = Fleet(), Bus()
    async with replicas(fleet.agent, bus=bus) as (a, b):
        task = await a.client.send("go", wait=False)
        following = asyncio.create_task(follow(b.engine, task.id))
        await until(lambda: b.engine.lives.by_id[task.id].ring if task.id in b.engine.lives.by_id else False)
        bus.deaf = True
        fleet.gate.set()
        assert b"TASK_STATE_COMPLETED" in (await following)[-1]


async def test_a_cancel_on_another_host_stops_the_agent():
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("go", wait=False)
        await until(lambda: fleet.called)
        canceled = await b.client.cancel(task)
        assert canceled.status.state is TaskState.CANCELED
        assert fleet.stopped == ["go"]
        assert (await a.client.get(task)).status.state is TaskState.CANCELED


async def test_a_paused_task_is_canceled_by_the_host_that_is_asked():
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("ask")
        canceled = await b.client.cancel(task)
        assert canceled.status.state is TaskState.CANCELED
        assert (await a.client.get(task)).status.state is TaskState.CANCELED


async def test_a_stream_stays_open_through_a_question_that_another_host_gets_the_answer_to():
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("ask")
        following = asyncio.create_task(follow(a.engine, task.id))
        await until(lambda: a.engine.lives.by_id[task.id].ring if task.id in a.engine.lives.by_id else False)
        await b.client.send("answer", task=task)
        frames = await following
        assert b'"answer"' in frames[-2]
        assert b"TASK_STATE_COMPLETED" in frames[-1]


async def test_one_of_two_answers_at_the_same_time_wins_and_the_other_is_refused():
    fleet = Fleet()
    fleet.gate.set()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("ask")
        results = await asyncio.gather(
            a.client.send("left", task=task), b.client.send("right", task=task), return_exceptions=True
        )
        [done] = [result for result in results if not isinstance(result, BaseException)]
        [refused] = [result for result in results if isinstance(result, BaseException)]
        assert text_of(done) in ("one left", "one right")
        assert "UNSUPPORTED_OPERATION" in str(refused)
        assert len((await a.client.get(task)).history) == 3, "the message, the question, one answer"


async def test_the_task_of_a_host_that_died_goes_on_on_another_and_its_client_there(quick):
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("go", wait=False)
        await until(lambda: fleet.called)
        following = asyncio.create_task(follow(b.engine, task.id))
        await until(lambda: b.engine.lives.by_id[task.id].ring if task.id in b.engine.lives.by_id else False)
        a.die()
        await until(lambda: len(fleet.called) == 2)
        fleet.gate.set()
        assert b"TASK_STATE_COMPLETED" in (await following)[-1]
        assert text_of(await b.client.get(task)) == "one two"
        assert b.engine.stats.adopted["worker lost"] == 1


async def test_a_host_that_cannot_renew_its_lease_stops_its_agents_and_begins_anew(quick, monkeypatch):
    fleet, store = Fleet(), SharedStore()
    async with replicas(fleet.agent, store=store) as (a, _):
        name = a.engine.worker.name
        waiting = asyncio.create_task(a.client.send("go"))
        await until(lambda: fleet.called)
        with monkeypatch.context() as short:
            short.setattr(leases, "LEASE_S", 2.0)
            await until(lambda: store.leases[name] < time.monotonic() + 2.0)
            store.cut.add(name)
            await until(lambda: fleet.stopped), "the agent is stopped before another takes its task"
        await until(lambda: len(fleet.called) == 2)
        fleet.gate.set()
        done = await waiting
        assert text_of(done) == "one two", "whoever waited on the first host has the answer of the second"
        assert a.engine.worker.name != name
        await until(lambda: a.engine.worker.has_lease)
        assert text_of(await a.client.send("again")) == "one two", "the host serves again, under another name"


async def test_a_host_that_lost_its_lease_records_that_it_lives_on_and_has_another_even_if_it_cannot(quick, caplog):
    class Forgetful(SharedStore):
        asked = 0

        async def survive(self, worker: str) -> None:
            self.asked += 1
            if self.asked == 1:
                raise StoreUnavailable("the table cannot be written")
            await super().survive(worker)

    store = Forgetful()
    async with replicas(Fleet().agent, count=1, store=store) as (a,):
        name = a.engine.worker.name
        store.leases[name] = 0.0
        await until(lambda: a.engine.worker.name != name and a.engine.worker.has_lease)
        assert "the table cannot be written" in caplog.text
        await until(lambda: store.survived == {name})


async def test_turns_of_one_context_run_one_after_another_across_hosts():
    running, most, order = 0, 0, []
    gate = asyncio.Event()

    def agent() -> Agent:
        agent = Agent("turns")

        @agent.on_message
        async def turn(task):
            nonlocal running, most
            running += 1
            most = max(most, running)
            order.append(task.text)
            await (gate.wait() if task.text == "0" else asyncio.sleep(0.01))
            running -= 1
            yield "done"

        return agent

    async with replicas(agent, 3) as hosts:
        first = await hosts[0].client.send("0", wait=False)
        await until(lambda: order == ["0"])
        tasks = []
        for number in range(1, 6):
            tasks.append(await hosts[number % 3].client.send(str(number), context=first.context_id, wait=False))
        assert {(await hosts[0].client.get(task)).status.state for task in tasks} == {TaskState.SUBMITTED}
        gate.set()
        for task in tasks:
            await until_state(hosts[0].client, task, TaskState.COMPLETED)
    assert most == 1
    assert order == [str(number) for number in range(6)]


async def test_a_task_that_waits_for_its_turn_can_be_canceled_on_any_host():
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        first = await a.client.send("go", wait=False)
        second = await b.client.send("later", context=first.context_id, wait=False)
        assert (await a.client.cancel(second)).status.state is TaskState.CANCELED
        fleet.gate.set()
        await until_state(a.client, first, TaskState.COMPLETED)
    assert fleet.called == ["go"]


async def test_a_host_that_is_told_to_stop_hands_its_tasks_over_and_that_is_no_attempt(quick):
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("go", wait=False)
        await until(lambda: fleet.called)
        a.host.grace_until = 0
        await a.host.close()
        a.engine.draining.set()
        await until(lambda: len(fleet.called) == 2)
        fleet.gate.set()
        await until_state(b.client, task, TaskState.COMPLETED)
        assert text_of(await b.client.get(task)) == "one two"
        assert b.engine.stats.adopted == {"handed over": 1, "worker lost": 0}
        store = b.engine.store
        assert not [entry for entry in store.rows[task.id].entries if entry.kind == "n"]


async def test_a_running_task_has_its_grace_when_the_host_is_told_to_stop():
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("go", wait=False)
        await until(lambda: fleet.called)
        a.host.drain()
        closing = asyncio.create_task(a.host.close())
        fleet.gate.set()
        await closing
        assert text_of(await b.client.get(task)) == "one two"
        assert len(fleet.called) == 1


async def test_a_cancel_waits_no_longer_than_it_may_for_a_host_that_does_not_answer(monkeypatch):
    from roost.engine import cancellation

    monkeypatch.setattr(cancellation, "CANCEL_WAIT_S", 0.05)
    fleet = Fleet()
    async with replicas(fleet.agent) as (a, b):
        task = await a.client.send("go", wait=False)
        await until(lambda: fleet.called)
        for worker in a.engine.remote_tasks.tasks:
            worker.cancel()
        body = await b.engine.cancel(LOCAL, "talker", CancelTaskRequest(id=task.id))
        assert b"TASK_STATE_WORKING" in body
        fleet.gate.set()
        await until_state(b.client, task, TaskState.COMPLETED)


async def test_send_and_follow_see_every_event_once_in_order_across_hosts():
    def agent() -> Agent:
        agent = Agent("talker")

        @agent.on_message
        async def count(task):
            for number in range(500):
                yield f"{number},"
                if number % 50 == 0:
                    await asyncio.sleep(0.002)

        return agent

    async with replicas(agent) as (a, b):
        task = await a.client.send("go", wait=False)
        live = await b.engine.lives.find(LOCAL, "talker", task.id)
        follower = b.engine.lives.follow(live, 1, SUBSCRIBE_ENDS)
        b.engine.lives.unhold(live)
        seqs = []
        while (batch := await follower.batch()) is not None:
            seqs += [frame.seq for frame in batch]
        follower.release()
        assert seqs == list(range(2, 2 + len(seqs)))
        assert text_of(await a.client.get(task)) == "".join(f"{number}," for number in range(500))


async def test_an_answer_that_is_on_record_is_run_although_the_store_does_not_answer_for_a_while(quick):
    class Deaf(SharedStore):
        deaf = 0

        async def read_internal(self, task_id):
            if self.deaf:
                self.deaf -= 1
                raise StoreUnavailable("not now")
            return await super().read_internal(task_id)

    fleet, store = Fleet(), Deaf()
    async with replicas(fleet.agent, store=store) as (a, _):
        task = await a.client.send("ask")
        store.deaf = 3
        assert text_of(await a.client.send("you", task=task)) == "one you"


async def test_tasks_whose_adoption_was_answered_to_nobody_are_found(quick):
    class Mute(SharedStore):
        mute = False

        async def adopt(self, worker, agents, limit):
            adopted = await super().adopt(worker, agents, limit)
            if adopted and not self.mute:
                self.mute = True
                raise StoreUnavailable("the answer was lost")
            return adopted

    fleet, store = Fleet(), Mute()
    async with replicas(fleet.agent, store=store) as (a, b):
        task = await a.client.send("go", wait=False)
        await until(lambda: fleet.called)
        a.die()
        await until(lambda: len(fleet.called) == 2)
        fleet.gate.set()
        await until_state(b.client, task, TaskState.COMPLETED)
        assert store.mute


async def test_turns_that_are_adopted_out_of_order_run_in_order(quick):
    """The later one may be found first: what the store says of turns and what the host's own queue says must agree."""

    class OneByOne(SharedStore):
        async def adopt(self, worker, agents, limit):
            left = [row for row in self.rows.values() if row.head.state in ACTIVE and not self.alive(row.head.worker)]
            if len(left) > 1:  # the youngest first
                row = max(left, key=lambda row: row.new.created)
                row.head = row.head._replace(worker=worker, fence=row.head.fence + 1)
                return [Adopted(row.new.id, row.head.fence, False)]
            return await super().adopt(worker, agents, limit)

    fleet, store = Fleet(), OneByOne()
    async with replicas(fleet.agent, store=store) as (a, b):
        first = await a.client.send("first", wait=False)
        await until(lambda: fleet.called)
        later = [await a.client.send(text, context=first.context_id, wait=False) for text in ("second", "third")]
        fleet.called.clear()
        a.die()
        fleet.gate.set()
        for task in (first, *later):
            await until_state(b.client, task, TaskState.COMPLETED)
    assert fleet.called == ["first", "second", "third"]
