"""How much work a JSON document is, judged from its bytes before it is parsed.

`is_light` says whether a document can be parsed and converted on the event loop. It takes no longer than copying the
document. `check` refuses a document that exceeds a limit. For a light one it is as cheap; otherwise it belongs in a
worker process (roost.offload), as everything that follows it.
"""

from __future__ import annotations

import re
from itertools import accumulate, count, islice
from operator import sub
from typing import NamedTuple

from roost.protocol.errors import InvalidParams

FEW_BYTES = 4 * 1024
"""A document up to this size is light, whatever it says."""
LIGHT_BYTES = 1536 * 1024
LIGHT_VALUES = 2048
LIGHT_DIGITS = 128
"""The most bytes, values, and digits in one number of a light document."""
MAX_SLOW_NUMBERS = 10_000

_SLOW_NUMBER = re.compile(rb"[0-9][eE][+-]?[0-9]{3}")
_SEPARATORS = b",[{"
_NO_SEPARATOR = bytes(set(range(256)) - set(_SEPARATORS))
_NO_BRACKET = bytes(set(range(256)) - set(b"[{]}"))
_STEP = bytes.maketrans(b"[{]}", b"\2\2\0\0")
_DIGITS = b"0123456789"
_ZEROS = bytes.maketrans(_DIGITS, b"0" * 10)


class JSONLimits(NamedTuple):
    """The settings max_values, max_depth and max_digits."""

    values: int = 250_000
    depth: int = 100
    digits: int = 1000


DEFAULT = JSONLimits()


def is_light(body: bytes) -> bool:
    """Say whether a document takes at most milliseconds, however it is converted."""
    if len(body) <= FEW_BYTES:
        return True
    return len(body) <= LIGHT_BYTES and has_few_values(body) and not _has_long_number(body, LIGHT_DIGITS)


def has_few_values(body: bytes) -> bool:
    """Say whether a document, whatever its size, has no more values than a light one."""
    return separators_in(body) <= LIGHT_VALUES


def separators_in(body: bytes) -> int:
    """Count what separates values, in texts too: at least as many as there are values, and about as fast as a copy."""
    return len(body.translate(None, _NO_SEPARATOR))


def has_few_values_outside_strings(body: bytes) -> bool:
    """Say the same exactly, which takes longer for a large document with many separators in its texts."""
    few = DEFAULT._replace(values=LIGHT_VALUES)
    try:
        return has_few_values(body) or has_few_values(_without_strings(body, few))
    except InvalidParams:
        return False


def check(body: bytes, limits: JSONLimits = DEFAULT) -> None:
    """Raise InvalidParams, which names the setting, if a document exceeds a limit."""
    marks = body.translate(None, _NO_SEPARATOR)
    brackets = len(marks) - marks.count(b",")
    is_suspicious = (
        len(marks) > limits.values
        or brackets > limits.depth
        or _has_long_number(body, limits.digits)
        or (len(marks) > MAX_SLOW_NUMBERS and _has_many_slow_numbers(body))
    )
    if is_suspicious:
        _check_outside_strings(_without_strings(body, limits), limits)


def _check_outside_strings(bare: bytes, limits: JSONLimits) -> None:
    if separators_in(bare) > limits.values:
        raise _too_many_values(limits)
    steps = bare.translate(None, _NO_BRACKET).translate(_STEP)
    if max(map(sub, accumulate(steps), count(1)), default=0) > limits.depth:
        raise InvalidParams(
            f"JSON is nested deeper than {limits.depth} levels, the host's setting max_depth", field="body"
        )
    if _has_long_number(bare, limits.digits):
        raise InvalidParams(
            f"a number has more than {limits.digits} digits, the host's setting max_digits; send it as a string",
            field="body",
        )
    if _has_many_slow_numbers(bare):
        raise InvalidParams(f"more than {MAX_SLOW_NUMBERS} numbers have exponents of 3 digits", field="body")


def _without_strings(body: bytes, limits: JSONLimits) -> bytes:
    """Return the document without its strings. Each string is a value, or the name of one."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * (limits.values + 1):
        raise _too_many_values(limits)
    return b"".join(plain.split(b'"')[::2])


def _too_many_values(limits: JSONLimits) -> InvalidParams:
    return InvalidParams(
        f"JSON has more than {limits.values} values, the host's setting max_values; send large data as a file",
        field="body",
    )


def _has_long_number(text: bytes, digits: int) -> bool:
    """Say whether more digits follow each other. A run of that length has one at every n-th position."""
    if len(text) <= digits:
        return False
    sample = text[digits::digits]
    if len(sample.translate(None, _DIGITS)) == len(sample):
        return False
    return b"0" * (digits + 1) in text.translate(_ZEROS)


def _has_many_slow_numbers(text: bytes) -> bool:
    """Say whether there are too many numbers such as 1e308: one takes the parser as long as a kilobyte of others."""
    return next(islice(_SLOW_NUMBER.finditer(text), MAX_SLOW_NUMBERS, None), None) is not None
