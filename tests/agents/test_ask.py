"""`task.ask`: the task pauses, and the function is called again from the top when the answer is there."""

from __future__ import annotations

import pytest

from roost import Agent, Part
from roost.protocol.types import Role, TaskState
from roost.testing import client
from tests.agents.talk import KINDS, artifact_events, of_kind, send, states, status_text, text_of


def asking(kind: str, **options: object) -> Agent:
    """Asks two things and says both answers."""
    agent = Agent("asking", **options)

    async def async_generator(task):
        city = (await task.ask("Which city?")).text
        yield f"{city} "
        yield (await task.ask("Which day?")).text

    async def coroutine(task):
        city = (await task.ask("Which city?")).text
        task.emit(f"{city} ")
        task.emit((await task.ask("Which day?")).text)

    def generator(task):
        city = task.ask("Which city?").text
        yield f"{city} "
        yield task.ask("Which day?").text

    def function(task):
        city = task.ask("Which city?").text
        task.emit(f"{city} ")
        task.emit(task.ask("Which day?").text)

    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    return agent


@pytest.mark.parametrize("kind", KINDS)
async def test_several_questions_are_asked_one_after_another(kind):
    async with client(asking(kind)) as host:
        first = await send(host, "go")
        assert (first.status.state, status_text(first)) == (TaskState.INPUT_REQUIRED, "Which city?")
        second = await send(host, "Rome", task=first)
        assert (second.status.state, status_text(second)) == (TaskState.INPUT_REQUIRED, "Which day?")
        assert text_of(second) == "Rome "
        done = await send(host, "Monday", task=first)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "Rome Monday")
    assert done.id == first.id


@pytest.mark.parametrize("kind", KINDS)
async def test_questions_and_answers_are_the_history_in_order(kind):
    async with client(asking(kind)) as host:
        task = await send(host, "go")
        await send(host, "Rome", task=task)
        done = await send(host, "Monday", task=task)
    assert [(said.role, said.text) for said in done.history] == [
        (Role.USER, "go"),
        (Role.AGENT, "Which city?"),
        (Role.USER, "Rome"),
        (Role.AGENT, "Which day?"),
        (Role.USER, "Monday"),
    ]


async def test_asks_in_a_loop_each_get_their_own_answer():
    agent = Agent("looping")

    @agent.on_message
    async def loop(task):
        for number in range(5):
            yield (await task.ask(f"Number {number}?")).text

    async with client(agent) as host:
        task = await send(host, "go")
        for number in range(5):
            assert status_text(task) == f"Number {number}?"
            task = await send(host, f"{number},", task=task)
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "0,1,2,3,4,")


async def test_an_agent_may_ask_until_it_likes_the_answer():
    agent = Agent("insisting")

    @agent.on_message
    async def insist(task):
        answer = await task.ask("yes or no?")
        while answer.text not in ("yes", "no"):
            answer = await task.ask(f"{answer.text} is neither. yes or no?")
        yield answer.text

    async with client(agent) as host:
        task = await send(host, "go")
        task = await send(host, "perhaps", task=task)
        assert status_text(task) == "perhaps is neither. yes or no?"
        task = await send(host, "yes", task=task)
    assert text_of(task) == "yes"


async def test_the_message_that_began_the_task_is_the_same_on_every_run():
    agent, texts = Agent("remembering"), []

    @agent.on_message
    async def remember(task):
        texts.append((task.text, task.data))
        await task.ask("?")
        await task.ask("??")

    async with client(agent) as host:
        task = await send(host, [Part(text="begin"), Part(data={"n": 1})])
        await send(host, "first answer", task=task)
        await send(host, {"second": "answer"}, task=task)
    assert texts == [("begin", {"n": 1})] * 3


async def test_an_answer_has_its_text_parts_data_and_metadata():
    agent, answers = Agent("reading"), []

    @agent.on_message
    async def read(task):
        answers.append(await task.ask("?"))

    async with client(agent) as host:
        task = await send(host, "go")
        body = {
            "message": {
                "messageId": "answer",
                "role": "ROLE_USER",
                "taskId": task.id,
                "parts": [{"text": "a"}, {"data": {"n": 1}}, {"text": "b"}],
            },
            "metadata": {"from": "test"},
        }
        assert (await host.http.post("/agents/reading/message:send", json=body)).status_code == 200
    (answer,) = answers
    assert (answer.text, answer.data, answer.metadata) == ("a\nb", {"n": 1}, {"from": "test"})
    assert (answer.message.message_id, len(answer.parts)) == ("answer", 3)


@pytest.mark.parametrize("kind", KINDS)
async def test_ask_for_auth_is_auth_required(kind):
    async def async_generator(task):
        yield (await task.ask("Sign in, please", auth=True)).text

    async def coroutine(task):
        return (await task.ask("Sign in, please", auth=True)).text

    def generator(task):
        yield task.ask("Sign in, please", auth=True).text

    def function(task):
        return task.ask("Sign in, please", auth=True).text

    agent = Agent("guarding")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        task = await send(host, "go")
        assert (task.status.state, status_text(task)) == (TaskState.AUTH_REQUIRED, "Sign in, please")
        done = await send(host, "signed in", task=task)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "signed in")


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_function_says_while_it_unwinds_does_not_follow_the_question(kind):
    async def async_generator(task):
        try:
            answer = (await task.ask("?")).text
        finally:
            task.status("cleaning up")
        yield answer

    async def coroutine(task):
        try:
            return (await task.ask("?")).text
        finally:
            task.status("cleaning up")

    def generator(task):
        try:
            answer = task.ask("?").text
        finally:
            task.status("cleaning up")
        yield answer

    def function(task):
        try:
            return task.ask("?").text
        finally:
            task.status("cleaning up")

    agent = Agent("tidy")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        events = await host.stream("go")
        task = await host.get(events[0].task)
        assert states(events)[-1] is TaskState.INPUT_REQUIRED
        assert (task.status.state, status_text(task)) == (TaskState.INPUT_REQUIRED, "?")
        done = await send(host, "answer", task=task)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "answer")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_function_that_swallows_the_unwinding_still_waits_for_the_answer(kind):
    async def async_generator(task):
        try:
            yield (await task.ask("?")).text
        except BaseException:
            yield "swallowed"

    async def coroutine(task):
        try:
            return (await task.ask("?")).text
        except BaseException:
            return "swallowed"

    def generator(task):
        try:
            yield task.ask("?").text
        except BaseException:
            yield "swallowed"

    def function(task):
        try:
            return task.ask("?").text
        except BaseException:
            return "swallowed"

    agent = Agent("bare")
    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    async with client(agent) as host:
        events = await host.stream("go")
        assert states(events) == [TaskState.WORKING, TaskState.INPUT_REQUIRED]
        assert artifact_events(events) == []
        done = await send(host, "answer", task=events[0].task)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "answer")
