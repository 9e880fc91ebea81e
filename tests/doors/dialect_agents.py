"""An agent whose id reads like the dialect's paths."""

from roost import Agent

v1 = Agent("v1")


@v1.on_message
async def confusing(task):
    """Is called like a version."""
    return "not a version"
