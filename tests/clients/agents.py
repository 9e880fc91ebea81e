"""Agents that each show one thing to every client."""

import asyncio

from roost import Agent, AgentExtension

EXTENSION = "https://example.com/extensions/strict/v1"
GATES: dict[str, asyncio.Event] = {}


def gate(name: str) -> asyncio.Event:
    return GATES.setdefault(name, asyncio.Event())


release = Agent("release", parallel=True)


@release.on_message
async def open_gate(task):
    """Opens the gate that its message names."""
    gate(task.text).set()
    return "open"


words = Agent("words", parallel=True)


@words.on_message
async def say_words(task):
    """Streams its message word by word."""
    for word in task.text.split(" "):
        yield word + " "


hold = Agent("hold", parallel=True)


@hold.on_message
async def wait_at_gate(task):
    """Streams a word, waits at the gate that its message names, and streams another."""
    yield "one "
    await gate(task.text).wait()
    yield "two"


trip = Agent("trip")


@trip.on_message
async def ask_for_a_city(task):
    """Asks for a city, and greets from there."""
    city = (await task.ask("Which city?")).text
    yield f"Greetings from {city}!"


lookout = Agent("lookout")


@lookout.on_message
async def watch_a_city(task):
    """Waits at the gate that its message names, asks for a city, and watches it until it is told to stop."""
    yield "Ready. "
    await gate(task.text).wait()
    city = (await task.ask("Which city?")).text
    yield f"Watching {city}."
    await asyncio.Event().wait()


direct = Agent("direct", direct=True)


@direct.on_message
async def reply(task):
    """Answers at once, without a task."""
    task.reply(f"You said {task.text}")


strict = Agent("strict", extensions=[AgentExtension(uri=EXTENSION, required=True)])


@strict.on_message
async def name_extensions(task):
    """Is only for clients that know an extension, and names those that are active."""
    return " ".join(task.extensions)
