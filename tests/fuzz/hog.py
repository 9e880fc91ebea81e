"""An agent that blocks the event loop, for test_blocking.py: it computes, or sleeps, for a second."""

from __future__ import annotations

import asyncio
import time

from roost import Agent
from roost.agents.task import AgentTask

hog = Agent("hello")  # the name that the fuzzer knows
SECONDS = 1.0


@hog.on_message
async def compute(task: AgentTask) -> str:
    if "compute" in task.text:
        until = time.thread_time() + SECONDS
        while time.thread_time() < until:
            pass
    elif "sleep" in task.text:
        await asyncio.sleep(SECONDS)
    return "done"
