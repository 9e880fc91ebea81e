"""JSON from anyone: refused where two readers could read it differently, or where it is too much."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from roost.evidence.errors import measurement

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse(
    payload: bytes,
    *,
    what: str,
    read_int: Callable[[str], Any],
    read_float: Callable[[str], Any],
    unique: bool,
) -> Any:
    """A JSON value. `unique` refuses a name that is in an object twice; without it the last one counts."""
    try:
        text = payload.decode()
        value = json.loads(
            text,
            parse_int=read_int,
            parse_float=read_float,
            parse_constant=_no_number,
            object_pairs_hook=_unique if unique else None,
        )
    except (ValueError, RecursionError) as error:
        reason = "recursion limit exceeded" if isinstance(error, RecursionError) else str(error)
        raise measurement(f"{what}: {reason}") from None
    if _ESCAPED_SURROGATE.search(text) and any(_SURROGATE.search(found) for found in _strings(value)):
        raise measurement(f"{what}: lone surrogate in a string")
    return value


def check_shape(value: Any, max_json_depth: int | None, max_array_length: int | None) -> None:
    """The root is at depth 1, and scalars count."""
    for item, depth in _walk(value):
        if max_json_depth is not None and depth > max_json_depth:
            raise measurement(f"payload exceeds max_json_depth ({max_json_depth})")
        if max_array_length is not None and isinstance(item, list) and len(item) > max_array_length:
            raise measurement(f"payload exceeds max_array_length ({max_array_length})")


def check_size(payload: bytes, max_payload_bytes: int | None) -> None:
    if max_payload_bytes is not None and len(payload) > max_payload_bytes:
        raise measurement(f"payload exceeds max_payload_bytes ({max_payload_bytes})")


def containers(value: Any) -> int:
    """How deep objects and lists are in each other."""
    return max((depth for item, depth in _walk(value) if isinstance(item, dict | list)), default=0)


def _walk(value: Any) -> Iterator[tuple[Any, int]]:
    """Every value with its depth, each before what it holds, in the order of the input."""
    waiting = [iter(((value, 1),))]
    while waiting:
        for item, depth in waiting[-1]:
            yield item, depth
            if isinstance(item, dict):
                waiting.append(iter([(inner, depth + 1) for inner in item.values()]))
                break
            if isinstance(item, list):
                waiting.append(iter([(inner, depth + 1) for inner in item]))
                break
        else:
            waiting.pop()


def _strings(value: Any) -> Iterator[str]:
    for item, _ in _walk(value):
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            yield from item


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"duplicate key {twice!r:.100}")
    return found


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
