"""A long job with recorded steps: kill the host in the middle, restart it, and the job continues."""

import asyncio
import re

from roost import Agent

agent = Agent("job", version="1.0.0")
LONGEST = 100_000


async def count(number: int) -> int:
    await asyncio.sleep(0.1)
    return number


@agent.on_message
async def job(task):
    """Counts to the number in the message, a tenth of a second for each."""
    found = re.search(r"\d+", task.text)
    goal = min(int(found.group()), LONGEST) if found else 10
    for number in range(1, goal + 1):
        yield f"{await task.step('count', count, number)}\n"
