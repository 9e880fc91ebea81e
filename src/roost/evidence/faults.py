"""The faults that a verification or an audit finds, each with its exact location."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

MAX_FAULTS = 100
"""Faults that are reported in full; the others are only counted."""
MAX_SHOWN = 200
"""Characters of a value in a fault."""

OUT_OF_ORDER = "an entry before this one is missing, or this one is out of order"
CHANGED = "the hash chain is broken: the entry was changed"


class BundleFault(Struct, omit_defaults=True):
    member: str
    what: str
    line: int = 0
    """The line of the member, from 1; 0 if the fault concerns the member as a whole."""
    task: str = ""
    seq: int | None = None
    sub: int | None = None
    expected: str = ""
    found: str = ""

    def text(self) -> str:
        where = self.member + (f", line {self.line}" if self.line else "")
        if self.task:
            where += f", task {self.task}"
        if self.seq is not None:
            where += f", entry {self.seq}" + (f".{self.sub}" if self.sub else "")
        values = f" (expected {self.expected}, found {self.found or 'nothing'})" if self.expected or self.found else ""
        return f"{where}: {self.what}{values}"


class Faults:
    """Keeps the first MAX_FAULTS faults and counts all of them."""

    def __init__(self) -> None:
        self.found: list[BundleFault] = []
        self.count = 0

    def add(self, member: str, what: str, **details: Any) -> None:
        self.count += 1
        if len(self.found) < MAX_FAULTS:
            details.update({name: shorten(details[name]) for name in ("task", "expected", "found") if name in details})
            self.found.append(BundleFault(member, shorten(what, 2 * MAX_SHOWN), **details))


def shorten(value: object, limit: int = MAX_SHOWN) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
