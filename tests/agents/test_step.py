"""`task.step`: a result that is on record, looked up by name and occurrence."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from roost import Agent
from roost.engine.steps import MAX_STEP_BYTES, StepFailed, StepTooLarge
from roost.protocol.types import TaskState
from roost.testing import client
from tests.agents.talk import KINDS, of_kind, send, status_text, text_of, until_state
from tests.waiting import until


def stepping(kind: str, *steps: tuple[str, object]) -> Agent:
    """Runs the steps, asks, and says all results: after the answer they come from the journal."""
    agent = Agent("stepping")

    async def async_generator(task):
        results = [await task.step(name, fn) for name, fn in steps]
        await task.ask("Go on?")
        yield {"results": results}

    async def coroutine(task):
        results = [await task.step(name, fn) for name, fn in steps]
        await task.ask("Go on?")
        return {"results": results}

    def generator(task):
        results = [task.step(name, fn) for name, fn in steps]
        task.ask("Go on?")
        yield {"results": results}

    def function(task):
        results = [task.step(name, fn) for name, fn in steps]
        task.ask("Go on?")
        return {"results": results}

    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    return agent


class Counted:
    """A step's function that knows how often it ran."""

    def __init__(self, *results: object) -> None:
        self.results = list(results)
        self.calls = 0

    def __call__(self) -> object:
        self.calls += 1
        return self.results[(self.calls - 1) % len(self.results)]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_runs_once_and_its_result_comes_from_the_journal_afterwards(kind):
    look_up = Counted({"found": [1, 2.5, None, "x"]})
    async with client(stepping(kind, ("look up", look_up))) as host:
        task = await send(host, "go")
        done = await send(host, "yes", task=task)
    assert look_up.calls == 1
    assert done.artifacts[0].parts[0].data == {"results": [{"found": [1, 2.5, None, "x"]}]}


@pytest.mark.parametrize("kind", KINDS)
async def test_steps_of_one_name_are_told_apart_by_their_occurrence(kind):
    draw = Counted(10, 20, 30)
    async with client(stepping(kind, ("draw", draw), ("draw", draw), ("draw", draw))) as host:
        task = await send(host, "go")
        done = await send(host, "yes", task=task)
    assert draw.calls == 3
    assert done.artifacts[0].parts[0].data == {"results": [10, 20, 30]}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_that_returned_none_is_not_run_again(kind):
    nothing = Counted(None)
    async with client(stepping(kind, ("nothing", nothing))) as host:
        task = await send(host, "go")
        await send(host, "yes", task=task)
    assert nothing.calls == 1


async def test_a_step_is_invisible_to_the_client():
    async with client(stepping("coroutine", ("quiet", Counted("secret")))) as host:
        events = await host.stream("go")
    assert len(events) == 3, "the task, WORKING and INPUT_REQUIRED"


async def test_async_functions_arguments_and_awaitables_are_steps_too():
    agent = Agent("calling")

    async def add(a, b, *, c):
        return a + b + c

    @agent.on_message
    async def call(task):
        yield str(await task.step("async", add, 1, 2, c=3))
        yield str(await task.step("awaitable", lambda: add(10, 20, c=30)))
        yield str(await task.step("sync", lambda a, b=0: a + b, 100, b=200))

    async with client(agent) as host:
        task = await send(host, "go")
    assert text_of(task) == "660300"


async def test_a_blocking_step_of_an_async_agent_does_not_hold_up_the_host():
    agent, release = Agent("blocking"), threading.Event()

    @agent.on_message
    async def block(task):
        if task.text == "block":
            await task.step("wait", release.wait, 20)
        yield "done"

    async with client(agent) as host:
        blocked = asyncio.create_task(send(host, "block"))
        assert text_of(await send(host, "other")) == "done"
        release.set()
        assert text_of(await blocked) == "done"


async def test_the_first_run_gets_what_a_re_run_would_get():
    """A tuple is a list in JSON; a function must not see one on the first run and the other on the second."""
    agent, seen = Agent("typing"), []

    @agent.on_message
    async def look(task):
        seen.append(await task.step("pair", lambda: {"pair": (1, 2), 3: "three"}))
        await task.ask("?")

    async with client(agent) as host:
        task = await send(host, "go")
        await send(host, "yes", task=task)
    assert seen == [{"pair": [1, 2], "3": "three"}] * 2
    assert type(seen[0]["pair"]) is list


@pytest.mark.parametrize("kind", KINDS)
async def test_a_result_that_is_not_json_fails_the_task(kind, caplog):
    async with client(stepping(kind, ("object", object))) as host:
        task = await send(host, "go")
    assert task.status.state is TaskState.FAILED
    assert "TypeError" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_result_over_one_mebibyte_is_refused(kind, caplog):
    async with client(stepping(kind, ("big", lambda: "x" * MAX_STEP_BYTES))) as host:
        task = await send(host, "go")
    assert MAX_STEP_BYTES == 1024 * 1024
    assert task.status.state is TaskState.FAILED
    assert "StepTooLarge" in caplog.text
    assert "'big'" in caplog.text


async def test_a_refused_result_can_be_handled_and_is_refused_again_without_a_call():
    agent, calls = Agent("handling"), []

    def big():
        calls.append(1)
        return "x" * MAX_STEP_BYTES

    @agent.on_message
    async def handle(task):
        with pytest.raises(StepTooLarge):
            await task.step("big", big)
        await task.ask("?")
        yield "handled"

    async with client(agent) as host:
        task = await send(host, "go")
        done = await send(host, "yes", task=task)
    assert (done.status.state, text_of(done), len(calls)) == (TaskState.COMPLETED, "handled", 1)


