"""How much work a protobuf message is, judged from its bytes before it is parsed.

Eight megabytes can hold four million empty parts, which take the parser seconds and gigabytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.message import Message

from roost.protocol.cost import FEW_BYTES, LIGHT_BYTES
from roost.protocol.errors import ParseError

LIGHT_FIELDS = 1000
"""The most fields of a message that is converted on the event loop."""
FIELDS_PER_VALUE = 4
"""The most fields that one value of JSON takes: a named value in a Struct is an entry, a name, a Value and its kind."""

VARINT, FIXED64, SIZED, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


def is_light(kind: type[Message], data: bytes) -> bool:
    """Say whether a message takes at most milliseconds, however it is converted."""
    return len(data) <= FEW_BYTES or (
        len(data) <= LIGHT_BYTES and count_fields(kind, data, LIGHT_FIELDS) < LIGHT_FIELDS
    )


def count_fields(kind: type[Message], data: bytes, most: int) -> int:
    """Count the fields of a message and of the messages in it, up to `most`."""
    try:
        return _count(kind, data, most)
    except ValueError as error:
        raise ParseError(f"Invalid {kind.DESCRIPTOR.name}: {error}") from None


def _count(kind: type[Message], data: bytes, most: int) -> int:
    found = 0
    left: list[tuple[Any, int, int]] = [(kind.DESCRIPTOR, 0, len(data))]
    while left:
        descriptor, at, end = left.pop()
        inner = _messages(descriptor)
        while at < end:
            found += 1
            if found >= most:
                return found
            tag, at = _varint(data, at)
            wire = tag & 7
            if wire == SIZED:
                size, at = _varint(data, at)
                within = inner.get(tag >> 3)
                if within is not None:
                    left.append((within, at, min(at + size, end)))
                at += size
            elif wire == VARINT:
                _, at = _varint(data, at)
            else:
                at += _fixed_size(wire)
    return found


def text_field(kind: type[Message], data: bytes, number: int) -> str:
    """Return the last value of a text field of a message; empty if it has none among its first fields."""
    try:
        return _text(data, number)
    except ValueError as error:
        raise ParseError(f"Invalid {kind.DESCRIPTOR.name}: {error}") from None


def _text(data: bytes, number: int) -> str:
    found, at, left = "", 0, LIGHT_FIELDS
    while at < len(data) and left:
        left -= 1
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == SIZED:
            size, at = _varint(data, at)
            if tag >> 3 == number:
                found = data[at : at + size].decode("utf-8", "replace")
            at += size
        elif wire == VARINT:
            _, at = _varint(data, at)
        else:
            at += _fixed_size(wire)
    return found


def _fixed_size(wire: int) -> int:
    if wire not in _FIXED:
        raise ValueError("it has a group, which no message of A2A has")
    return _FIXED[wire]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    for position in range(at, min(at + 10, len(data))):
        byte = data[position]
        found |= (byte & 127) << shift
        if byte < 128:
            return found, position + 1
        shift += 7
    raise ValueError("a number does not end")


@cache
def _messages(descriptor: Any) -> dict[int, Any]:
    """The fields of a message that hold messages, by number."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type is not None}
