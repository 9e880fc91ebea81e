"""The agents of the load: `roost serve chaos/agents.py`. They log to $CHAOS_STEPS when a step runs and when it is over.

Every process appends each line with one write, so that the file has the lines in the order in which they happened.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator

from roost import Agent
from roost.agents.task import AgentTask
from texts import (  # beside this file
    ASK,
    FRAGILE,
    SINK,
    STEP_EVERY,
    STEPS,
    STREAM,
    THREAD,
    parse_job,
    pieces,
    step_result,
)

stream = Agent(STREAM)
steps = Agent(STEPS)
ask = Agent(ASK)
thread = Agent(THREAD)
fragile = Agent(FRAGILE, on_crash="fail")
sink = Agent(SINK, input_modes=["*/*"], output_modes=["*/*"])

LOG = os.open(os.environ.get("CHAOS_STEPS", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def log_step(what: str, key: str) -> None:
    os.write(LOG, f"{what} {key} {os.getpid()}\n".encode())


@stream.on_message
async def stream_text(task: AgentTask) -> AsyncIterator[str]:
    """Emits its text in pieces, with a pause after each."""
    job = parse_job(task.text)
    for piece in pieces(job):
        yield piece
        await asyncio.sleep(job.pause_s)


@steps.on_message
async def run_steps(task: AgentTask) -> AsyncIterator[str]:
    """Runs a step every few pieces."""
    job = parse_job(task.text)

    async def work(number: int) -> dict[str, str]:
        log_step("run", task.step_key)
        await asyncio.sleep(job.pause_s)
        return {"key": task.step_key, "text": step_result(job.seed, number)}

    for number, piece in enumerate(pieces(job)):
        if number % STEP_EVERY == 0:
            result = await task.step("work", work, number)
            log_step("past", result["key"])
            yield result["text"]
        yield piece
        await asyncio.sleep(job.pause_s)


@ask.on_message
async def ask_halfway(task: AgentTask) -> AsyncIterator[str]:
    """Asks after half of its text."""
    job = parse_job(task.text)
    emitted = pieces(job)
    half = len(emitted) // 2
    for piece in emitted[:half]:
        yield piece
        await asyncio.sleep(job.pause_s)
    yield f"<{(await task.ask('And now?')).text}> "
    for piece in emitted[half:]:
        yield piece
        await asyncio.sleep(job.pause_s)


@thread.on_message
def stream_in_thread(task: AgentTask) -> Iterator[str]:
    """Emits its text in a thread."""
    job = parse_job(task.text)
    for piece in pieces(job):
        yield piece
        time.sleep(job.pause_s)


@fragile.on_message
async def stream_once(task: AgentTask) -> AsyncIterator[str]:
    """Emits its text, and is never called twice."""
    job = parse_job(task.text)
    for piece in pieces(job):
        yield piece
        await asyncio.sleep(job.pause_s)


@sink.on_message
async def swallow(task: AgentTask) -> str:
    """Accepts everything and says nothing about it."""
    return "ok"
