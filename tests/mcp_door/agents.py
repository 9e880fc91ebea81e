"""Agents for what those of the other doors do not do: parts of every kind, data, answers without a task, odd names."""

import asyncio
import base64

from roost import Agent, Part

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

parts = Agent("parts", output_modes=["*/*"])


@parts.on_message
async def of_every_kind(task):
    """Gives parts of every kind."""
    yield "some "
    yield "text"
    yield Part(raw=PIXEL, media_type="image/png")
    yield Part(raw=b"\x00\x01", media_type="audio/wav")
    yield Part(raw=b"\x00\x01", media_type="application/zip", filename="a.zip")
    yield Part(url="https://example.com/a.txt", media_type="text/plain", filename="a.txt")
    yield Part(data={"answer": 42})


reader = Agent("reader", input_modes=["text/plain", "application/json"])


@reader.on_message
async def read(task):
    """Says what it was given."""
    return {"text": task.text, "parts": len(task.parts), "data": [part.data for part in task.parts[1:]]}


direct = Agent("direct", direct=True)


@direct.on_message
async def at_once(task):
    """Answers without a task."""
    task.reply(f"you said {task.text}")


dotted = Agent("a.dotted.name")


@dotted.on_message
async def of_dots(task):
    """Has a name that no tool can have."""
    return "dots"


taken = Agent("get_task")


@taken.on_message
async def of_a_tool(task):
    """Has the name of a tool."""
    return "an agent all the same"


plodder = Agent("plodder", parallel=True, input_modes=["text/plain"])


@plodder.on_message
async def for_ever(task):
    """Works until it is told to stop."""
    yield "begun"
    await asyncio.Event().wait()
