"""Agents for a host that is killed: they stop where the test wants, at a file that does not exist yet."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from roost import Agent

pieces = Agent("pieces")
sync_pieces = Agent("sync-pieces")
narrow = Agent("narrow", concurrency=1)
no_resume = Agent("no-resume", on_crash="fail")
killer = Agent("killer")
direct = Agent("direct", direct=True)
asking = Agent("asking")


async def passed(gate: str) -> None:
    while not Path(gate).exists():
        await asyncio.sleep(0.01)


def note(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(line + "\n")


@pieces.on_message
async def say_pieces(task):
    """Says two pieces, does a step, says two more, and waits at the gate."""
    yield "kept-1 "
    yield "kept-2 "
    yield await task.step("mark", lambda: note(task.data["calls"], "step") or "marked ")
    yield "loose-1 "
    yield "loose-2 "
    await passed(task.data["gate"])
    yield "end"


@sync_pieces.on_message
def say_pieces_in_a_thread(task):
    """The same in a thread."""
    yield "kept-1 "
    yield "kept-2 "
    yield task.step("mark", lambda: note(task.data["calls"], "step") or "marked ")
    yield "loose-1 "
    yield "loose-2 "
    while not Path(task.data["gate"]).exists():
        time.sleep(0.01)
    yield "end"


@narrow.on_message
async def one_at_a_time(task):
    """One at a time: waits at the gate and says its name."""
    note(task.data["calls"], task.data["name"])
    await passed(task.data["gate"])
    return task.data["name"]


@no_resume.on_message
async def begin_only_once(task):
    """Is not called twice for one message."""
    note(task.data["calls"], "called")
    yield "begun "
    if task.data["step"]:
        await task.step("mark", lambda: None)
    note(task.data["calls"], "waits")
    await passed(task.data["gate"])
    yield "end"


@killer.on_message
async def kill_the_host(task):
    """Kills its host."""
    note(task.data["calls"], "called")
    os._exit(7)


@direct.on_message
async def reply(task):
    """Replies when it may pass the gate."""
    note(task.data["calls"], "called")
    await passed(task.data["gate"])
    task.reply("hello again")


@asking.on_message
async def ask(task):
    """Asks twice."""
    city = (await task.ask("Which city?")).text
    yield f"{city} "
    yield (await task.ask("Which day?")).text
