"""A human in the loop: the task waits for the answer as long as it takes, across restarts."""

from roost import Agent

agent = Agent("ask", version="1.0.0")


@agent.on_message
async def ask(task):
    """Asks for your name, then greets you."""
    name = (await task.ask("What is your name?")).text
    yield f"Nice to meet you, {name}!"