async def test_a_large_result_within_the_limit_is_kept():
    agent = Agent("keeping")

    @agent.on_message
    async def keep(task):
        large = await task.step("large", lambda: "x" * (MAX_STEP_BYTES - 200))
        await task.ask("?")
        yield str(len(large))

    async with client(agent) as host:
        task = await send(host, "go")
        done = await send(host, "yes", task=task)
    assert text_of(done) == str(MAX_STEP_BYTES - 200)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_that_raised_raises_the_same_again_and_is_not_run_again(kind):
    fail = Counted()

    def flaky():
        fail.calls += 1
        if fail.calls == 1:
            raise ConnectionError
        return fail.calls

    async def async_generator(task):
        try:
            result = await task.step("flaky", flaky)
        except ConnectionError:
            result = "failed"
        await task.ask("?")
        yield str(result)

    async def coroutine(task):
        try:
            result = await task.step("flaky", flaky)
        except ConnectionError:
            result = "failed"
        await task.ask("?")
        return str(result)

    def generator(task):
        try:
            result = task.step("flaky", flaky)
        except ConnectionError:
            result = "failed"
        task.ask("?")
        yield str(result)

    def function(task):
        try:
            result = task.step("flaky", flaky)
        except ConnectionError:
            result = "failed"
        task.ask("?")
        return str(result)

    agent = Agent("flaky")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        task = await send(host, "go")
        done = await send(host, "yes", task=task)
    assert (text_of(done), fail.calls) == ("failed", 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_that_raises_stop_iteration_fails_the_task_and_does_not_hang(kind):
    async with client(stepping(kind, ("next", lambda: next(iter([]))))) as host:
        task = await send(host, "go")
    assert task.status.state is TaskState.FAILED


@pytest.mark.parametrize("kind", KINDS)
async def test_step_key_differs_between_steps(kind):
    keys: list[str] = []

    def note(task):
        keys.append(task.step_key)

    async def async_generator(task):
        await coroutine(task)
        yield "done"

    async def coroutine(task):
        for name in ("pay", "pay", "refund"):
            await task.step(name, note, task)

    def generator(task):
        function(task)
        yield "done"

    def function(task):
        for name in ("pay", "pay", "refund"):
            task.step(name, note, task)

    agent = Agent("paying")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        task = await send(host, "go")
    assert len(set(keys)) == 3
    assert all(key.startswith(task.id) for key in keys)


async def test_step_key_is_the_same_on_every_try(tmp_path):
    keys: list[str] = []
    agent = Agent("paying")

    async def pay(task):
        keys.append(task.step_key)
        if len(keys) == 1:
            await asyncio.Event().wait()  # until the host stops: done perhaps, but not on record

    @agent.on_message
    async def paying(task):
        await task.step("pay", pay, task)

    async with client(agent, data=str(tmp_path)) as host:
        task = await send(host, "go", wait=False)
        await until(lambda: keys)
    async with client(agent, data=str(tmp_path)) as host:
        await until_state(host, task, TaskState.COMPLETED)
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_step_key_outside_a_step_is_an_error(caplog):
    agent = Agent("outside")

    @agent.on_message
    async def outside(task):
        yield task.step_key

    async with client(agent) as host:
        task = await send(host, "go")
    assert task.status.state is TaskState.FAILED
    assert "only inside the function that task.step calls" in caplog.text


async def test_a_record_that_nobody_asks_for_is_logged(caplog):
    agent, names = Agent("changed"), iter(["old name", "new name"])

    @agent.on_message
    async def change(task):
        yield await task.step(next(names), lambda: "result")
        await task.ask("?")

    with caplog.at_level(logging.WARNING, "roost"):
        async with client(agent) as host:
            task = await send(host, "go")
            done = await send(host, "yes", task=task)
    assert done.status.state is TaskState.COMPLETED
    assert "'old name' #0 is on record, but this run did not reach it" in caplog.text
    assert "'new name'" not in caplog.text


async def test_a_step_of_another_name_than_those_on_record_runs():
    agent, ran = Agent("changed"), []

    @agent.on_message
    async def change(task):
        name = f"step {len(ran)}"
        await task.step(name, lambda: ran.append(name))
        await task.ask("?")

    async with client(agent) as host:
        task = await send(host, "go")
        await send(host, "yes", task=task)
    assert ran == ["step 0", "step 1"]


async def test_a_failed_step_is_told_to_the_client_as_the_author_likes():
    agent = Agent("telling")

    def refuse():
        raise PermissionError("no")

    @agent.on_message
    async def tell(task):
        try:
            yield await task.step("open", refuse)
        except PermissionError:
            task.fail("I may not open that.")

    async with client(agent) as host:
        task = await send(host, "go")
    assert (task.status.state, status_text(task)) == (TaskState.FAILED, "I may not open that.")


class Told(Exception):
    """Cannot be made again from its arguments alone."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(code, why)


@pytest.mark.parametrize(
    ("raised", "seen_again"),
    [
        (ConnectionError(7, "no route"), ConnectionError),
        (KeyError("name"), KeyError),
        (Told(404, why="not there"), StepFailed),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_a_failure_is_on_record_with_its_type_and_arguments_where_they_can_be_made_again(raised, seen_again):
    agent, seen = Agent("failing"), []

    def fail():
        raise raised

    @agent.on_message
    async def catch(task):
        try:
            await task.step("fail", fail)
        except Exception as error:
            seen.append(error)
        await task.ask("It failed. Go on?")

    async with client(agent) as host:
        task = await send(host, "go")
        assert (await send(host, "yes", task=task)).status.state is TaskState.COMPLETED
    first, second = seen
    assert first is raised
    assert type(second) is seen_again
    assert second.args == raised.args or ("Told" in str(second) and "not there" in str(second))
