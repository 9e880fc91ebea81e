"""An AgentExecutor written for a2a-sdk's own server, hosted unchanged: what it enqueues is what the client sees."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import a2a_pb2 as pb

from roost import AgentDefinitionError, SDKAgent
from roost.protocol.types import Part, Role, TaskState
from roost.testing import client
from tests.agents.talk import (
    artifact_events,
    message_of,
    replayed,
    send,
    serving,
    states,
    status_text,
    text_of,
    until_state,
)
from tests.waiting import PATIENCE_S, until

Work = Callable[[RequestContext, TaskUpdater, EventQueue], Awaitable[None]]


class Executor(AgentExecutor):
    """Does what the test says."""

    def __init__(self, work: Work, cancel: Work | None = None) -> None:
        self.work = work
        self.on_cancel = cancel
        self.canceled = 0

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await self.work(context, _updater(context, event_queue), event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.canceled += 1
        if self.on_cancel is not None:
            await self.on_cancel(context, _updater(context, event_queue), event_queue)


def _updater(context: RequestContext, queue: EventQueue) -> TaskUpdater:
    return TaskUpdater(queue, context.task_id or "", context.context_id or "")


def text(value: str) -> list[pb.Part]:
    return [pb.Part(text=value)]


def hosted(work: Work, cancel: Work | None = None, **options: Any) -> SDKAgent:
    return SDKAgent("sdk", Executor(work, cancel), **options)


# Tasks


async def test_a_whole_life_by_the_updater_is_the_stream_of_the_task():
    async def work(context, updater, queue):
        await updater.submit()
        await updater.start_work(updater.new_agent_message(text("on it")))
        await updater.add_artifact(text(f"echo {context.get_user_input()}"), artifact_id="a", name="Echo")
        await updater.complete(updater.new_agent_message(text("done")))

    async with client(hosted(work)) as host:
        events = await host.stream("hello")
        task = await host.get(events[0].task)
    assert events[0].task.status.state is TaskState.SUBMITTED
    assert states(events) == [TaskState.WORKING, TaskState.COMPLETED], "SUBMITTED is said once, by the host"
    assert (text_of(task, "a"), task.artifacts[0].name) == ("echo hello", "Echo")
    assert status_text(task) == "done"
    working = events[1].status_update.status.message
    assert (working.role, working.text, working.task_id) == (Role.AGENT, "on it", task.id)


async def test_chunks_of_an_artifact_are_appended_and_the_last_one_says_so():
    async def work(context, updater, queue):
        for number, piece in enumerate(("one ", "two ", "three")):
            await updater.add_artifact(text(piece), artifact_id="output", append=number > 0, last_chunk=number == 2)
        await updater.complete()

    async with client(hosted(work)) as host:
        events = await host.stream("go")
        task = await host.get(events[0].task)
    assert [piece.append for piece in artifact_events(events)] == [False, True, True]
    assert [piece.last_chunk for piece in artifact_events(events)] == [False, False, True]
    assert text_of(task) == replayed(events) == "one two three"


async def test_an_artifact_that_is_not_appended_replaces_the_one_before():
    async def work(context, updater, queue):
        await updater.add_artifact(text("draft"), artifact_id="output")
        await updater.add_artifact(text("final"), artifact_id="output", metadata={"version": 2})
        await updater.complete()

    async with client(hosted(work)) as host:
        task = await send(host, "go")
    assert (text_of(task), task.artifacts[0].metadata) == ("final", {"version": 2})


@pytest.mark.parametrize(
    ("how", "state"), [("failed", TaskState.FAILED), ("reject", TaskState.REJECTED), ("complete", TaskState.COMPLETED)]
)
async def test_how_the_executor_ends_the_task_is_how_it_ends(how, state):
    async def work(context, updater, queue):
        await updater.start_work()
        await getattr(updater, how)(updater.new_agent_message(text("because")))

    async with client(hosted(work)) as host:
        task = await send(host, "go")
    assert (task.status.state, status_text(task)) == (state, "because")


async def test_an_executor_that_returns_without_an_end_has_completed():
    async def work(context, updater, queue):
        await updater.add_artifact(text("that is all"), artifact_id="output")

    async with client(hosted(work)) as host:
        task = await send(host, "go")
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "that is all")


async def test_an_executor_that_raises_is_failed_with_an_error_id_and_its_traceback_stays_in_the_log(caplog):
    async def work(context, updater, queue):
        await updater.start_work()
        raise ValueError("the secret password")

    async with client(hosted(work)) as host:
        task = await send(host, "go")
        raw = (await host.http.get(f"/agents/sdk/tasks/{task.id}")).text
    assert task.status.state is TaskState.FAILED
    found = re.search(r"Error id: (\S+)", status_text(task))
    assert found is not None
    assert found.group(1) in caplog.text
    assert "ValueError: the secret password" in caplog.text
    assert "secret" not in raw


async def test_a_task_object_as_the_first_event_is_the_task():
    async def work(context, updater, queue):
        task = pb.Task(
            id=context.task_id,
            context_id=context.context_id,
            status=pb.TaskStatus(state=pb.TaskState.TASK_STATE_SUBMITTED),
            history=[context.message],
        )
        await queue.enqueue_event(task)
        await updater.start_work()
        await updater.add_artifact(text("found"), artifact_id="output")
        await updater.complete()

    async with client(hosted(work)) as host:
        events = await host.stream("go")
        task = await host.get(events[0].task)
    assert states(events) == [TaskState.WORKING, TaskState.COMPLETED]
    assert (text_of(task), [said.text for said in task.history]) == ("found", ["go"])


async def test_a_task_object_with_everything_in_it_is_taken_whole():
    async def work(context, updater, queue):
        status = pb.TaskStatus(
            state=pb.TaskState.TASK_STATE_COMPLETED, message=updater.new_agent_message(text("all at once"))
        )
        artifact = pb.Artifact(artifact_id="output", parts=text("found"))
        await queue.enqueue_event(
            pb.Task(id=context.task_id, context_id=context.context_id, status=status, artifacts=[artifact])
        )

    async with client(hosted(work)) as host:
        task = await send(host, "go")
    assert (task.status.state, status_text(task), text_of(task)) == (TaskState.COMPLETED, "all at once", "found")


async def test_data_and_files_come_through_both_ways():
    async def work(context, updater, queue):
        await updater.add_artifact(list(context.message.parts), artifact_id="output")
        await updater.complete()

    parts = [Part(data={"n": 1, "list": [1.5, None, "x"]}), Part(raw=b"\x00\xff", filename="a.bin")]
    async with client(hosted(work)) as host:
        task = await send(host, parts)
    assert task.artifacts[0].parts == parts


# Messages


async def test_a_message_alone_is_a_direct_reply_and_no_task():
    async def work(context, updater, queue):
        await queue.enqueue_event(updater.new_agent_message(text(f"hello {context.get_user_input()}")))

    async with client(hosted(work)) as host:
        reply = message_of(await host.send("you"))
        listed = (await host.http.get("/agents/sdk/tasks")).json()["totalSize"]
    assert (reply.text, reply.role, reply.task_id, listed) == ("hello you", Role.AGENT, "", 0)
    assert reply.context_id


async def test_a_message_after_other_events_is_how_the_task_ended():
    async def work(context, updater, queue):
        await updater.start_work()
        await queue.enqueue_event(updater.new_agent_message(text("so long")))

    async with client(hosted(work)) as host:
        task = await send(host, "go")
    assert (task.status.state, status_text(task)) == (TaskState.COMPLETED, "so long")


# Follow-ups


async def test_a_follow_up_has_the_task_with_its_history_as_current_task():
    seen: list[RequestContext] = []

    async def work(context, updater, queue):
        seen.append(context)
        if context.current_task is None:
            await updater.add_artifact(text("begun, "), artifact_id="output")
            await updater.requires_input(updater.new_agent_message(text("Which city?")))
        else:
            await updater.add_artifact(text(context.get_user_input()), artifact_id="output", append=True)
            await updater.complete()

    async with client(hosted(work)) as host:
        task = await send(host, "go")
        assert (task.status.state, status_text(task)) == (TaskState.INPUT_REQUIRED, "Which city?")
        done = await send(host, "Rome", task=task)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "begun, Rome")
    first, second = seen
    assert first.current_task is None
    assert (first.task_id, first.context_id) == (second.task_id, second.context_id) == (task.id, task.context_id)
    assert second.current_task.id == task.id
    assert [said.parts[0].text for said in second.current_task.history] == ["go", "Which city?", "Rome"]
    assert second.current_task.artifacts[0].parts[0].text == "begun, "
    assert second.message.parts[0].text == "Rome"


async def test_an_executor_that_pauses_and_returns_late_does_not_end_the_task_that_was_answered_meanwhile():
    released, runs = asyncio.Event(), []

    async def work(context, updater, queue):
        runs.append(context)
        if context.current_task is None:
            await updater.requires_input(updater.new_agent_message(text("?")))
            await released.wait()
        else:
            await updater.add_artifact(text(context.get_user_input()), artifact_id="output")
            await updater.complete()

    async with client(hosted(work)) as host:
        task = await send(host, "go")
        answering = asyncio.create_task(send(host, "answer", task=task))
        await until_state(host, task, TaskState.WORKING)
        released.set()
        done = await answering
    assert (done.status.state, text_of(done), len(runs)) == (TaskState.COMPLETED, "answer", 2)


async def test_auth_required_pauses_too():
    async def work(context, updater, queue):
        if context.current_task is None:
            await updater.requires_auth(updater.new_agent_message(text("Sign in")))
        else:
            await updater.complete()

    async with client(hosted(work)) as host:
        task = await send(host, "go")
        assert (task.status.state, status_text(task)) == (TaskState.AUTH_REQUIRED, "Sign in")
        assert (await send(host, "done", task=task)).status.state is TaskState.COMPLETED


# What the executor is told


async def test_metadata_modes_and_extensions_reach_the_executor():
    seen: list[RequestContext] = []
    card = pb.AgentCard(
        name="Seeing",
        description="Sees.",
        version="3.0.0",
        capabilities=pb.AgentCapabilities(extensions=[pb.AgentExtension(uri="urn:known")]),
        skills=[pb.AgentSkill(id="see", name="See", description="Sees", tags=["eyes"])],
        default_input_modes=["text/plain"],
        default_output_modes=["image/png"],
    )

    async def work(context, updater, queue):
        seen.append(context)
        await updater.complete()

    async with client(hosted(work, card=card)) as host:
        body = {
            "message": {
                "messageId": "m1",
                "role": "ROLE_USER",
                "parts": [{"text": "hi"}],
                "metadata": {"of": "message"},
            },
            "metadata": {"of": "request"},
            "configuration": {"acceptedOutputModes": ["image/png"]},
        }
        headers = {"A2A-Extensions": "urn:known, urn:unknown"}
        response = await host.http.post("/agents/sdk/message:send", json=body, headers=headers)
        served = (await host.http.get("/agents/sdk/.well-known/agent-card.json")).json()
    assert response.status_code == 200
    (context,) = seen
    assert context.metadata == {"of": "request"}
    assert dict(context.message.metadata) == {"of": "message"}
    assert list(context.configuration.accepted_output_modes) == ["image/png"]
    assert context.call_context.requested_extensions == {"urn:known"}
    assert (served["name"], served["description"], served["version"]) == ("Seeing", "Sees.", "3.0.0")
    assert [skill["id"] for skill in served["skills"]] == ["see"]
    assert (served["defaultInputModes"], served["defaultOutputModes"]) == (["text/plain"], ["image/png"])


async def test_without_a_card_the_class_and_the_id_describe_the_agent():
    async def work(context, updater, queue):
        await updater.complete()

    async with client(hosted(work)) as host:
        card = (await host.http.get("/agents/sdk/.well-known/agent-card.json")).json()
    assert (card["name"], card["description"]) == ("sdk", "Does what the test says.")
    assert card["skills"][0]["id"] == "sdk"


def test_a_bad_id_is_refused():
    async def work(context, updater, queue):
        return None

    with pytest.raises(AgentDefinitionError, match="cannot be an agent's id"):
        SDKAgent("a/b", Executor(work))


# Ends


@pytest.mark.parametrize("late", ["artifact", "status", "message", "task"])
async def test_what_comes_after_the_end_is_ignored_and_the_executor_goes_on(late, caplog):
    after: list[str] = []

    async def work(context, updater, queue):
        await updater.add_artifact(text("in time"), artifact_id="output")
        await updater.complete()
        if late == "artifact":
            await updater.add_artifact(text("late"), artifact_id="output", append=True)
        elif late == "status":
            status = pb.TaskStatus(state=pb.TaskState.TASK_STATE_WORKING)
            await queue.enqueue_event(
                pb.TaskStatusUpdateEvent(task_id=context.task_id, context_id=context.context_id, status=status)
            )
        elif late == "message":
            await queue.enqueue_event(updater.new_agent_message(text("late")))
        else:
            status = pb.TaskStatus(state=pb.TaskState.TASK_STATE_FAILED)
            await queue.enqueue_event(pb.Task(id=context.task_id, context_id=context.context_id, status=status))
        after.append("went on")

    async with serving(hosted(work)) as (host, engine):
        task = await send(host, "go")
        await until(lambda: not engine.runner.runs)
        assert await host.get(task) == task
    assert (task.status.state, text_of(task), after) == (TaskState.COMPLETED, "in time", ["went on"])
    assert "is ignored" in caplog.text


async def test_events_after_a_direct_reply_are_ignored():
    after: list[str] = []

    async def work(context, updater, queue):
        await queue.enqueue_event(updater.new_agent_message(text("reply")))
        await updater.add_artifact(text("late"), artifact_id="output")
        after.append("went on")

    async with serving(hosted(work)) as (host, engine):
        assert message_of(await host.send("go")).text == "reply"
        await until(lambda: not engine.runner.runs)
    assert after == ["went on"]


# Cancel


async def test_cancel_calls_the_executors_cancel_and_stops_execute():
    ended = asyncio.Event()

    async def work(context, updater, queue):
        await updater.start_work()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def cancel(context, updater, queue):
        await updater.cancel(updater.new_agent_message(text("as you wish")))

    agent = hosted(work, cancel)
    async with client(agent) as host:
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        canceled = await host.cancel(task)
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
    assert (canceled.status.state, status_text(canceled)) == (TaskState.CANCELED, "as you wish")
    assert agent.executor.canceled == 1


@pytest.mark.parametrize("behaviour", ["silent", "raises"])
async def test_an_executor_whose_cancel_says_nothing_or_raises_is_canceled_all_the_same(behaviour):
    async def work(context, updater, queue):
        await updater.start_work()
        await asyncio.Event().wait()

    async def cancel(context, updater, queue):
        if behaviour == "raises":
            raise NotImplementedError

    async with client(hosted(work, cancel)) as host:
        task = await send(host, "go", wait=False)
        await until_state(host, task, TaskState.WORKING)
        assert (await host.cancel(task)).status.state is TaskState.CANCELED


async def test_a_paused_executors_task_is_canceled():
    async def work(context, updater, queue):
        await updater.requires_input()

    async with client(hosted(work)) as host:
        task = await send(host, "go")
        assert (await host.cancel(task)).status.state is TaskState.CANCELED


async def test_an_event_that_is_no_a2a_fails_the_task_instead_of_leaving_it_working(caplog):
    async def work(context, updater, queue):
        await updater.start_work()
        await queue.enqueue_event(pb.TaskArtifactUpdateEvent(artifact=pb.Artifact(parts=text("without an id"))))

    async with client(hosted(work)) as host:
        task = await send(host, "go")
    assert task.status.state is TaskState.FAILED
    assert "artifactId" in caplog.text


# Limits


async def test_limits_hold_for_executors_too():
    async def work(context, updater, queue):
        await updater.start_work()
        await asyncio.Event().wait()

    async with client(hosted(work, wall_s=0.1)) as host:
        task = await send(host, "go")
    assert (task.status.state, status_text(task)) == (
        TaskState.FAILED,
        "The agent exceeded its time limit of 0.1 s.",
    )
