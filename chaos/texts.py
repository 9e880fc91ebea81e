"""The texts that the agents of the load emit. They depend only on the message, so they are known without a host."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

STREAM, STEPS, ASK, THREAD, FRAGILE = "stream", "steps", "ask", "thread", "fragile"
SINK = "sink"
"""The agent that hostile requests are for. Its tasks are no part of the load."""
AGENTS = (STREAM, STEPS, ASK, THREAD, FRAGILE)
STEP_EVERY = 4
"""Pieces between two steps."""


class Job(NamedTuple):
    """A client's request. The text of its message is `seed pieces pause_ms`."""

    seed: int
    pieces: int
    pause_ms: int

    @property
    def text(self) -> str:
        return f"{self.seed} {self.pieces} {self.pause_ms}"

    @property
    def pause_s(self) -> float:
        return self.pause_ms / 1000


def parse_job(text: str) -> Job:
    return Job(*map(int, text.split()))


def pieces(job: Job) -> list[str]:
    rng = Random(job.seed)
    return [f"{number}:{rng.getrandbits(32):x} " for number in range(job.pieces)]


def step_result(seed: int, number: int) -> str:
    return f"[{number}={Random(seed * 1009 + number).getrandbits(32):x}] "


def expected(agent: str, job: Job, answer: str = "") -> str:
    """Return the text of an undisturbed run."""
    emitted = pieces(job)
    if agent == STEPS:
        return "".join(
            (step_result(job.seed, number) if number % STEP_EVERY == 0 else "") + piece
            for number, piece in enumerate(emitted)
        )
    if agent == ASK:
        half = len(emitted) // 2
        return "".join([*emitted[:half], f"<{answer}> ", *emitted[half:]])
    return "".join(emitted)
