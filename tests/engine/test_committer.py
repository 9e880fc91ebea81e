"""Only what is committed is shown; what cannot be committed is refused or tried again, never forgotten."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from roost import Agent
from roost.engine.bodies import LARGE, BodyReader
from roost.engine.committer import GROUP_ENTRIES, GROUPS_AT_ONCE
from roost.engine.store_types import Append, StaleFence
from roost.identity.principal import LOCAL
from roost.protocol.errors import Unavailable
from roost.protocol.types import GetTaskRequest, SubscribeToTaskRequest, TaskState
from roost.testing import CallFailed
from tests.agents.programs import request
from tests.agents.talk import emitting, others_go_on, send, serving, text_of, until_state
from tests.engine.gates import GateStore
from tests.waiting import PATIENCE_S, until


class Steered:
    """An agent that says one word for each that the test gives it, and ends at None."""

    def __init__(self, **options: object) -> None:
        self.words: asyncio.Queue[str | None] = asyncio.Queue()
        self.said = 0
        self.agent = Agent("steered", **options)
        self.agent.on_message(self._run)

    async def _run(self, task):
        while (word := await self.words.get()) is not None:
            self.said += 1
            yield word


async def test_nobody_sees_what_is_not_committed():
    steered, store = Steered(), GateStore()
    async with serving(steered.agent, store=store) as (host, engine):
        task = await send(host, "go", wait=False)
        stream = await engine.subscribe(LOCAL, "steered", SubscribeToTaskRequest(id=task.id))
        steered.words.put_nowait("shown ")
        while b"shown" not in b"".join(frame.data for frame in await stream.follower.batch()):
            continue
        store.commits.clear()
        steered.words.put_nowait("hidden ")
        await until(lambda: store.committing)
        steered.words.put_nowait("later")
        await until(lambda: steered.said == 3)
        reading = asyncio.create_task(host.get(task))
        following = asyncio.create_task(stream.follower.batch())
        await others_go_on(host)
        assert not following.done(), "a follower was given what is not on disk"
        assert not reading.done(), "a reader waits for the commit"
        assert engine.lives.by_id[task.id].shown_seq == store.rows[task.id].entries[-1].seq
        store.commits.set()
        assert text_of(await reading).startswith("shown hidden ")
        assert b"hidden" in (await following)[0].data
        steered.words.put_nowait(None)
        assert text_of(await until_state(host, task, TaskState.COMPLETED)) == "shown hidden later"
        stream.release()


async def test_a_send_returns_only_after_the_end_is_committed():
    store = GateStore()
    steered = Steered()
    async with serving(steered.agent, store=store) as (host, _):
        sending = asyncio.create_task(host.send("go"))
        await until(lambda: store.rows)
        store.commits.clear()
        steered.words.put_nowait(None)
        await until(lambda: store.committing)
        await others_go_on(host)
        assert not sending.done()
        store.commits.set()
        assert (await sending).status.state is TaskState.COMPLETED


async def test_many_tasks_are_committed_in_one_group():
    store = GateStore()
    async with serving(emitting("async generator", ["said"]), store=store) as (host, engine):
        store.commits.clear()
        first = []
        for number in range(1, GROUPS_AT_ONCE + 1):
            first.append(asyncio.create_task(host.send("go")))
            await until(lambda number=number: store.committing == number)
        rest = [asyncio.create_task(host.send("go")) for _ in range(20)]
        await until(lambda: len(engine.committer.dirty) == 20)
        store.commits.set()
        await asyncio.gather(*first, *rest)
    assert sorted(len(group) for group in store.groups[: GROUPS_AT_ONCE + 1]) == [*[1] * GROUPS_AT_ONCE, 20]


async def test_a_group_has_an_end_so_that_a_flood_does_not_hold_up_its_first_task():
    store = GateStore()
    pieces = ["x"] * 200
    async with serving(emitting("async generator", pieces), store=store) as (host, _):
        store.commits.clear()
        sending = [asyncio.create_task(host.send("go")) for _ in range(40)]
        await until(lambda: store.committing)
        store.commits.set()
        done = await asyncio.gather(*sending)
    sizes = [sum(len(append.entries) for append in group) for group in store.groups]
    assert max(sizes) < GROUP_ENTRIES + 256, "at most one task's worth over"
    assert {text_of(task) for task in done} == {"x" * 200}


async def test_a_new_task_that_cannot_be_committed_is_refused_as_unavailable_and_leaves_nothing():
    store = GateStore()
    async with serving(emitting("async generator", ["said"]), store=store) as (host, engine):
        store.failing = True
        with pytest.raises(CallFailed) as refusal:
            await host.send("go")
        assert (refusal.value.status, refusal.value.reason) == (503, "UNAVAILABLE")
        assert (store.rows, engine.lives.by_id, engine.runner.runs) == ({}, {}, {})
        store.failing = False
        assert text_of(await send(host, "go")) == "said"


async def test_a_large_body_that_was_read_while_the_store_failed_is_not_shared_afterwards():
    steered, store = Steered(), GateStore()
    async with serving(steered.agent, store=store) as (host, engine):
        task = await send(host, "go", wait=False)
        steered.words.put_nowait("x" * 2 * LARGE)
        await until(lambda: "x" in text_of_stored(store, task.id))
        store.failing = True
        steered.words.put_nowait("later")
        await until(lambda: store.failed)
        await until(lambda: engine.lives.by_id[task.id].is_delayed)
        early, late = (BodyReader(engine.bodies, "me", asyncio.Event().wait) for _ in range(2))
        body = await engine.get(LOCAL, "steered", GetTaskRequest(id=task.id), reader=early)
        assert b"later" not in body
        store.failing = False
        await until(lambda: "later" in text_of_stored(store, task.id))
        assert b"later" in await engine.get(LOCAL, "steered", GetTaskRequest(id=task.id), reader=late)
        early.release()
        late.release()
        steered.words.put_nowait(None)


async def test_a_running_task_is_tried_again_and_finishes_when_the_store_is_back(caplog):
    steered, store = Steered(), GateStore()
    async with serving(steered.agent, store=store) as (host, engine):
        task = await send(host, "go", wait=False)
        await until(lambda: engine.runner.runs)
        store.failing = True
        for word in ("a", "b", "c", None):
            steered.words.put_nowait(word)
        await until(lambda: store.failed >= 2)
        assert text_of_stored(store, task.id) == ""
        store.failing = False
        done = await until_state(host, task, TaskState.COMPLETED)
        assert (text_of(done), engine.stats.commit_failures >= 2) == ("abc", True)
        seqs = [entry.seq for entry in await store.read_entries(task.id, 0, 100, wire=True)]
        assert seqs == list(range(1, len(seqs) + 1)), "without a gap or a repeat"
    assert "the disk is full" in caplog.text


async def test_new_tasks_are_refused_at_once_while_a_running_one_is_tried_again():
    steered, store = Steered(), GateStore()
    async with serving(steered.agent, store=store) as (host, engine):
        task = await send(host, "go", wait=False)
        await until(lambda: engine.runner.runs)
        store.failing = True
        steered.words.put_nowait("kept")
        await until(lambda: store.failed >= 1)
        with pytest.raises(CallFailed, match="UNAVAILABLE"):
            await asyncio.wait_for(host.send("new"), PATIENCE_S)
        store.failing = False
        steered.words.put_nowait(None)
        assert text_of(await until_state(host, task, TaskState.COMPLETED)) == "kept"


async def test_an_answer_waits_for_the_store_and_is_not_lost():
    store, agent = GateStore(), Agent("asking")

    @agent.on_message
    async def ask(task):
        yield (await task.ask("?")).text

    async with serving(agent, store=store) as (host, _):
        task = await send(host, "go")
        store.failing = True
        answering = asyncio.create_task(send(host, "answer", task=task))
        await until(lambda: store.failed >= 1)
        store.failing = False
        assert text_of(await answering) == "answer"


async def test_a_stale_writer_is_refused_alone_and_its_readers_are_told_to_try_again(caplog):
    steered, store = Steered(), GateStore()
    async with serving(steered.agent, emitting("async generator", ["said"]), store=store) as (host, engine):
        task = await send(host, "go", wait=False)
        await until(lambda: engine.runner.runs)
        stream = await engine.subscribe(LOCAL, "steered", SubscribeToTaskRequest(id=task.id))
        await until(lambda: store.rows[task.id].head.state is TaskState.WORKING)
        before = len(store.rows[task.id].entries)
        assert await store.adopt("another worker", ["steered"], 1)
        store.commits.clear()
        steered.words.put_nowait("stale")
        await until(lambda: store.committing)
        reading = asyncio.create_task(engine.get(LOCAL, "steered", GetTaskRequest(id=task.id)))
        other = asyncio.create_task(engine.send(LOCAL, "emitting", request("go")))
        await others_go_on(host)
        store.commits.set()
        with pytest.raises(Unavailable, match="another writer; try again"):
            await reading
        assert (await other).task is not None, "the rest is not harmed"
        while await stream.follower.batch() is not None:
            continue
        stream.release()
        steered.words.put_nowait("later")
        await until(lambda: task.id not in engine.runner.runs)
        assert task.id not in engine.lives.by_id
        assert len(store.rows[task.id].entries) == before, "nothing of a stale writer is on record"
        assert text_of(await host.get(task)) == "", "the next look is at the journal"
    assert "has another writer now" in caplog.text


async def test_all_who_wait_for_a_stale_writer_are_told():
    steered, store = Steered(), GateStore()
    async with serving(steered.agent, store=store) as (host, engine):
        sending = asyncio.create_task(host.send("go"))
        await until(lambda: engine.runner.runs)
        (task_id,) = engine.runner.runs
        await until(lambda: store.rows[task_id].head.state is TaskState.WORKING)
        assert await store.adopt("another worker", ["steered"], 1)
        steered.words.put_nowait("stale")
        with pytest.raises(CallFailed, match="TASK_MOVED"):
            await asyncio.wait_for(sending, PATIENCE_S)
        steered.words.put_nowait("later")
        await until(lambda: not engine.lives.by_id)


async def test_closing_commits_what_is_written():
    steered, store = Steered(), KeptStore()
    async with serving(steered.agent, store=store) as (host, engine):
        task = await send(host, "go", wait=False)
        await until(lambda: engine.runner.runs)
        for word in "abc":
            steered.words.put_nowait(word)
        await until(lambda: steered.said == 3)
    assert text_of_stored(store, task.id) == "abc"


async def test_closing_with_a_store_that_fails_comes_to_an_end():
    steered, store = Steered(), GateStore()
    async with serving(steered.agent, store=store) as (host, engine):
        await send(host, "go", wait=False)
        await until(lambda: engine.runner.runs)
        store.failing = True
        steered.words.put_nowait("lost")
        await until(lambda: store.failed)
    assert all(worker.done() for worker in engine.committer.workers)


class KeptStore(GateStore):
    """Can be read after it was closed."""

    async def close(self) -> None:
        return None


def text_of_stored(store: GateStore, task_id: str) -> str:
    found = [msgspec.json.decode(entry.data) for entry in store.rows[task_id].entries if entry.kind == "a"]
    return "".join(event["artifactUpdate"]["artifact"]["parts"][0]["text"] for event in found)


async def test_a_refusal_is_a_value_not_an_exception():
    """The store answers for each append: a port's contract, on which the committer builds."""
    store = GateStore()
    async with serving(emitting("async generator", ["said"]), store=store) as (host, _):
        task = await send(host, "go")
        (stale,) = await store.commit([Append(task.id, 99, [])])
        assert isinstance(stale, StaleFence)
