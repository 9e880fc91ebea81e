"""What a verifier finds wrong, named as closely as it can be."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

MOST = 100
SHOWN = 200


class BundleFault(Struct, omit_defaults=True):
    member: str
    what: str
    line: int = 0
    """From 1 on; 0 where it is the member as a whole."""
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
        told = f" (expected {self.expected}, found {self.found or 'nothing'})" if self.expected or self.found else ""
        return f"{where}: {self.what}{told}"


class Faults:
    """The first of them, and how many there are."""

    def __init__(self) -> None:
        self.found: list[BundleFault] = []
        self.count = 0

    def add(self, member: str, what: str, **more: Any) -> None:
        self.count += 1
        if len(self.found) < MOST:
            more.update({name: shortened(more[name]) for name in ("task", "expected", "found") if name in more})
            self.found.append(BundleFault(member, shortened(what, 2 * SHOWN), **more))


def shortened(value: object, most: int = SHOWN) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
