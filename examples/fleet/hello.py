"""The smallest agent."""

from roost import Agent

agent = Agent("hello", version="1.0.0")


@agent.on_message
async def hello(task):
    """Greets whoever writes to it."""
    return f"Hello, {task.text or 'world'}!"
