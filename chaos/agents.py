"""The agents of the load: `roost serve chaos/agents.py`. Steps tell $CHAOS_STEPS when they run and when they are past.

A line is written at once and whole, by whichever process: the file has them in the order in which they happened.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator

from roost import Agent
from roost.agents.task import AgentTask
from words import ASK, FRAGILE, STEP_EVERY, STEPS, STREAM, THREAD, order, result_of_step, words  # beside this file

stream = Agent(STREAM)
steps = Agent(STEPS)
ask = Agent(ASK)
thread = Agent(THREAD)
fragile = Agent(FRAGILE, on_crash="fail")

LOG = os.open(os.environ.get("CHAOS_STEPS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def tell(what: str, key: str) -> None:
    os.write(LOG, f"{what} {key} {os.getpid()}\n".encode())


@stream.on_message
async def say(task: AgentTask) -> AsyncIterator[str]:
    """Says its words, with a pause after each."""
    wanted = order(task.text)
    for word in words(wanted):
        yield word
        await asyncio.sleep(wanted.pause_s)


@steps.on_message
async def climb(task: AgentTask) -> AsyncIterator[str]:
    """Makes a step every few words."""
    wanted = order(task.text)

    async def work(number: int) -> dict[str, str]:
        tell("run", task.step_key)
        await asyncio.sleep(wanted.pause_s)
        return {"key": task.step_key, "said": result_of_step(wanted.seed, number)}

    for number, word in enumerate(words(wanted)):
        if number % STEP_EVERY == 0:
            made = await task.step("work", work, number)
            tell("past", made["key"])
            yield made["said"]
        yield word
        await asyncio.sleep(wanted.pause_s)


@ask.on_message
async def inquire(task: AgentTask) -> AsyncIterator[str]:
    """Asks when half of it is said."""
    wanted = order(task.text)
    said = words(wanted)
    half = len(said) // 2
    for word in said[:half]:
        yield word
        await asyncio.sleep(wanted.pause_s)
    yield f"<{(await task.ask('And now?')).text}> "
    for word in said[half:]:
        yield word
        await asyncio.sleep(wanted.pause_s)


@thread.on_message
def drone(task: AgentTask) -> Iterator[str]:
    """Says its words in a thread."""
    wanted = order(task.text)
    for word in words(wanted):
        yield word
        time.sleep(wanted.pause_s)


@fragile.on_message
async def once(task: AgentTask) -> AsyncIterator[str]:
    """Says its words, and is never called twice."""
    wanted = order(task.text)
    for word in words(wanted):
        yield word
        await asyncio.sleep(wanted.pause_s)
