"""The registry of checks. A check is a function with an id, a title and a section of the specification."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from roost.conform.case import Case

Body = Callable[["Case"], Awaitable[None]]

MUST, SHOULD, BEYOND = LEVELS = ("MUST", "SHOULD", "BEYOND")
"""The levels: what the specification requires, what it recommends, and what users need although it is silent."""
ALL: tuple[str, ...] = ("JSONRPC", "HTTP+JSON", "GRPC")
HTTP = ALL[:2]
ONCE: tuple[str, ...] = ()
"""The bindings of a check that judges the host as a whole. It runs once, on the first binding of the card."""


class Check(NamedTuple):
    id: str
    title: str
    section: str
    """A section of the specification, or the URI of an extension."""
    body: Body
    needs: tuple[str, ...]
    """The conditions under which the check runs: see needs.py."""
    bindings: tuple[str, ...]
    level: str
    also: str
    """The name of the same test in the harness of agentic-sandbox, or an empty string."""

    @property
    def surface(self) -> str:
        """The part of the id before the dot."""
        return self.id.partition(".")[0]

    def matches(self, patterns: Sequence[str]) -> bool:
        """Return whether a pattern matches the id, the surface or the name in the other harness."""
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
"""The order of the surfaces. A check that needs a fresh host runs first, and one that ends the host runs last."""


def check(
    id: str,
    title: str,
    section: str,
    *needs: str,
    on: tuple[str, ...] = ALL,
    level: str = MUST,
    also: str = "",
) -> Callable[[Body], Body]:
    """Register the decorated function as a check."""

    def register(body: Body) -> Body:
        REGISTRY.append(Check(id, title, section, body, needs, on, level, also))
        return body

    return register


def every(only: Sequence[str] = (), skip: Sequence[str] = (), level: str = BEYOND) -> Iterator[Check]:
    """Yield the checks in the order in which they run: those that match `only` and not `skip`, up to a level."""
    from roost.conform import checks  # the modules register their checks when they are imported

    assert checks.__doc__
    for found in sorted(REGISTRY, key=lambda one: ORDER.index(one.surface)):
        wanted = (not only or found.matches(only)) and not found.matches(skip)
        if wanted and LEVELS.index(found.level) <= LEVELS.index(level):
            yield found
