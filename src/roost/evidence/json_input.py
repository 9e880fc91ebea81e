"""Reads JSON from untrusted sources.

Input that two parsers could read differently is refused, and so is input that exceeds the limits. Numbers beyond
2**53 - 1 become text in an event: RFC 8785 cannot represent such integers, and it writes such doubles as integers that
not every parser reads back.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from roost.evidence.errors import measurement
from roost.evidence.pointers import JsonPath, NamedPointers, child

MAX_EXACT = 2**53 - 1
"""The largest integer up to which a double represents every integer exactly. RFC 8785 has no form for larger ones."""

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class LargeNumber(str):
    """A number beyond MAX_EXACT, as it was written in the input."""


def parse(
    payload: bytes,
    *,
    what: str,
    read_int: Callable[[str], Any],
    read_float: Callable[[str], Any],
    unique: bool,
) -> Any:
    """Parse a JSON value. `unique` refuses an object with a duplicate name; without it the last value counts."""
    try:
        text = payload.decode()
        value = json.loads(
            text,
            parse_int=read_int,
            parse_float=read_float,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique if unique else None,
        )
    except (ValueError, RecursionError) as error:
        reason = "recursion limit exceeded" if isinstance(error, RecursionError) else str(error)
        raise measurement(f"{what}: {reason}") from None
    if _ESCAPED_SURROGATE.search(text) and any(_SURROGATE.search(found) for found in _strings(value)):
        raise measurement(f"{what}: lone surrogate in a string")
    return value


def read_int(text: str) -> int | LargeNumber:
    """Read an integer for `parse`."""
    value = int(text) if len(text) <= 20 else None
    return LargeNumber(text) if value is None or abs(value) > MAX_EXACT else value


def read_float(text: str) -> float | LargeNumber:
    """Read a number with a fraction or an exponent for `parse`."""
    value = float(text)
    return LargeNumber(text) if abs(value) > MAX_EXACT else value


def large_numbers_as_text(value: Any, at: JsonPath, named: NamedPointers) -> Any:
    """Copy a value with each number beyond MAX_EXACT replaced by text, and add the pointers of these to `named`."""
    if isinstance(value, dict):
        return {key: large_numbers_as_text(item, child(at, key), named) for key, item in value.items()}
    if isinstance(value, list):
        return [large_numbers_as_text(item, child(at, index), named) for index, item in enumerate(value)]
    if isinstance(value, LargeNumber) or (type(value) in (int, float) and abs(value) > MAX_EXACT):
        named.add(at)
        return str(value)
    return value


def check_shape(value: Any, max_json_depth: int | None, max_array_length: int | None) -> None:
    """Check depth and array lengths. The root is at depth 1, and scalars count."""
    for item, depth in _walk(value):
        if max_json_depth is not None and depth > max_json_depth:
            raise measurement(f"payload exceeds max_json_depth ({max_json_depth})")
        if max_array_length is not None and isinstance(item, list) and len(item) > max_array_length:
            raise measurement(f"payload exceeds max_array_length ({max_array_length})")


def check_size(payload: bytes, max_payload_bytes: int | None) -> None:
    if max_payload_bytes is not None and len(payload) > max_payload_bytes:
        raise measurement(f"payload exceeds max_payload_bytes ({max_payload_bytes})")


def container_depth(value: Any) -> int:
    """Return how deeply objects and lists are nested."""
    return max((depth for item, depth in _walk(value) if isinstance(item, dict | list)), default=0)


def _walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Yield every value with its depth, in the order of the input, a container before its items."""
    pending = [iter(((value, 1),))]
    while pending:
        for item, depth in pending[-1]:
            yield item, depth
            if isinstance(item, dict):
                pending.append(iter([(inner, depth + 1) for inner in item.values()]))
                break
            if isinstance(item, list):
                pending.append(iter([(inner, depth + 1) for inner in item]))
                break
        else:
            pending.pop()


def _strings(value: Any) -> Iterator[str]:
    for item, _ in _walk(value):
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from item


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        duplicate = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"duplicate key {duplicate!r:.100}")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
