"""Agents that write down what they do, where every host and the test can see it."""

import asyncio
import os
import signal
from pathlib import Path

from roost import Agent

LOG = Path(os.environ["AGENT_LOG"])

counter = Agent("counter")
gated = Agent("gated")
asker = Agent("asker")
once = Agent("once", on_crash="fail")
quitter = Agent("quitter", on_crash="fail")


def note(task_id: str, what: str) -> None:
    with (LOG / task_id).open("a") as file:
        file.write(f"{what}\n")


async def gate(task_id: str) -> None:
    while not (LOG / f"{task_id}.go").exists():
        await asyncio.sleep(0.02)


@counter.on_message
async def count(task):
    """Counts to the number it is sent."""
    for number in range(int(task.text)):
        yield f"{number},"
        await asyncio.sleep(0.002)


@gated.on_message
async def wait(task):
    """Says one thing, waits for the test, says another."""
    note(task.id, "called")
    await task.step("first", note, task.id, "step")
    yield "one "
    try:
        await gate(task.id)
    except asyncio.CancelledError:
        note(task.id, "cancelled")
        raise
    yield "two"


@asker.on_message
async def ask(task):
    """Asks for a name."""
    name = (await task.ask("Your name?")).text
    yield f"hello {name}"


@once.on_message
async def run_once(task):
    """Is never called twice."""
    note(task.id, "called")
    yield "one "
    await gate(task.id)
    yield "two"


@quitter.on_message
async def quit_now(task):
    """Takes its host down, in a way that looks like an error of the host's own."""
    os._exit(1)


patient = Agent("patient")
killer = Agent("killer")


@patient.on_message
async def be_patient(task):
    """Says one thing, waits for the test, says another. No step is progress."""
    note(task.id, "called")
    yield "one "
    await gate("all")
    yield task.text


@killer.on_message
async def kill(task):
    """Kills its host, as soon as the test allows it."""
    note(task.id, "called")
    await gate(task.id)
    os.kill(os.getpid(), signal.SIGKILL)
