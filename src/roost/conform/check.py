"""A check is a function with a name, a title and the section of the specification that it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from roost.conform.case import Case

Body = Callable[["Case"], Awaitable[None]]

MUST, SHOULD, BEYOND = LEVELS = ("MUST", "SHOULD", "BEYOND")
"""What the specification demands, what it recommends, and what it does not say though users ran into it."""
ALL: tuple[str, ...] = ("JSONRPC", "HTTP+JSON", "GRPC")
HTTP = ALL[:2]
ONCE: tuple[str, ...] = ()
"""On the host as such, through the first of its bindings."""


class Check(NamedTuple):
    id: str
    title: str
    section: str
    body: Body
    needs: tuple[str, ...]
    """What the host must say that it has, or the user must have given: see needs.py."""
    bindings: tuple[str, ...]
    level: str
    also: str
    """Its name in the harness of agentic-sandbox."""

    @property
    def surface(self) -> str:
        return self.id.partition(".")[0]

    def named(self, patterns: Sequence[str]) -> bool:
        return any(
            fnmatchcase(name, pattern) for pattern in patterns for name in (self.id, self.surface, self.also) if name
        )


REGISTRY: list[Check] = []

ORDER = (
    "first",
    "card",
    "signatures",
    "send",
    "get",
    "list",
    "cancel",
    "stream",
    "subscribe",
    "resume",
    "errors",
    "rpc",
    "rest",
    "version",
    "push",
    "auth",
    "ext",
    "idempotency",
    "tenants",
    "hitl",
    "runtime",
    "v1",
    "terminal",
    "durability",
)
"""Of surfaces: what only a fresh host shows comes first, what ends the host comes last."""


def check(
    id: str,
    title: str,
    section: str,
    *needs: str,
    on: tuple[str, ...] = ALL,
    level: str = MUST,
    also: str = "",
) -> Callable[[Body], Body]:
    def register(body: Body) -> Body:
        REGISTRY.append(Check(id, title, section, body, needs, on, level, also))
        return body

    return register


def every(only: Sequence[str] = (), skip: Sequence[str] = (), level: str = BEYOND) -> Iterator[Check]:
    """In the order in which they run."""
    from roost.conform import checks  # they register themselves

    assert checks.__doc__
    for found in sorted(REGISTRY, key=lambda one: ORDER.index(one.surface)):
        wanted = (not only or found.named(only)) and not found.named(skip)
        if wanted and LEVELS.index(found.level) <= LEVELS.index(level):
            yield found
