"""Streams: every yield is an event that the client sees at once."""

import re

from roost import Agent

agent = Agent("stream", version="1.0.0")


@agent.on_message
async def stream(task):
    """Streams its input back, word by word."""
    for word in re.findall(r"\S+\s*", task.text):
        yield word
