"""A follower reads at its own pace, from the ring or from the store, without a gap and without a repeat."""

from __future__ import annotations

import asyncio

import pytest

from roost import Agent
from roost.engine.engine import Engine
from roost.engine.responses import TaskStream
from roost.engine.ring import StreamFrame
from roost.engine.store_types import StoreUnavailable
from roost.identity.principal import LOCAL
from roost.protocol.codec import decoder
from roost.protocol.types import StreamResponse, SubscribeToTaskRequest, TaskState
from roost.stores.memory import MemoryStore
from roost.testing import CallFailed
from tests.agents.programs import request
from tests.agents.talk import apply, send, serving, text_of, until_state
from tests.engine.gates import GateStore
from tests.waiting import PATIENCE_S, until


class Bursts:
    """An agent that says pieces in bursts of the size that the test asks for; a burst of 0 ends it."""

    def __init__(self) -> None:
        self.wanted: asyncio.Queue[int] = asyncio.Queue()
        self.said = 0
        self.agent = Agent("bursts")
        self.agent.on_message(self._run)

    async def _run(self, task):
        while size := await self.wanted.get():
            for _ in range(size):
                yield f"{self.said} "
                self.said += 1

    def text(self) -> str:
        return "".join(f"{number} " for number in range(self.said))


class CountedStore(GateStore):
    """Knows how often followers read from it."""

    reads = 0

    async def read_entries(self, task_id, after, limit, *, wire, **rest):
        self.reads += wire
        return await super().read_entries(task_id, after, limit, wire=wire, **rest)


async def subscribe(engine: Engine, task_id: str, last: int | None = None) -> TaskStream:
    return await engine.subscribe(LOCAL, "bursts", SubscribeToTaskRequest(id=task_id), last)


async def read_all(engine: Engine, stream: TaskStream) -> list[StreamFrame]:
    frames: list[StreamFrame] = []
    try:
        while (batch := await asyncio.wait_for(stream.follower.batch(), PATIENCE_S)) is not None:
            frames += batch
    finally:
        stream.release()
    return frames


def without_gap(stream: TaskStream, frames: list[StreamFrame], first: int | None = None) -> str:
    """The text that a client has in the end; the seqs must be all there are."""
    begin = (stream.position if first is None else first) + 1
    assert [frame.seq for frame in frames] == list(range(begin, begin + len(frames)))
    text = apply("", decoder(StreamResponse)(b'{"task":%b}' % stream.opening.task))
    for frame in frames:
        text = apply(text, decoder(StreamResponse)(frame.data))
    return text


async def test_a_follower_that_fell_out_of_the_ring_reads_on_from_the_store(monkeypatch):
    monkeypatch.setattr("roost.engine.ring.RING_ENTRIES", 16)
    bursts, store = Bursts(), CountedStore()
    async with serving(bursts.agent, store=store) as (host, engine):
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        slow, fast = await subscribe(engine, task.id), await subscribe(engine, task.id)
        reading = asyncio.create_task(read_all(engine, fast))
        live = engine.lives.by_id[task.id]
        for size in (5, 40, 300, 1000):
            bursts.wanted.put_nowait(size)
            await until(lambda: bursts.said and live.shown_seq >= bursts.said)
        await until(lambda: bursts.said == 1345)
        assert len(live.ring.frames) <= 16
        assert slow.follower.position < live.ring.frames[0].seq - 1, "it fell behind the ring"
        bursts.wanted.put_nowait(0)
        frames = await read_all(engine, slow)
        assert without_gap(fast, await reading) == without_gap(slow, frames) == bursts.text()
        assert store.reads > 1
        assert frames[-1].state is TaskState.COMPLETED


async def test_a_follower_of_a_large_ring_by_bytes_is_served_all_the_same(monkeypatch):
    monkeypatch.setattr("roost.engine.ring.RING_BYTES", 1)
    bursts = Bursts()
    async with serving(bursts.agent) as (host, engine):
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        stream = await subscribe(engine, task.id)
        for size in (3, 7, 0):
            bursts.wanted.put_nowait(size)
        assert without_gap(stream, await read_all(engine, stream)) == bursts.text()


async def test_a_follower_that_keeps_up_never_touches_the_store():
    bursts, store = Bursts(), CountedStore()
    async with serving(bursts.agent, store=store) as (host, engine):
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        stream = await subscribe(engine, task.id)
        reading = asyncio.create_task(read_all(engine, stream))
        for _ in range(20):
            bursts.wanted.put_nowait(10)
        bursts.wanted.put_nowait(0)
        assert without_gap(stream, await reading) == bursts.text()
    assert store.reads == 0


async def test_followers_that_come_in_the_middle_see_the_task_and_then_the_rest():
    bursts = Bursts()
    async with serving(bursts.agent) as (host, engine):
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        readings = []
        for _ in range(5):
            bursts.wanted.put_nowait(20)
            stream = await subscribe(engine, task.id)
            readings.append((stream, asyncio.create_task(read_all(engine, stream))))
            await asyncio.sleep(0)
        bursts.wanted.put_nowait(0)
        for stream, reading in readings:
            assert without_gap(stream, await reading) == bursts.text()


