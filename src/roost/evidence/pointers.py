"""JSON pointers (RFC 6901) that an event lists, in bounded space."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, TypeAlias

MAX_NAMED = 100
"""Pointers that an event lists; the others are only counted."""
MAX_LENGTH = 512
"""Characters of a pointer. A longer pointer is replaced by its digest."""


JsonPath: TypeAlias = "str | tuple[JsonPath, str | int]"
"""A pointer, or a path and a key below it. It is written out only when it is listed, because names may be long."""


def child(at: JsonPath, key: str | int) -> JsonPath:
    return at, key


class NamedPointers:
    """Counts all pointers and keeps the first MAX_NAMED."""

    def __init__(self) -> None:
        self.count = 0
        self.pointers: list[str] = []

    def add(self, at: JsonPath) -> None:
        self.count += 1
        if len(self.pointers) < MAX_NAMED:
            self.pointers.append(_pointer_or_digest(at))

    def join(self, other: NamedPointers) -> None:
        self.count += other.count
        self.pointers += other.pointers[: MAX_NAMED - len(self.pointers)]

    def plain(self) -> dict[str, Any]:
        return {"count": self.count, "pointers": self.pointers}


def _pointer_or_digest(at: JsonPath) -> str:
    pointer = _pointer(at)
    return pointer if len(pointer) <= MAX_LENGTH else f"sha256:{sha256(pointer.encode()).hexdigest()}"


def _pointer(at: JsonPath) -> str:
    keys = []
    while isinstance(at, tuple):
        at, key = at
        keys.append(str(key).replace("~", "~0").replace("/", "~1"))
    return "/".join((at, *reversed(keys)))
