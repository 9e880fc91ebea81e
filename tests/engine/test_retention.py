"""Tasks are kept as long as the policy says, also when the disk is nearly full or the clock goes backwards."""

from __future__ import annotations

import asyncio
import time

import pytest

from roost import Agent
from roost.engine import retention
from roost.engine.engine import Engine
from roost.engine.ids import now_us
from roost.engine.retention import RetentionPolicy, RetentionSweeper
from roost.engine.store_types import Append, StoredUsage, StoreUnavailable
from roost.protocol.entries import NO_CHAIN, link
from roost.protocol.types import TaskState
from roost.stores.memory import MemoryStore
from roost.testing import CallFailed
from tests.agents.talk import send, serving, text_of
from tests.waiting import until


def echoing() -> Agent:
    agent = Agent("echo")

    @agent.on_message
    async def echo(task):
        if task.text == "ask":
            await task.ask("what?")
        yield task.text

    return agent


async def set_status_time(store: MemoryStore, task_id: str, milliseconds: int) -> None:
    """The task has been as it is since then."""
    stored = await store.read_task(task_id)
    assert stored is not None
    head = stored.head._replace(status_time=milliseconds)
    assert await store.commit([Append(task_id, head.fence, [], None, head)]) == [None]


def sweeper(engine: Engine, policy: RetentionPolicy) -> RetentionSweeper:
    """The engine's sweeper, with another policy."""
    return RetentionSweeper(engine.store, engine.agents, engine.worker, engine.lives, engine.stats, policy, engine.disk)


class SmallDisk(MemoryStore):
    free = 1 << 40

    def free_bytes(self) -> int | None:
        return self.free


async def test_old_tasks_go_and_leave_a_tombstone_that_proves_their_last_entry():
    async with serving(echoing()) as (host, engine):
        old = [await send(host, f"old {number}") for number in range(5)]
        paused = await send(host, "ask")
        store = engine.store
        chains = {}
        for task in old:
            row = store.rows[task.id]
            chains[task.id] = (row.entries[-1].seq, row.entries[-1].chain)
            await set_status_time(store, task.id, row.head.status_time - 31 * retention.DAY_MS)
        new = await send(host, "new")
        await sweeper(engine, RetentionPolicy(days=30)).sweep()
        assert set(store.rows) == {paused.id, new.id}
        for task in old:
            tombstone = await store.read_tombstone(task.id)
            assert (tombstone.seq, tombstone.chain) == chains[task.id]
            assert tombstone.state is TaskState.COMPLETED
            with pytest.raises(CallFailed, match="TASK_NOT_FOUND"):
                await host.get(task)
        assert engine.stats.pruned == 5
        assert engine.stats.kept == [StoredUsage("echo", 2, store.rows[paused.id].size + store.rows[new.id].size)]


async def test_only_the_newest_are_kept_where_there_are_too_many():
    async with serving(echoing()) as (host, engine):
        tasks = [await send(host, str(number)) for number in range(6)]
        for number, task in enumerate(tasks):
            await set_status_time(engine.store, task.id, number)
        await sweeper(engine, RetentionPolicy(tasks=2)).sweep()
        assert set(engine.store.rows) == {tasks[4].id, tasks[5].id}


async def test_nothing_goes_where_everything_is_kept():
    async with serving(echoing()) as (host, engine):
        task = await send(host, "x")
        await set_status_time(engine.store, task.id, 0)
        await sweeper(engine, RetentionPolicy()).sweep()
        assert set(engine.store.rows) == {task.id}


async def test_a_disk_that_is_nearly_full_takes_no_new_tasks_and_lets_the_others_finish(caplog):
    store = SmallDisk()
    async with serving(echoing(), store=store) as (host, engine):
        engine.disk.min_free = 50
        waiting = await send(host, "ask")
        store.free = 49
        engine.disk.look()
        with pytest.raises(CallFailed, match="503 UNAVAILABLE: the disk of this host is nearly full"):
            await send(host, "new")
        assert (await host.http.get("/readyz")).status_code == 503
        assert text_of(await send(host, "go on", task=waiting)) == "ask"
        store.free = 51
        engine.disk.look()
        assert text_of(await send(host, "new")) == "new"
        assert (await host.http.get("/readyz")).status_code == 200
    assert "no new tasks" in caplog.text


