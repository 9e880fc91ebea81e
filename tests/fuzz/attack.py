"""An attack: values that hypothesis makes up, and what is done with one of them. A finding is one that went wrong."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy

from tests.fuzz.blocking import BLOCKED_MS, LoopBlocked
from tests.fuzz.target import Finding, Target

MAX_LINE = 1000
PHASES = (Phase.generate, Phase.shrink)


class Attack(NamedTuple):
    name: str
    values: SearchStrategy[Any]
    strike: Callable[[Any], None]
    """Raises if the host does anything but what it should."""
    weight: float = 1.0
    """Its share of the values, relative to the other attacks."""


def play(target: Target, attack: Attack, examples: int, seed: int | None) -> Finding | None:
    """Run an attack. The same seed gives the same values; without a seed they are the same each time."""

    @settings(
        max_examples=max(1, round(examples * attack.weight)),
        derandomize=seed is None,
        deadline=None,
        database=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    @given(attack.values)
    def strike(value: Any) -> None:
        begun = time.monotonic()
        attack.strike(value)
        if time.monotonic() - begun > BLOCKED_MS / 1000:
            try:
                target.loop.check("this request")
            except LoopBlocked as blocked:
                blocked.add_note(repr(value)[:MAX_LINE])
                raise

    name = f"{target.name}: {attack.name}"
    target.loop.worst()  # waits from before this attack
    try:
        (strike if seed is None else hypothesis.seed(seed)(strike))()
        target.check()
    except Unsatisfiable:
        return None  # there is nothing that could be made wrong
    except (Exception, BaseExceptionGroup) as error:  # schemathesis raises groups that are no Exception
        if target.server.process.poll() is None:
            target.look()
        return Finding(name, seed, _told(error))
    return None


def _told(error: BaseException) -> str:
    said = "\n".join([*traceback.format_exception_only(error), *getattr(error, "__notes__", [])])
    return "\n".join(dict.fromkeys(line[:MAX_LINE].rstrip() for line in said.splitlines() if line.strip()))
