"""The cases of test_turn.py: agents that use their `Turn` in this process and in their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from roost import Agent, Artifact, Part
from roost.engine import steps
from roost.engine.turn import Turn
from roost.extensions.data import TokenUsage
from roost.protocol.types import TaskState

Case = Callable[[Turn, dict[str, Any]], Awaitable[None]]

CASES: dict[str, Case] = {}

inside = Agent("inside")
outside = Agent("outside", process=True)
inside_direct = Agent("inside-direct", direct=True)
outside_direct = Agent("outside-direct", direct=True, process=True)


async def run_case(task: Any) -> None:
    """Hands the turn to the case that the message names, with the data of the message."""
    await CASES[task.text](task._turn, task.data or {})


for agent in (inside, outside, inside_direct, outside_direct):
    agent.on_message(run_case)


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def part_of(value: Any) -> Artifact:
    return Artifact(artifact_id="found", parts=[Part(data=value)])


def facts(turn: Turn) -> dict[str, Any]:
    return {
        "task": turn.task_id,
        "context": turn.context_id,
        "agent": turn.agent_id,
        "caller": turn.caller,
        "tenant": turn.tenant,
        "messages": [received.message.parts[0].text for received in turn.messages],
        "latest": turn.latest.message.parts[0].text,
        "metadata": turn.latest.metadata,
        "extensions": list(turn.extensions),
        "rerun": turn.rerun,
        "cancelled": turn.cancelled,
        "closed": turn.closed,
        "about": turn.about,
    }


@case
async def tell_facts(turn: Turn, data: dict[str, Any]) -> None:
    turn.artifact(part_of(facts(turn)), append=False)


@case
async def tell_facts_after_an_answer(turn: Turn, data: dict[str, Any]) -> None:
    answer = await turn.ask(TaskState.INPUT_REQUIRED, turn.message([Part(text="Which?")]))
    turn.artifact(part_of({**facts(turn), "answer": answer.message.text}), append=False)


@case
async def emit_text(turn: Turn, data: dict[str, Any]) -> None:
    for number in range(data["pieces"]):
        turn.text(f"{number} ")
        await turn.pace()


@case
async def emit_large_pieces(turn: Turn, data: dict[str, Any]) -> None:
    """Ends at once, with most of its text still on the way."""
    for letter in "abc":
        turn.text(letter * 1_000_000)


@case
async def join_text(turn: Turn, data: dict[str, Any]) -> None:
    for piece in ("a", "b", "c"):
        turn.text(piece, join_s=3600)
    turn.flush_text()
    turn.text("d", join_s=3600)
    turn.status(TaskState.WORKING, turn.message([Part(text="another emission")]))


@case
async def emit_artifacts(turn: Turn, data: dict[str, Any]) -> None:
    turn.artifact(Artifact(artifact_id="report", name="Report", parts=[Part(text="one")]), append=False)
    turn.artifact(
        Artifact(artifact_id="report", parts=[Part(raw=b"\x00\xff")]),
        append=True,
        last_chunk=True,
        metadata={"of": "the event"},
    )


@case
async def emit_status(turn: Turn, data: dict[str, Any]) -> None:
    message = turn.message([Part(text="half done")], {"of": "the message"})
    turn.status(TaskState.WORKING, message, {"of": "the event"})
    turn.status(TaskState.REJECTED, turn.message([Part(text="not here")]))


@case
async def emit_after_the_end(turn: Turn, data: dict[str, Any]) -> None:
    turn.text("in time")
    turn.status(TaskState.COMPLETED)
    turn.text("late")
    await turn.commit()
    note(data, "went on")


@case
async def commit(turn: Turn, data: dict[str, Any]) -> None:
    turn.text("on disk", join_s=3600)
    await turn.commit()
    note(data, "committed")
    await asyncio.Event().wait()


@case
async def read_task(turn: Turn, data: dict[str, Any]) -> None:
    turn.text("first ")
    turn.text("second", join_s=3600)
    task = await turn.read_task()
    seen = "".join(part.text for part in task.artifacts[0].parts)
    task.artifacts.clear()
    turn.artifact(part_of({"state": task.status.state, "id": task.id, "text": seen}), append=False)


@case
async def report_usage(turn: Turn, data: dict[str, Any]) -> None:
    turn.usage(TokenUsage(10, 2, 1), 0.25)
    turn.usage(TokenUsage(5, 1, 0))
    turn.usage(TokenUsage(0, 4, 2), 0.5)


@case
async def reply(turn: Turn, data: dict[str, Any]) -> None:
    if data.get("after") == "text":
        turn.text("first")
    elif data.get("after") == "become_task":
        turn.become_task()
    turn.reply(turn.message([Part(text="hello")]))


@case
async def take_steps(turn: Turn, data: dict[str, Any]) -> None:
    """Tells what it knew of its steps before they ran, before and after an answer."""
    found = []
    for name, result in (("draw", 1), ("draw", [2.5, None]), ("other", "x")):
        step = await turn.begin_step(name)
        known = None if step.record is None else step.record.result
        found.append([step.name, step.occurrence, step.key, step.record is not None, known])
        if step.record is None:
            turn.text(f"{name} ")
            await turn.end_step(steps.succeeded(name, step.occurrence, result))
    turn.artifact(Artifact(artifact_id=f"steps {turn.rerun}", parts=[Part(data=found)]), append=False)
    await turn.ask(TaskState.INPUT_REQUIRED, turn.message([Part(text="Again?")]))
    turn.artifact(Artifact(artifact_id=f"steps {turn.rerun}", parts=[Part(data=found)]), append=False)


@case
async def fail_a_step(turn: Turn, data: dict[str, Any]) -> None:
    async def work(key: str) -> None:
        raise ValueError("no luck", 7)

    try:
        await steps.run(turn, "try", work)
    except ValueError as error:
        kept = list(error.args)
    await turn.ask(TaskState.INPUT_REQUIRED, turn.message([Part(text="Again?")]))
    turn.artifact(part_of(kept), append=False)


@case
async def take_steps_at_the_same_time(turn: Turn, data: dict[str, Any]) -> None:
    both = asyncio.Barrier(2)

    async def work(key: str) -> str:
        await both.wait()
        return key.rpartition(":")[0].rpartition(":")[2]

    results = await asyncio.gather(*(steps.run(turn, name, work) for name in ("left", "right")))
    turn.artifact(part_of(results), append=False)


@case
async def give_up_a_call(turn: Turn, data: dict[str, Any]) -> None:
    """The answer to a call that nobody waits for any more must not become the answer to the next."""
    given_up = asyncio.create_task(turn.begin_step("given up"))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    step = await turn.begin_step("next")
    turn.artifact(part_of(step.name), append=False)


@case
async def ask_twice(turn: Turn, data: dict[str, Any]) -> None:
    """Emits between its questions, and takes notes of how it leaves."""
    try:
        turn.text("begin ")
        name = await turn.ask(TaskState.INPUT_REQUIRED, turn.message([Part(text="Name?")]))
        turn.text(f"{name.message.text} ")
        token = await turn.ask(TaskState.AUTH_REQUIRED, turn.message([Part(text="Token?")]))
        turn.text(f"{token.message.text} {token.metadata}")
    finally:
        note(data, "left")


@case
async def wait_for_a_cancel(turn: Turn, data: dict[str, Any]) -> None:
    note(data, "waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note(data, f"cancelled: {turn.cancelled}")
        raise


def note(data: dict[str, Any], line: str) -> None:
    with Path(data["notes"]).open("a") as notes:
        notes.write(f"{line}\n")
