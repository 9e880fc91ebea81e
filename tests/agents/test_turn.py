"""The contract of `Turn`: the same for a runtime in the host's process and for one at the end of a pipe.

Another runtime or transport is held to it by a line in AGENTS and DIRECT.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost import Agent
from roost.engine.turn import Turn
from roost.extensions.data import plain, usage_of
from roost.protocol.types import Message, Part, Role, Task, TaskState
from roost.testing import InProcessClient, client
from tests.agents import turn_cases
from tests.agents.talk import artifact_events, message_of, send, states, status_text, text_of, until, until_state

AGENTS = [turn_cases.inside, turn_cases.outside]
DIRECT = [turn_cases.inside_direct, turn_cases.outside_direct]

pytestmark = pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.id)


def says(case: str, **data: Any) -> list[Part]:
    return [Part(text=case), Part(data=data)]


async def ran(host: InProcessClient, case: str, **data: Any) -> Task:
    """The task after a case that has to end it well."""
    task = await send(host, says(case, **data))
    assert task.status.state is TaskState.COMPLETED, "the case failed; its traceback is in the log"
    return task


def found(task: Task, artifact_id: str = "found") -> Any:
    (artifact,) = [artifact for artifact in task.artifacts if artifact.artifact_id == artifact_id]
    return artifact.parts[0].data


def lines(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


# What a turn is about


async def test_it_names_the_task_the_caller_and_the_messages(agent: Agent):
    async with client(agent) as host:
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "tell_facts"}]}
        response = await host.http.post(
            f"/agents/{agent.id}/message:send", json={"message": message, "metadata": {"of": "the request"}}
        )
        task = await host.get(response.json()["task"]["id"])
    assert found(task) == {
        "task": task.id,
        "context": task.context_id,
        "agent": agent.id,
        "caller": "roost:local",
        "tenant": "default",
        "messages": ["tell_facts"],
        "latest": "tell_facts",
        "metadata": {"of": "the request"},
        "extensions": [],
        "rerun": False,
        "cancelled": False,
        "closed": False,
        "about": {"task": task.id, "agent": agent.id, "principal": "roost:local"},
    }


async def test_after_an_answer_it_is_a_rerun_and_the_answer_is_the_latest_message(agent: Agent):
    async with client(agent) as host:
        task = await send(host, says("tell_facts_after_an_answer"))
        task = await send(host, "this one", task=task)
    facts = found(task)
    assert (facts["rerun"], facts["messages"]) == (True, ["tell_facts_after_an_answer", "this one"])
    assert facts["latest"] == facts["answer"] == "this one"


async def test_the_task_as_it_is_now_has_what_the_turn_has_emitted_and_is_a_copy(agent: Agent):
    async with client(agent) as host:
        task = await ran(host, "read_task")
    assert found(task) == {"state": TaskState.WORKING, "id": task.id, "text": "first second"}
    assert text_of(task) == "first second"


# Emissions


async def test_pieces_of_text_come_in_order_one_event_each(agent: Agent):
    async with client(agent) as host:
        events = artifact_events(await host.stream(says("emit_text", pieces=600)))
    assert [event.artifact.parts[0].text for event in events] == [f"{number} " for number in range(600)]
    assert [event.append for event in events] == [False] + [True] * 599


async def test_nothing_is_lost_when_the_function_returns_right_after_it_has_emitted(agent: Agent):
    async with client(agent) as host:
        task = await ran(host, "emit_large_pieces")
    assert [(len(part.text), {*part.text}) for part in task.artifacts[0].parts] == [
        (1_000_000, {letter}) for letter in "abc"
    ]


async def test_text_is_joined_until_it_is_flushed_or_something_else_is_emitted(agent: Agent):
    async with client(agent) as host:
        events = await host.stream(says("join_text"))
    assert [event.artifact.parts[0].text for event in artifact_events(events)] == ["abc", "d"]
    assert [state.removeprefix("TASK_STATE_") for state in states(events)] == ["WORKING", "WORKING", "COMPLETED"]
    assert events[-2].status_update.status.message.text == "another emission"


async def test_artifacts_are_emitted_as_given(agent: Agent):
    async with client(agent) as host:
        first, second = artifact_events(await host.stream(says("emit_artifacts")))
    assert (first.artifact.name, first.append, first.last_chunk) == ("Report", False, False)
    assert (second.artifact.parts, second.append, second.last_chunk) == ([Part(raw=b"\x00\xff")], True, True)
    assert second.metadata == {"of": "the event"}


async def test_a_status_carries_a_message_of_the_agent_and_a_terminal_one_ends_the_task(agent: Agent):
    async with client(agent) as host:
        events = await host.stream(says("emit_status"))
        task = await host.get(events[0].task)
    update = events[-2].status_update
    message = update.status.message
    assert (message.role, message.text, message.metadata) == (Role.AGENT, "half done", {"of": "the message"})
    assert (message.task_id, message.context_id, update.metadata) == (task.id, task.context_id, {"of": "the event"})
    assert (task.status.state, status_text(task)) == (TaskState.REJECTED, "not here")


async def test_an_emission_after_the_end_leaves_the_function_and_is_not_kept(agent: Agent, tmp_path: Path):
    async with client(agent) as host:
        task = await ran(host, "emit_after_the_end", notes=str(tmp_path / "notes"))
        await send(host, says("emit_text", pieces=1), context=task.context_id)  # runs after the first turn is over
        assert (await host.get(task)).artifacts == task.artifacts
    assert (text_of(task), lines(tmp_path / "notes")) == ("in time", [])


async def test_what_was_emitted_before_commit_returns_can_be_read(agent: Agent, tmp_path: Path):
    async with client(agent) as host:
        task = await send(host, says("commit", notes=str(tmp_path / "notes")), wait=False)
        await until(lambda: lines(tmp_path / "notes") == ["committed"])
        assert text_of(await host.get(task)) == "on disk"
        await host.cancel(task)


async def test_usage_is_the_sum_of_the_reports_in_a_form_that_readers_know(agent: Agent):
    async with client(agent) as host:
        events = artifact_events(await host.stream(says("report_usage")))
        task = await ran(host, "report_usage")
    seen = [usage_of(event.artifact.metadata, event.artifact.parts) for event in events]
    assert seen == [(10, 2, 1), (15, 3, 1), (15, 7, 3)]
    (artifact,) = task.artifacts
    assert usage_of(artifact.metadata, []) == usage_of(None, artifact.parts) == (15, 7, 3)
    assert plain(artifact.parts) == [], "it is not content"
    assert artifact.parts[0].data["costUsd"] == 0.75


# Steps


async def test_a_step_is_recorded_once_and_found_by_name_and_occurrence(agent: Agent):
    async with client(agent) as host:
        asked = await send(host, says("take_steps"))
        task = await send(host, "yes", task=asked)
    keys = [f"{task.id}:draw:0", f"{task.id}:draw:1", f"{task.id}:other:0"]
    assert found(asked, "steps False") == [
        ["draw", 0, keys[0], False, None],
        ["draw", 1, keys[1], False, None],
        ["other", 0, keys[2], False, None],
    ]
    assert found(task, "steps True") == [
        ["draw", 0, keys[0], True, 1],
        ["draw", 1, keys[1], True, [2.5, None]],
        ["other", 0, keys[2], True, "x"],
    ]
    assert text_of(task) == "draw draw other ", "what steps have emitted is not emitted again"


async def test_a_step_that_failed_fails_again_in_the_same_way(agent: Agent):
    async with client(agent) as host:
        task = await send(host, says("fail_a_step"))
        task = await send(host, "yes", task=task)
    assert found(task) == ["no luck", 7]


async def test_steps_may_run_at_the_same_time(agent: Agent):
    async with client(agent) as host:
        assert found(await ran(host, "take_steps_at_the_same_time")) == ["left", "right"]


async def test_a_call_that_is_given_up_does_not_disturb_the_next(agent: Agent):
    async with client(agent) as host:
        assert found(await ran(host, "give_up_a_call")) == "next"


# Questions


async def test_a_question_leaves_the_function_and_a_rerun_gets_the_answers(agent: Agent, tmp_path: Path):
    notes = tmp_path / "notes"
    async with client(agent) as host:
        task = await send(host, says("ask_twice", notes=str(notes)))
        assert (task.status.state, status_text(task)) == (TaskState.INPUT_REQUIRED, "Name?")
        await until(lambda: lines(notes) == ["left"])
        task = await send(host, "Ada", task=task)
        assert (task.status.state, status_text(task)) == (TaskState.AUTH_REQUIRED, "Token?")
        assert text_of(task) == "begin Ada ", "what came before the first question is not emitted again"
        await until(lambda: lines(notes) == ["left"] * 2)
        task = await send(host, "secret", task=task)
    assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "begin Ada secret None")
    assert lines(notes) == ["left"] * 3


# Direct replies


@pytest.mark.parametrize("after", [None, "text", "become_task"])
async def test_a_reply_is_a_message_unless_the_exchange_is_a_task_already(agent: Agent, after: str | None, monkeypatch):
    monkeypatch.setattr("roost.engine.intake.DIRECT_WITHIN_S", 3600.0)
    direct = DIRECT[AGENTS.index(agent)]
    async with client(direct) as host:
        answer = await host.send(says("reply", after=after))
    if after is None:
        message = message_of(answer)
        assert (message.text, message.role, message.task_id) == ("hello", Role.AGENT, "")
    else:
        assert not isinstance(answer, Message)
        assert (answer.status.state, status_text(answer)) == (TaskState.COMPLETED, "hello")


# How a cancel arrives


async def test_a_cancel_is_known_before_the_coroutine_is_cancelled(agent: Agent, tmp_path: Path):
    notes = tmp_path / "notes"
    async with client(agent) as host:
        task = await send(host, says("wait_for_a_cancel", notes=str(notes)), wait=False)
        await until(lambda: lines(notes) == ["waiting"])
        await host.cancel(task)
        task = await until_state(host, task, TaskState.CANCELED)
        await until(lambda: lines(notes) == ["waiting", "cancelled: True"])


class Noting:
    """A hosted agent that takes notes of how its turn is canceled."""

    def __init__(self, agent: Agent) -> None:
        self.inner = agent.hosted()
        self.profile = self.inner.profile
        self.id = agent.id
        self.turns: list[Turn] = []
        self.notes: list[tuple[bool, bool, bool]] = []

    def hosted(self) -> Noting:
        return self

    async def run(self, turn: Turn) -> None:
        self.turns.append(turn)
        await self.inner.run(turn)

    async def cancel(self, turn: Turn) -> None:
        self.notes.append((turn is self.turns[0], turn.cancelled, turn.closed))
        await self.inner.cancel(turn)


async def test_a_clients_cancel_calls_the_hook_of_the_runtime_first(agent: Agent, tmp_path: Path):
    noting, notes = Noting(agent), tmp_path / "notes"
    async with client(noting) as host:
        task = await send(host, says("wait_for_a_cancel", notes=str(notes)), wait=False)
        await until(lambda: lines(notes) == ["waiting"])
        await host.cancel(task)
        await until_state(host, task, TaskState.CANCELED)
    assert noting.notes == [(True, True, False)]
    assert noting.turns[0].closed


async def test_a_host_that_shuts_down_stops_the_turn_without_the_hook(agent: Agent, tmp_path: Path):
    noting, notes = Noting(agent), tmp_path / "notes"
    async with client(noting) as host:
        await send(host, says("wait_for_a_cancel", notes=str(notes)), wait=False)
        await until(lambda: lines(notes) == ["waiting"])
    assert (noting.notes, noting.turns[0].cancelled, noting.turns[0].closed) == ([], True, True)
    assert lines(notes) == ["waiting", "cancelled: True"]
