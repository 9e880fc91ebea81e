"""Quotas of principals, tenants, agents and surfaces, and the meter that enforces them.

Every host counts what it serves itself, shares its figures with the others once a second, and decides by the sum.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from roost.identity.limiter import WINDOW_S, Windows

KINDS = ("principal", "tenant", "agent", "surface")
WHATS = ("rate", "tasks", "streams", "mb")
SURFACES = ("admin", "a2a", "observability")
MAX_DIGITS = 12
BUSY_RETRY_S = 5
"""Seconds for Retry-After when a task or a stream has to end first, which nobody can predict."""
FULL_RETRY_S = 60
"""Seconds for Retry-After when stored data has to be deleted first."""
MAX_WANTED = 1000
MAX_FIGURES = 64 * 1024
"""Bytes that a host shares each second; if there are more, those nearest to their limits go first."""

Key = tuple[str, str]
"""Kind and name."""
Limited = tuple[str, str, int]
"""Kind, name and the limit."""


class QuotaExceeded(Exception):
    """A quota is used up, and nothing was counted. `window_seconds` is None except for a rate."""

    def __init__(
        self, kind: str, name: str, quota: str, limit: int, window_seconds: int | None, retry_after_seconds: int
    ) -> None:
        super().__init__(f"{kind} {name} has used up its quota: {quota} is limited to {limit}")
        self.kind = kind
        self.name = name
        self.quota = quota
        self.limit = limit
        self.window_seconds = window_seconds
        self.retry_after_seconds = retry_after_seconds


class Quotas(NamedTuple):
    limits: Mapping[tuple[str, str, str], int]
    """Limits by kind, name and resource; the name "" stands for all that have no limit of their own."""

    def limit(self, kind: str, name: str, what: str) -> int | None:
        own = self.limits.get((kind, name, what))
        return self.limits.get((kind, "", what)) if own is None else own

    def limited(self, what: str, keys: Iterable[Key]) -> list[Limited]:
        """Return those of the keys that have a limit; a key without a name has none."""
        found = ((kind, name, self.limit(kind, name, what)) for kind, name in keys if name)
        return [(kind, name, limit) for kind, name, limit in found if limit is not None]


def parse(text: str) -> Quotas:
    """Parse `kind[:name].what=number`, comma separated. ValueError names the item and the correct form."""
    limits: dict[tuple[str, str, str], int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        target, _, number = (part.strip() for part in item.rpartition("="))
        whose, _, what = target.rpartition(".")
        kind, colon, name = whose.partition(":")
        _check(item, kind, name if colon else None, what, number)
        if (kind, name, what) in limits:
            raise ValueError(f"quota {item!r}: {target} has two limits; keep one")
        limits[kind, name, what] = int(number)
    return Quotas(limits)


def with_tenant_defaults(quotas: Quotas) -> Quotas:
    """Add the limits that multi-tenant/v1 sets for each tenant, unless the operator has set any for tenants."""
    if any(kind == "tenant" for kind, _, _ in quotas.limits):
        return quotas
    return Quotas({**quotas.limits, ("tenant", "", "rate"): 100, ("tenant", "", "tasks"): 10})


def _check(item: str, kind: str, name: str | None, what: str, number: str) -> None:
    if not kind or not what or not number:
        raise ValueError(f"quota {item!r}: write kind[:name].what=number, such as tenant.rate=100")
    if kind not in KINDS:
        raise ValueError(f"quota {item!r}: {kind!r} is not a kind; the kinds are {', '.join(KINDS)}")
    if what not in WHATS:
        raise ValueError(f"quota {item!r}: {what!r} cannot be limited; {', '.join(WHATS)} can")
    if name == "":
        raise ValueError(f"quota {item!r}: the name after the colon is missing; {kind}.{what} applies to all of them")
    if kind == "surface" and what != "rate":
        raise ValueError(f"quota {item!r}: a surface has only a rate")
    if kind == "surface" and name not in (None, *SURFACES):
        raise ValueError(f"quota {item!r}: {name!r} is not a surface; the surfaces are {', '.join(SURFACES)}")
    if not number.isascii() or not number.isdigit() or len(number) > MAX_DIGITS:
        raise ValueError(f"quota {item!r}: {number!r} is not a whole number of at most {MAX_DIGITS} digits")


Count = Annotated[int, Meta(ge=0)]


class Figures(Struct):
    """The figures that a host shares with the others."""

    v: Literal[1] = 1
    rates: list[tuple[str, str, int, Count]] = []
    """Kind, name, minute and number of requests."""
    held: list[tuple[str, str, str, Count]] = []
    """Kind, name, resource and number."""


class QuotaSlot:
    """A task or a stream, which counts until the slot is released: by `leave`, however often, or by its deletion."""

    def __init__(self, held: Counter[tuple[str, str, str]], keys: list[tuple[str, str, str]]) -> None:
        self.held = held
        self.keys = keys
        held.update(keys)

    def leave(self) -> None:
        while self.keys:
            key = self.keys.pop()
            self.held[key] -= 1
            if not self.held[key]:
                del self.held[key]

    def __enter__(self) -> QuotaSlot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def __del__(self) -> None:
        self.leave()


class Meter:
    """Checks and counts requests, tasks and streams. A name that is unknown or does not apply is ""."""

    def __init__(self, quotas: Quotas, clock: Callable[[], float] = time.time) -> None:
        self.quotas = quotas
        self.idle = not quotas.limits
        """There is no limit to check."""
        self.windows: Windows[Key] = Windows(clock)
        self.held: Counter[tuple[str, str, str]] = Counter()
        self.others_held: Counter[tuple[str, str, str]] = Counter()
        self.wanted: OrderedDict[Key, None] = OrderedDict()
        """Keys whose stored bytes are needed: the last MAX_WANTED that have a limit of mb and began a task."""
        self.stored: Mapping[Key, int] = {}
        """Stored bytes of the wanted keys; the owner of the meter sets it each second."""
        self.refusals: Counter[Key] = Counter()
        """Refusals by kind and quota, for the metrics."""

    def check_rate(self, surface: str, principal: str, tenant: str, agent: str, *, count: bool = True) -> None:
        """Count a request for all that it belongs to, or count nothing and raise QuotaExceeded."""
        keys = (("surface", surface), ("principal", principal), ("tenant", tenant), ("agent", agent))
        limited = self.quotas.limited("rate", keys)
        waits = [self.windows.wait((kind, name), limit) for kind, name, limit in limited]
        longest = max(waits, default=0)
        if longest:
            raise self._exceeded("rate", limited[waits.index(longest)], longest)
        for kind, name, _ in limited if count else ():
            self.windows.add((kind, name))

    def admit_task(self, principal: str, tenant: str, agent: str) -> QuotaSlot:
        """Count a new task until its slot is released, or raise QuotaExceeded."""
        keys = (("principal", principal), ("tenant", tenant), ("agent", agent))
        for full in self.quotas.limited("mb", keys):
            kind, name, limit = full
            self._want((kind, name))
            if self.stored.get((kind, name), 0) >= limit << 20:
                raise self._exceeded("mb", full, FULL_RETRY_S)
        return self._admit("tasks", keys)

    def resume_task(self, principal: str, tenant: str, agent: str) -> QuotaSlot:
        """Count a task that this host or another admitted before: it is never refused."""
        keys = (("principal", principal), ("tenant", tenant), ("agent", agent))
        return self._place("tasks", self.quotas.limited("tasks", keys))

    def open_stream(self, principal: str, tenant: str, agent: str) -> QuotaSlot:
        return self._admit("streams", (("principal", principal), ("tenant", tenant), ("agent", agent)))

    def figures(self) -> bytes:
        """Return the figures that other hosts need from this one."""
        rates = [(*key, minute, count) for key, minute, count in self.windows.recent()]
        rates.sort(key=lambda row: self._share(row[0], row[1], "rate", row[3]), reverse=True)
        held = [(*key, count) for key, count in self.held.items()]
        held.sort(key=lambda row: self._share(*row), reverse=True)
        while len(data := msgspec.json.encode(Figures(1, rates, held))) > MAX_FIGURES:
            longer = rates if len(rates) >= len(held) else held
            del longer[len(longer) // 2 :]
        return data

    def set_others(self, others: Mapping[str, bytes]) -> None:
        """Replace the figures of the other hosts, by host."""
        rates: dict[Key, Counter[int]] = {}
        held: Counter[tuple[str, str, str]] = Counter()
        for figures in filter(None, map(_decoded, others.values())):
            for kind, name, minute, count in figures.rates:
                rates.setdefault((kind, name), Counter())[minute] += count
            for kind, name, what, count in figures.held:
                held[kind, name, what] += count
        self.windows.others = rates
        self.others_held = held

    def _want(self, key: Key) -> None:
        self.wanted[key] = None
        self.wanted.move_to_end(key)
        if len(self.wanted) > MAX_WANTED:
            self.wanted.popitem(last=False)

    def _admit(self, what: str, keys: Iterable[Key]) -> QuotaSlot:
        limited = self.quotas.limited(what, keys)
        for busy in limited:
            kind, name, limit = busy
            if self.held[kind, name, what] + self.others_held[kind, name, what] >= limit:
                raise self._exceeded(what, busy, BUSY_RETRY_S)
        return self._place(what, limited)

    def _place(self, what: str, limited: list[Limited]) -> QuotaSlot:
        return QuotaSlot(self.held, [(kind, name, what) for kind, name, _ in limited])

    def _exceeded(self, quota: str, limited: Limited, retry_s: int) -> QuotaExceeded:
        kind, name, limit = limited
        self.refusals[kind, quota] += 1
        return QuotaExceeded(kind, name, quota, limit, WINDOW_S if quota == "rate" else None, retry_s)

    def _share(self, kind: str, name: str, what: str, count: int) -> float:
        return count / max(1, self.quotas.limit(kind, name, what) or 0)


def _decoded(data: bytes) -> Figures | None:
    """Decode figures; None if another release wrote them in another form."""
    if len(data) > MAX_FIGURES:
        return None
    try:
        return msgspec.json.decode(data, type=Figures)
    except (ValueError, RecursionError):
        return None
