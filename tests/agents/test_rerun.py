"""A function that is called again, after an answer or a crash, ends with the text of an undisturbed run."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roost import Agent, Artifact, Part
from roost.engine.engine import Engine
from roost.engine.recovery import MAX_ATTEMPTS
from roost.fleet.registry import Registry
from roost.identity.principal import LOCAL
from roost.protocol.codec import decoder
from roost.protocol.entries import ARTIFACT, ATTEMPT
from roost.protocol.fold import apply_artifact, new_task
from roost.protocol.types import StreamResponse, Task, TaskState
from roost.testing import client
from tests.agents.programs import (
    MortalStore,
    Op,
    Program,
    abandon,
    contents,
    joins,
    kinds,
    programs,
    request,
)
from tests.agents.talk import KINDS, artifact_events, of_kind, send, serving, states, text_of, until_state
from tests.waiting import PATIENCE_S, until

# After an answer


@pytest.mark.parametrize("kind", KINDS)
async def test_after_an_answer_the_function_runs_again_from_the_top_and_repeats_nothing(kind):
    began: list[int] = []
    looked: list[int] = []

    async def async_generator(task):
        began.append(1)
        yield "before "
        task.status("looking")
        yield await task.step("look", lambda: looked.append(1) or "step ")
        yield Artifact(artifact_id="own", parts=[Part(text="once")])
        yield (await task.ask("?")).text
        yield " after"

    async def coroutine(task):
        async for value in async_generator(task):
            task.emit(value)

    def generator(task):
        began.append(1)
        yield "before "
        task.status("looking")
        yield task.step("look", lambda: looked.append(1) or "step ")
        yield Artifact(artifact_id="own", parts=[Part(text="once")])
        yield task.ask("?").text
        yield " after"

    def function(task):
        for value in generator(task):
            task.emit(value)

    agent = Agent("again")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        first = await host.stream("go")
        task = first[0].task
        second = await host.stream("answer", task=task)
        done = await host.get(task)
    assert [piece.artifact.parts[0].text for piece in artifact_events(first)] == ["before ", "step ", "once"]
    assert states(first) == [TaskState.WORKING, TaskState.WORKING, TaskState.INPUT_REQUIRED]
    assert [piece.artifact.parts[0].text for piece in artifact_events(second)] == ["answer", " after"]
    assert [piece.append for piece in artifact_events(second)] == [True, True]
    assert states(second) == [TaskState.COMPLETED], "WORKING was said with the answer"
    assert text_of(done) == "before step answer after"
    assert text_of(done, "own") == "once"
    assert (len(began), len(looked)) == (2, 1)


@settings(max_examples=80, deadline=None)
@given(programs, kinds, joins)
@example([Op("say", "a"), Op("ask", "?"), Op("data", "b"), Op("ask", "?"), Op("report", "x")], "coroutine", 60_000)
@example([Op("ask", "?"), Op("step", "x"), Op("step", "x"), Op("ask", "?"), Op("step", "x")], "generator", 0)
def test_a_program_gives_the_same_text_however_often_it_asks(what, kind, join_ms):
    program = Program(what)

    async def run() -> Task:
        async with client(program.agent(kind, join_ms)) as host:
            task = await send(host, "go")
            for number in range(1, program.questions + 1):
                assert task.status.state is TaskState.INPUT_REQUIRED
                task = await send(host, program.answer(number), task=task)
            return task

    task = asyncio.run(run())
    assert task.status.state is TaskState.COMPLETED
    assert contents(task.artifacts) == program.expected()
    assert set(program.ran.values()) <= {1}, "a step was run again"


# After a crash, at any commit


@settings(max_examples=80, deadline=None)
@given(programs, kinds, joins, st.lists(st.integers(0, 8), max_size=MAX_ATTEMPTS))
@example([Op("say", "a"), Op("step", "x"), Op("say", "b"), Op("say", "c")], "async generator", 0, [3])
@example([Op("say", "a"), Op("report", "x"), Op("step", "x"), Op("report", "x")], "coroutine", 0.5, [1, 2, 1])
def test_a_program_gives_the_same_text_wherever_its_host_dies(what, kind, join_ms, deaths):
    program = Program(what)
    with mock.patch("roost.engine.recovery.BACKOFF_S", (0.0,) * MAX_ATTEMPTS):
        streamed, task = asyncio.run(_crashing(program, kind, join_ms, deaths))
    assert task.status.state is TaskState.COMPLETED
    assert contents(task.artifacts) == program.expected()
    assert contents(streamed.artifacts) == program.expected(), "a client that applies the stream has another text"
    assert all(times <= 1 + len(deaths) for times in program.ran.values())


async def _crashing(program: Program, kind: str, join_ms: float, deaths: list[int]) -> tuple[Task, Task]:
    """Serve the program on a host that dies after so many commits, once for each of `deaths`.

    Returns the task as a client that applied every event has it, and as GetTask has it.
    """
    store, answered = MortalStore(), 0
    for worker, commits in enumerate([*deaths, None]):
        store.live_for(commits)
        engine = Engine(store, Registry([program.agent(kind, join_ms).hosted()]), f"worker {worker}")
        await engine.start()
        calls: list[asyncio.Task[object]] = []

        def call(text: str, task_id: str = "", engine: Engine = engine, calls: list = calls) -> None:
            send = engine.send(LOCAL, "program", request(text, task_id, wait=False))
            calls.append(asyncio.get_running_loop().create_task(send))

        if not store.rows:
            call("go")
        deadline = time.monotonic() + PATIENCE_S
        while not store.dead and not _over(store):
            assert time.monotonic() < deadline, "the task is stuck"
            paused = _paused(store)
            if paused and answered < _asked(store):
                answered += 1
                call(program.answer(answered), paused)
            await asyncio.sleep(0)
        answered = max(0, _messages(store) - 1)
        await abandon(engine)
        for pending in calls:
            pending.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    (task_id,) = store.rows
    task = new_task(task_id, "")
    streamed = new_task(task_id, "")
    for entry in await store.read_entries(task_id, 0, 10_000, wire=True):
        if entry.kind == ARTIFACT:
            apply_artifact(streamed, decoder(StreamResponse)(entry.data).artifact_update)
    row = store.rows[task_id]
    task = decoder(Task)(row.snapshot.body)
    task.artifacts = decoder(list[Artifact])(row.snapshot.artifacts)
    return streamed, task


def _over(store: MortalStore) -> bool:
    return any(row.head.state in (TaskState.COMPLETED, TaskState.FAILED) for row in store.rows.values())


def _paused(store: MortalStore) -> str:
    return next((key for key, row in store.rows.items() if row.head.state is TaskState.INPUT_REQUIRED), "")


def _messages(store: MortalStore) -> int:
    return sum(entry.kind == "m" for row in store.rows.values() for entry in row.entries)


def _asked(store: MortalStore) -> int:
    return _messages(store)  # the message that began it stands for the question that is open


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_whose_record_died_with_the_host_runs_again_with_the_same_key(kind, monkeypatch):
    monkeypatch.setattr("roost.engine.recovery.BACKOFF_S", (0.0,) * MAX_ATTEMPTS)
    keys: list[str] = []
    store = MortalStore()

    def pay(task):
        keys.append(task.step_key)
        if len(keys) == 1:
            store.live_for(0)
        return "paid"

    async def async_generator(task):
        yield await task.step("pay", pay, task)

    async def coroutine(task):
        return await task.step("pay", pay, task)

    def generator(task):
        yield task.step("pay", pay, task)

    def function(task):
        return task.step("pay", pay, task)

    agent = Agent("paying")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    for worker in ("first", "second"):
        engine = Engine(store, Registry([agent.hosted()]), worker)
        await engine.start()
        if worker == "first":
            await engine.send(LOCAL, "paying", request("go", wait=False))
        await until(lambda: store.dead or _over(store))
        await abandon(engine)
        store.live_for(None)
    assert _over(store)
    assert len(keys) == 2
    assert keys[0] == keys[1]


# After a graceful stop


async def test_a_graceful_restart_is_no_attempt_however_often_it_happens(tmp_path: Path):
    runs = itertools.count(1)
    began: list[int] = []

    def agent() -> Agent:
        made = Agent("waiting")

        @made.on_message
        async def wait(task):
            yield "begin "
            began.append(1)
            if next(runs) <= MAX_ATTEMPTS + 2:
                await asyncio.Event().wait()
            yield "end"

        return made

    async with serving(agent(), data=str(tmp_path)) as (host, _):
        task = await send(host, "go", wait=False)
        await until(lambda: len(began) == 1)
    for restart in range(2, MAX_ATTEMPTS + 3):
        async with serving(agent(), data=str(tmp_path)):
            await until(lambda restart=restart: len(began) == restart)
    async with serving(agent(), data=str(tmp_path)) as (host, engine):
        done = await until_state(host, task, TaskState.COMPLETED)
        records = [entry.kind for entry in await engine.store.read_internal(task.id)]
    assert text_of(done) == "begin end"
    assert ATTEMPT not in records


async def test_waiting_tasks_are_not_begun_while_the_host_stops_and_run_after_the_restart(tmp_path: Path):
    began: list[str] = []
    release = asyncio.Event()

    def agent() -> Agent:
        made = Agent("queueing", concurrency=1)

        @made.on_message
        async def wait(task):
            began.append(task.text)
            await release.wait()
            yield task.text

        return made

    async with serving(agent(), data=str(tmp_path)) as (host, _):
        tasks = [await send(host, f"{number}", wait=False) for number in range(3)]
        await until(lambda: began == ["0"])
    assert began == ["0"]
    release.set()
    async with serving(agent(), data=str(tmp_path)) as (host, _):
        done = [await until_state(host, task, TaskState.COMPLETED) for task in tasks]
    assert [text_of(task) for task in done] == ["0", "1", "2"]
    assert began == ["0", "0", "1", "2"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_steps_function_says_is_neither_repeated_nor_does_it_hide_what_follows(kind):
    async def async_generator(task):
        await task.step("look", lambda: task.emit("looking ") if sync(kind) else None)
        await task.step("tell", told, task)
        await task.ask("?")
        yield "found"

    async def told(task):
        task.status("looking")

    async def coroutine(task):
        async for value in async_generator(task):
            task.emit(value)

    def generator(task):
        task.step("tell", task.status, "looking")
        task.ask("?")
        yield "found"

    def function(task):
        for value in generator(task):
            task.emit(value)

    def sync(kind: str) -> bool:
        return kind in ("generator", "function")

    agent = Agent("telling")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        task = await send(host, "go")
        done = await send(host, "yes", task=task)
    assert text_of(done) == "found"


async def test_a_step_that_failed_and_succeeds_after_the_question_does_not_lose_the_output():
    agent, tries = Agent("retrying"), itertools.count(1)

    def flaky():
        if next(tries) == 1:
            raise ConnectionError
        return "fetched"

    @agent.on_message
    async def retry(task):
        try:
            result = await task.step("fetch", flaky)
        except ConnectionError:
            await task.ask("It failed. Again?")
            result = await task.step("fetch", flaky)
        yield result

    async with client(agent) as host:
        task = await send(host, "go")
        done = await send(host, "yes", task=task)
    assert text_of(done) == "fetched"


async def test_steps_that_run_at_the_same_time_are_each_run_once():
    agent, ran, others_ran = Agent("gathering"), [], asyncio.Event()

    async def look(name):
        ran.append(name)
        if name == "faster":
            others_ran.set()
        if name == "slow":
            await others_ran.wait()
        return name

    @agent.on_message
    async def gather(task):
        yield "begin "
        found = await asyncio.gather(*[task.step("look", look, name) for name in ("slow", "fast", "faster")])
        yield f"{found} "
        yield (await task.ask("?")).text

    async with client(agent) as host:
        task = await send(host, "go")
        done = await send(host, "end", task=task)
    assert text_of(done) == "begin ['slow', 'fast', 'faster'] end"
    assert ran == ["slow", "fast", "faster"]