async def test_a_stream_resumes_after_any_event_also_when_the_task_is_over():
    bursts = Bursts()
    async with serving(bursts.agent) as (host, engine):
        for size in (30, 0):
            bursts.wanted.put_nowait(size)
        task = await send(host, "go")
        last = 33  # SUBMITTED, WORKING, 30 pieces, COMPLETED
        for position in range(1, last + 1):
            stream = await subscribe(engine, task.id, position)
            frames = await read_all(engine, stream)
            assert len(frames) == last - position
            assert without_gap(stream, frames, position) == bursts.text()
        for wrong in ("0", str(last + 1)):
            response = await host.http.get(
                f"/agents/bursts/tasks/{task.id}:subscribe", headers={"Last-Event-ID": wrong}
            )
            assert response.status_code == 400


async def test_a_slow_follower_does_not_slow_the_task_or_other_followers():
    bursts = Bursts()
    async with serving(bursts.agent) as (host, engine):
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        stuck, reader = await subscribe(engine, task.id), await subscribe(engine, task.id)
        for size in (3000, 0):
            bursts.wanted.put_nowait(size)
        assert without_gap(reader, await read_all(engine, reader)) == bursts.text()
        assert (await host.get(task)).status.state is TaskState.COMPLETED
        assert without_gap(stuck, await read_all(engine, stuck)) == bursts.text()


async def test_a_stream_of_a_send_ends_where_the_caller_has_to_act_and_a_subscription_goes_on():
    agent = Agent("bursts")

    @agent.on_message
    async def ask(task):
        yield (await task.ask("?")).text

    async with serving(agent) as (host, engine):
        sent = await engine.stream(LOCAL, "bursts", request("go"))
        task_id = decoder(StreamResponse)(b'{"task":%b}' % sent.opening.task).task.id
        subscribed = await subscribe(engine, task_id)
        reading = asyncio.create_task(read_all(engine, subscribed))
        assert (await read_all(engine, sent))[-1].state is TaskState.INPUT_REQUIRED
        assert not reading.done()
        await send(host, "answer", task=task_id)
        frames = await reading
        assert [frame.state for frame in frames if frame.state][-1] is TaskState.COMPLETED
        assert without_gap(subscribed, frames) == "answer"


async def test_a_plain_subscription_to_a_task_that_is_over_is_refused():
    bursts = Bursts()
    async with serving(bursts.agent) as (host, _):
        bursts.wanted.put_nowait(0)
        task = await send(host, "go")
        response = await host.http.get(f"/agents/bursts/tasks/{task.id}:subscribe")
        assert response.status_code == 400
        assert response.json()["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"
        with pytest.raises(CallFailed):
            await host._call("GET", f"tasks/{task.id}:subscribe")


async def test_a_nudge_is_an_empty_batch_and_loses_nothing():
    bursts = Bursts()
    async with serving(bursts.agent) as (host, engine):
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        stream = await subscribe(engine, task.id)
        waiting = asyncio.create_task(stream.follower.batch())
        await until(lambda: stream.follower.waiter is not None)
        stream.follower.nudge()
        assert await asyncio.wait_for(waiting, PATIENCE_S) == []
        for size in (2, 0):
            bursts.wanted.put_nowait(size)
        assert without_gap(stream, await read_all(engine, stream)) == "0 1 "


async def test_when_the_host_stops_streams_end_after_what_is_committed_and_can_be_resumed(tmp_path):
    bursts = Bursts()
    async with serving(bursts.agent, data=str(tmp_path)) as (host, engine):
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        stream = await subscribe(engine, task.id)
        bursts.wanted.put_nowait(5)
        await until(lambda: engine.lives.by_id[task.id].shown_seq == 7)
        reading = asyncio.create_task(read_all(engine, stream))
        await asyncio.sleep(0)
        engine.drain()
        frames = await asyncio.wait_for(reading, PATIENCE_S)
        assert [frame.seq for frame in frames] == [3, 4, 5, 6, 7]
    again = Bursts()
    for size in (5, 0):
        again.wanted.put_nowait(size)
    async with serving(again.agent, data=str(tmp_path)) as (host, engine):
        stream = await subscribe(engine, task.id, 7)
        text = without_gap(stream, await read_all(engine, stream), 7)
        assert text == text_of(await host.get(task)) == again.text()


async def test_a_store_that_cannot_be_read_ends_a_stream_early_and_cleanly(caplog):
    class Deaf(MemoryStore):
        deaf = False

        async def read_entries(self, task_id, after, limit, *, wire, **more):
            if self.deaf and wire:
                raise StoreUnavailable("not now")
            return await super().read_entries(task_id, after, limit, wire=wire, **more)

    store = Deaf()
    agent = Agent("talker")

    @agent.on_message
    async def talk(task):
        yield "one"
        yield "two"

    async with serving(agent, store=store) as (client, _):
        done = await client.send("go")
        store.deaf = True
        headers = {"Last-Event-ID": "1"}
        answer = await client.http.get(f"/agents/talker/tasks/{done.id}:subscribe", headers=headers)
        assert answer.status_code == 200
        assert answer.text.count("data: ") == 1, "the Task as of that event, and nothing after it"
        store.deaf = False
        answer = await client.http.get(f"/agents/talker/tasks/{done.id}:subscribe", headers=headers)
        assert "TASK_STATE_COMPLETED" in answer.text
    assert "can resume it" in caplog.text
