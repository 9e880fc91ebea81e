"""Numbers beyond 2**53 - 1, where not all integers are doubles: they become text, and are named.

RFC 8785 cannot write such integers, and writes such doubles as integers that not every reader reads back.
"""

from __future__ import annotations

from typing import Any

from roost.evidence.pointers import NamedPointers, Place, below

EXACT = 2**53 - 1
"""The largest integer up to which all are doubles."""


class Numeral(str):
    """Such a number, as it was written."""


def read_int(text: str) -> int | Numeral:
    """For json.loads."""
    value = int(text) if len(text) <= 20 else None
    return Numeral(text) if value is None or abs(value) > EXACT else value


def read_float(text: str) -> float | Numeral:
    value = float(text)
    return Numeral(text) if abs(value) > EXACT else value


def mended(value: Any, at: Place, named: NamedPointers) -> Any:
    """A copy in which each such number is text; its pointer is added to `named`."""
    if isinstance(value, dict):
        return {key: mended(item, below(at, key), named) for key, item in value.items()}
    if isinstance(value, list):
        return [mended(item, below(at, index), named) for index, item in enumerate(value)]
    if isinstance(value, Numeral) or (type(value) in (int, float) and abs(value) > EXACT):
        named.add(at)
        return str(value)
    return value
