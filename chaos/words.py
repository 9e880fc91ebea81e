"""What the agents of the load say: all of it follows from the message, so it is known without a host."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

STREAM, STEPS, ASK, THREAD, FRAGILE = "stream", "steps", "ask", "thread", "fragile"
AGENTS = (STREAM, STEPS, ASK, THREAD, FRAGILE)
STEP_EVERY = 4
"""Pieces between two steps."""


class Order(NamedTuple):
    """What a client asks for, and the text of its message: `seed pieces pause_ms`."""

    seed: int
    pieces: int
    pause_ms: int

    @property
    def text(self) -> str:
        return f"{self.seed} {self.pieces} {self.pause_ms}"

    @property
    def pause_s(self) -> float:
        return self.pause_ms / 1000


def order(text: str) -> Order:
    return Order(*map(int, text.split()))


def words(order: Order) -> list[str]:
    chance = Random(order.seed)
    return [f"{number}:{chance.getrandbits(32):x} " for number in range(order.pieces)]


def result_of_step(seed: int, number: int) -> str:
    return f"[{number}={Random(seed * 1009 + number).getrandbits(32):x}] "


def expected(agent: str, order: Order, answer: str = "") -> str:
    """The text of a run that nothing disturbs."""
    said = words(order)
    if agent == STEPS:
        return "".join(
            (result_of_step(order.seed, number) if number % STEP_EVERY == 0 else "") + word
            for number, word in enumerate(said)
        )
    if agent == ASK:
        half = len(said) // 2
        return "".join([*said[:half], f"<{answer}> ", *said[half:]])
    return "".join(said)
