"""What a step came to, success or failure, in a form that the journal can keep: JSON, never pickle."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from roost.protocol.codec import encode
from roost.protocol.entries import StepFailure, StepRecord

MAX_STEP_BYTES = 1024 * 1024
MAX_TEXT = 4096


class StepTooLarge(ValueError):
    """A step's result is kept in the journal and has a limit."""


class StepFailed(Exception):
    """On a re-run: the step failed before, with an exception that cannot be made again from the record."""


def succeeded(name: str, occurrence: int, result: Any) -> StepRecord:
    """The record of a result; what it holds is what a re-run would get."""
    record = StepRecord(name, occurrence, result)
    data = encode(record)
    if len(data) > MAX_STEP_BYTES:
        raise StepTooLarge(f"the result of step {name!r} is {len(data)} bytes; at most {MAX_STEP_BYTES} are kept")
    return msgspec.json.decode(data, type=StepRecord)


def failed(name: str, occurrence: int, error: Exception) -> StepRecord:
    """The record of a failure, so that a re-run goes the way that the run went."""
    kind = type(error)
    failure = StepFailure(
        kind.__module__, kind.__qualname__, [_plain(value) for value in error.args], str(error)[:4096]
    )
    return StepRecord(name, occurrence, None, failure)


def outcome(record: StepRecord) -> Any:
    """Return or raise what the step did."""
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
