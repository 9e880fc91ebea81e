"""The agents that the hostile requests call: `roost serve benchmarks/agents.py benchmarks/hostile/agents.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from roost import Agent, Part
from roost.agents.task import AgentTask

ANY = ["*/*"]
sink = Agent("sink", version="1.0.0", input_modes=ANY, output_modes=ANY)
echo = Agent("echo", version="1.0.0", input_modes=ANY, output_modes=ANY)
large = Agent("large", version="1.0.0", input_modes=ANY, output_modes=ANY)
asking = Agent("asking", version="1.0.0", input_modes=ANY, output_modes=ANY)

MEGABYTE = 1024 * 1024


@sink.on_message
async def swallow(task: AgentTask) -> str:
    """Accepts everything and says nothing about it."""
    return "ok"


@echo.on_message
async def repeat(task: AgentTask) -> AsyncIterator[Part]:
    """Returns the parts of the message."""
    for part in task.parts:
        yield part


@large.on_message
async def produce(task: AgentTask) -> AsyncIterator[Any]:
    """Emits as many megabytes as the message says: "text 8" or "data 8"."""
    kind, megabytes = task.text.split()
    for number in range(int(megabytes)):
        if kind == "text":
            yield f"{number}".ljust(MEGABYTE, "x")
        else:
            yield {"values": [[number, each, f"{each}"] for each in range(50_000)]}


@asking.on_message
async def wait(task: AgentTask) -> None:
    """Asks again and again, and so has a task that stays open."""
    while True:
        await task.ask("And now?")
