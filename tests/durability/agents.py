"""Agents whose every word can be foretold."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from roost import Agent
from roost.agents.task import AgentTask

counting = Agent("counting", parallel=True)
held = Agent("held", parallel=True)
asking = Agent("asking", parallel=True)


def expected(text: str) -> str:
    """The answer of `counting` to a text in an undisturbed run."""
    return f"{text}: 0 1 2 3 4 5 {text[::-1]}"


@counting.on_message
async def count(task: AgentTask) -> AsyncIterator[str]:
    """Counts, with a pause at each number and a step in the middle."""
    yield f"{task.text}:"
    for number in range(6):
        if number == 3:
            backwards = await task.step("backwards", lambda: task.text[::-1])
        yield f" {number}"
        await asyncio.sleep(0.003)
    yield f" {backwards}"


@held.on_message
async def hold(task: AgentTask) -> AsyncIterator[str]:
    """Says `one`, waits until the file `go` is there, says `two`."""
    folder = Path(os.environ["SYNCGATE"])
    (folder / "called").touch()
    yield "one"
    while not (folder / "go").exists():
        await asyncio.sleep(0.005)
    yield " two"


@asking.on_message
async def ask(task: AgentTask) -> AsyncIterator[str]:
    """Repeats the message and the answer to its question."""
    answer = await task.ask(f"What after {task.text}?")
    yield f"{task.text} {answer.text}"
