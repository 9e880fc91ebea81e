"""JSON pointers (RFC 6901) to what an event has to name, in bounded room."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, TypeAlias

MOST_NAMED = 100
LONGEST = 512
"""Characters; a longer pointer is named by its digest."""


Place: TypeAlias = "str | tuple[Place, str | int]"
"""Where something is: a pointer, or a key below a place. Written out only where it is named: names may be long."""


def below(at: Place, key: str | int) -> Place:
    return at, key


def pointer(at: Place) -> str:
    keys = []
    while isinstance(at, tuple):
        at, key = at
        keys.append(str(key).replace("~", "~0").replace("/", "~1"))
    return "/".join((at, *reversed(keys)))


def shown(at: Place) -> str:
    found = pointer(at)
    return found if len(found) <= LONGEST else f"sha256:{sha256(found.encode()).hexdigest()}"


class NamedPointers:
    """All are counted, the first MOST_NAMED are named."""

    def __init__(self) -> None:
        self.count = 0
        self.pointers: list[str] = []

    def add(self, at: Place) -> None:
        self.count += 1
        if len(self.pointers) < MOST_NAMED:
            self.pointers.append(shown(at))

    def join(self, other: NamedPointers) -> None:
        self.count += other.count
        self.pointers += other.pointers[: MOST_NAMED - len(self.pointers)]

    def plain(self) -> dict[str, Any]:
        return {"count": self.count, "pointers": self.pointers}
