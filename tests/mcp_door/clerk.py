"""An agent that has much to say after its question."""

import asyncio

from roost import Agent

clerk = Agent("clerk")


@clerk.on_message
async def greet(task):
    """Asks for a name and greets it, for a while."""
    name = (await task.ask("Your name?")).text
    for _ in range(200):
        yield f"hello {name} "
        await asyncio.sleep(0.01)
