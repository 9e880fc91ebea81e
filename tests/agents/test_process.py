"""Agent(process=True): the same contract as in process, and it can be stopped hard."""

import os
import re

import pytest

from roost.protocol.types import Message, TaskState
from roost.testing import client
from tests.agents import process_agents as agents
from tests.waiting import until


def text(task):
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_steps_answers_and_pieces_cross_the_process_border():
    async with client(agents.talk) as host:
        asked = await host.send("go")
        assert asked.status.state is TaskState.INPUT_REQUIRED
        done = await host.send("Ada", task=asked)
    assert done.status.state is TaskState.COMPLETED
    assert re.fullmatch(r"pid:\d+ given:yes secret:None\n42\nhello Ada\n", text(done))


async def test_the_environment_is_clean_and_the_process_is_another(monkeypatch):
    monkeypatch.setenv("ROOST_TEST_SECRET", "hidden")
    async with client(agents.talk) as host:
        said = text(await host.send("go"))
    assert "secret:None" in said
    assert f"pid:{os.getpid()} " not in said


async def test_cancel_kills_a_process_that_never_listens():
    async with client(agents.spin) as host:
        task = await host.send("go", wait=False)

        async def pid():
            message = (await host.get(task)).status.message
            return message and int(message.text.removeprefix("pid:"))

        process = await until(pid)
        assert (await host.cancel(task)).status.state is TaskState.CANCELED
    assert not alive(process)


async def test_cancel_lets_a_coroutine_clean_up(tmp_path):
    note = tmp_path / "note"
    async with client(agents.tidy) as host:
        task = await host.send(str(note), wait=False)

        async def ready():
            return (await host.get(task)).status.message

        await until(ready)
        assert (await host.cancel(task)).status.state is TaskState.CANCELED
    assert note.read_text() == "cleaned"


@pytest.mark.parametrize("agent", [agents.boom, agents.dies], ids=["raises", "dies"])
async def test_a_process_that_fails_fails_its_task_and_tells_the_client_only_an_id(agent, caplog):
    async with client(agent) as host:
        task = await host.send("go")
    assert task.status.state is TaskState.FAILED
    assert re.fullmatch(r"The agent failed. Error id: [0-9a-f-]{36}", task.status.message.text)
    assert "not for the client" in caplog.text or "ended with code 7" in caplog.text


async def test_a_plain_function_in_a_process_replies_and_emits():
    async with client(agents.sync) as host:
        reply = await host.send("direct")
        task = await host.send("work")
    assert isinstance(reply, Message)
    assert reply.text == "pong"
    assert text(task) == "a4z"
