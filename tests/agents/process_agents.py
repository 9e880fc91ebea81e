"""Agents that run in processes of their own."""

import asyncio
import os
from pathlib import Path

from roost import Agent

talk = Agent("talk", process=True, env={"GIVEN": "yes"}, input_modes=["*/*"])
spin = Agent("spin", process=True)
boom = Agent("boom", process=True)
dies = Agent("dies", process=True)
tidy = Agent("tidy", process=True)
sync = Agent("sync", process=True, direct=True)


@talk.on_message
async def talking(task):
    """Steps, asks and streams."""
    yield f"pid:{os.getpid()} given:{os.environ.get('GIVEN')} secret:{os.environ.get('ROOST_TEST_SECRET')}\n"
    count = await task.step("count", lambda: 41)
    yield f"{count + 1}\n"
    yield f"hello {(await task.ask('Who?')).text}\n"


@spin.on_message
def spinning(task):
    """Never calls `task` again: only a kill stops it."""
    task.status(f"pid:{os.getpid()}")
    while True:
        pass


@boom.on_message
async def booming(task):
    """Raises."""
    raise ValueError("not for the client")


@dies.on_message
async def dying(task):
    """Dies without a word."""
    yield "before"
    os._exit(7)


@tidy.on_message
async def tidying(task):
    """Cleans up when it is cancelled."""
    try:
        task.status("ready")
        await asyncio.sleep(3600)
    finally:
        await asyncio.to_thread(Path(task.text).write_text, "cleaned")


@sync.on_message
def in_thread(task):
    """A plain function in a process: a direct reply, or steps and pieces."""
    if task.text == "direct":
        task.reply("pong")
    task.emit("a")
    task.emit(str(task.step("len", len, "four")))
    return "z"