async def test_what_is_written_is_accounted_for_by_agent():
    async with serving(echoing()) as (host, engine):
        task = await send(host, "x" * 1000)
        await engine.retention.sweep()
        [kept] = engine.stats.kept
        assert kept == ("echo", 1, engine.store.rows[task.id].size)
        assert kept.size > 1000
        text = (await host.http.get("/metrics")).text
        assert f'roost_stored_bytes{{agent="echo"}} {float(kept.size)}' in text
        assert "roost_oldest_task_seconds" in text


async def test_what_is_written_is_told_the_accounts_soon(monkeypatch):
    monkeypatch.setattr(retention, "ACCOUNT_S", 0.01)
    async with serving(echoing()) as (host, engine):
        task = await send(host, "x")
        row = engine.store.rows[task.id]
        accounts = [("tenant", row.new.scope.tenant), ("owner", row.new.scope.owner), ("agent", "echo")]

        async def told() -> bool:
            return await engine.store.stored_bytes(accounts) == [row.size] * 3

        await until(told)


async def test_what_the_accounts_could_not_be_told_is_told_later():
    class Broken(MemoryStore):
        broken = True

        async def add_usage(self, deltas):
            if self.broken:
                raise StoreUnavailable("not now")
            await super().add_usage(deltas)

    store = Broken()
    async with serving(echoing(), store=store) as (host, engine):
        first = await send(host, "first")
        with pytest.raises(StoreUnavailable):
            await engine.retention.account()
        second = await send(host, "second")
        store.broken = False
        await engine.retention.account()
        await engine.retention.account()
        assert await store.usage() == [StoredUsage("echo", 2, store.rows[first.id].size + store.rows[second.id].size)]


async def test_a_host_that_stops_tells_the_accounts_all_and_nothing_twice(monkeypatch):
    class Slow(MemoryStore):
        def __init__(self):
            super().__init__()
            self.asked, self.go_on = asyncio.Event(), asyncio.Event()

        async def add_usage(self, deltas):
            self.asked.set()
            await self.go_on.wait()
            await super().add_usage(deltas)

    monkeypatch.setattr(retention, "ACCOUNT_S", 0.01)
    store = Slow()
    async with serving(echoing(), store=store) as (host, engine):
        first = await send(host, "first")
        await store.asked.wait()
        second = await send(host, "second")
        closing = asyncio.ensure_future(engine.retention.close())
        await until(lambda: engine.retention.accounting._waiters)
        store.go_on.set()
        await closing
        assert await store.usage() == [StoredUsage("echo", 2, store.rows[first.id].size + store.rows[second.id].size)]


async def test_a_clock_that_goes_backwards_loses_no_task_and_no_order(monkeypatch):
    ahead = 3_600_000_000_000
    real = time.time_ns
    async with serving(echoing()) as (host, engine):
        monkeypatch.setattr(time, "time_ns", lambda: real() + ahead)
        first = await send(host, "first")
        paused = await send(host, "ask")
        monkeypatch.setattr(time, "time_ns", real)
        assert now_us() < engine.store.rows[first.id].new.created
        second = await send(host, "second")
        answered = await send(host, "answer", task=paused)
        assert answered.status.state is TaskState.COMPLETED
        listed = (await host.http.get("/agents/echo/tasks")).json()["tasks"]
        assert {task["id"] for task in listed} == {first.id, paused.id, second.id}
        for row in engine.store.rows.values():
            chain = NO_CHAIN
            for entry in row.entries:
                chain = link(chain, *entry[:6])
                assert chain == entry.chain
            assert [entry.seq for entry in row.entries if not entry.sub] == list(range(1, row.entries[-1].seq + 1))
        await until(lambda: not engine.lives.by_id)
