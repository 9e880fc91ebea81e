"""Steps: work whose outcome, a result or a failure, is kept in the journal as JSON (never pickle)."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from roost.engine.turn import Turn
from roost.protocol.codec import encode
from roost.protocol.entries import StepFailure, StepRecord

MAX_STEP_BYTES = 1024 * 1024
MAX_TEXT = 4096
"""Characters of an exception's text, and of an argument that is not a plain JSON value."""


class StepTooLarge(ValueError):
    """The result of a step is too large for the journal."""


class StepFailed(Exception):
    """Raised on a re-run for a step that failed with an exception that cannot be rebuilt from its record."""


async def run(turn: Turn, name: str, work: Callable[[str], Awaitable[Any]]) -> Any:
    """Return the recorded result of a step, or call `work` with the step's key and record what comes of it."""
    step = await turn.begin_step(name)
    if step.record is not None:
        return outcome(step.record)
    try:
        record = succeeded(name, step.occurrence, await work(step.key))
    except Exception as error:
        await turn.end_step(failed(name, step.occurrence, error))
        raise
    await turn.end_step(record)
    return record.result


def succeeded(name: str, occurrence: int, result: Any) -> StepRecord:
    """Make the record of a result. It holds the result as JSON gives it back, as a re-run gets it."""
    record = StepRecord(name, occurrence, result)
    data = encode(record)
    if len(data) > MAX_STEP_BYTES:
        raise StepTooLarge(f"the result of step {name!r} is {len(data)} bytes; at most {MAX_STEP_BYTES} are kept")
    return msgspec.json.decode(data, type=StepRecord)


def failed(name: str, occurrence: int, error: Exception) -> StepRecord:
    """Make the record of a failure, so that a re-run fails in the same way."""
    kind = type(error)
    failure = StepFailure(
        kind.__module__, kind.__qualname__, [_plain(value) for value in error.args], str(error)[:MAX_TEXT]
    )
    return StepRecord(name, occurrence, None, failure)


def outcome(record: StepRecord) -> Any:
    """Return the result of a recorded step, or raise its failure."""
    if record.failure is None:
        return record.result
    raise _exception(record)


def _exception(record: StepRecord) -> Exception:
    failure = record.failure
    assert failure is not None
    found: Any = sys.modules.get(failure.module)
    for name in failure.name.split("."):
        found = getattr(found, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(*failure.args)
        except Exception as error:
            return StepFailed(f"step {record.name!r}: {failure.name}: {failure.text} ({error})")
    return StepFailed(f"step {record.name!r}: {failure.name}: {failure.text}")


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)[:MAX_TEXT]
