"""An agent that counts in recorded steps, and waits for the test halfway."""

import asyncio
import os
from pathlib import Path

from roost import Agent

agent = Agent("count")
GATE = Path(os.environ["AGENT_GATE"])


@agent.on_message
async def count(task):
    """Counts to the number in the message."""
    goal = int(task.text)
    for number in range(1, goal + 1):
        yield f"{await task.step('count', int, number)}\n"
        while number == goal // 2 and not GATE.exists():
            await asyncio.sleep(0.01)
