"""The agent of the benchmark on Roost: `roost serve benchmarks/agents.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pieces import pieces  # beside this file, where `roost serve` looks
from roost import Agent
from roost.agents.task import AgentTask

agent = Agent("bench", version="1.0.0")


@agent.on_message
async def bench(task: AgentTask) -> AsyncIterator[str]:
    """Streams as many pieces as the message asks for."""
    async for piece in pieces(task.text):
        yield piece
