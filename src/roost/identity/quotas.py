"""How much each principal, tenant, agent and surface may have, and the meter that says when it is too much.

Every host counts what it serves itself, tells the others once a second, and decides by the sum.
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
"""What those are told who wait for a task or a stream to end; nobody knows when that is."""
FULL_RETRY_S = 60
MAX_WANTED = 1000
MAX_FIGURES = 64 * 1024
"""Bytes that a host tells the others each second: those nearest to their limits, if there are more."""

Key = tuple[str, str]
"""Kind and name."""
Limited = tuple[str, str, int]
"""Kind, name and the limit."""


class QuotaExceeded(Exception):
    """Nothing was counted. `window_seconds` only for a rate."""

    def __init__(
        self, kind: str, name: str, quota: str, limit: int, window_seconds: int | None, retry_after_seconds: int
    ) -> None:
        super().__init__(f"{kind} {name}: the quota of {quota} is {limit}")
        self.kind = kind
        self.name = name
        self.quota = quota
        self.limit = limit
        self.window_seconds = window_seconds
        self.retry_after_seconds = retry_after_seconds


class Quotas(NamedTuple):
    limits: Mapping[tuple[str, str, str], int]
    """By kind, name and what; the name "" is for all that have no limit of their own."""

    def limit(self, kind: str, name: str, what: str) -> int | None:
        own = self.limits.get((kind, name, what))
        return self.limits.get((kind, "", what)) if own is None else own

    def limited(self, what: str, keys: Iterable[Key]) -> list[Limited]:
        """Those of the keys that have a limit; a key without a name is nobody's."""
        found = ((kind, name, self.limit(kind, name, what)) for kind, name in keys if name)
        return [(kind, name, limit) for kind, name, limit in found if limit is not None]


def parse(text: str) -> Quotas:
    """kind[:name].what=number, comma separated. ValueError names the item and what is right."""
    limits: dict[tuple[str, str, str], int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        target, _, number = (part.strip() for part in item.rpartition("="))
        whose, _, what = target.rpartition(".")
        kind, colon, name = whose.partition(":")
        _check(item, kind, name if colon else None, what, number)
        if (kind, name, what) in limits:
            raise ValueError(f"quota {item!r}: there are two for {target}; keep one")
        limits[kind, name, what] = int(number)
    return Quotas(limits)


def with_tenant_defaults(quotas: Quotas) -> Quotas:
    """What multi-tenant/v1 gives each tenant, unless the operator says anything about tenants."""
    if any(kind == "tenant" for kind, _, _ in quotas.limits):
        return quotas
    return Quotas({**quotas.limits, ("tenant", "", "rate"): 100, ("tenant", "", "tasks"): 10})


def _check(item: str, kind: str, name: str | None, what: str, number: str) -> None:
    if not kind or not what or not number:
        raise ValueError(f"quota {item!r}: write kind[:name].what=number, such as tenant.rate=100")
    if kind not in KINDS:
        raise ValueError(f"quota {item!r}: {kind!r} is no kind; there are {', '.join(KINDS)}")
    if what not in WHATS:
        raise ValueError(f"quota {item!r}: {what!r} cannot be limited; {', '.join(WHATS)} can")
    if name == "":
        raise ValueError(f"quota {item!r}: there is no name after the colon; {kind}.{what} is for all of them")
    if kind == "surface" and what != "rate":
        raise ValueError(f"quota {item!r}: a surface has only a rate")
    if kind == "surface" and name not in (None, *SURFACES):
        raise ValueError(f"quota {item!r}: {name!r} is no surface; there are {', '.join(SURFACES)}")
    if not number.isascii() or not number.isdigit() or len(number) > MAX_DIGITS:
        raise ValueError(f"quota {item!r}: {number!r} is not a whole number of at most {MAX_DIGITS} digits")


Count = Annotated[int, Meta(ge=0)]


class Figures(Struct):
    """What a host tells the others."""

    v: Literal[1] = 1
    rates: list[tuple[str, str, int, Count]] = []
    """Kind, name, minute and requests."""
    held: list[tuple[str, str, str, Count]] = []
    """Kind, name, what and how many."""


class QuotaSlot:
    """A task or a stream that counts until it is left; leaving it twice, or losing it, is leaving it once."""

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
    """A name that is not known, or does not apply, is ""."""

    def __init__(self, quotas: Quotas, clock: Callable[[], float] = time.time) -> None:
        self.quotas = quotas
        self.idle = not quotas.limits
        """There is nothing to check."""
        self.windows: Windows[Key] = Windows(clock)
        self.held: Counter[tuple[str, str, str]] = Counter()
        self.others_held: Counter[tuple[str, str, str]] = Counter()
        self.wanted: OrderedDict[Key, None] = OrderedDict()
        """Whose stored bytes matter: those with a quota of mb who began a task, the last MAX_WANTED of them."""
        self.stored: Mapping[Key, int] = {}
        """Bytes of those who are wanted; told from outside, each second."""
        self.refusals: Counter[Key] = Counter()
        """By kind and quota."""

    def check_rate(self, surface: str, principal: str, tenant: str, agent: str) -> None:
        """Count a request with all that it belongs to, or with none of them and raise QuotaExceeded."""
        keys = (("surface", surface), ("principal", principal), ("tenant", tenant), ("agent", agent))
        limited = self.quotas.limited("rate", keys)
        waits = [self.windows.wait((kind, name), limit) for kind, name, limit in limited]
        longest = max(waits, default=0)
        if longest:
            raise self._exceeded("rate", limited[waits.index(longest)], longest)
        for kind, name, _ in limited:
            self.windows.add((kind, name))

    def admit_task(self, principal: str, tenant: str, agent: str) -> QuotaSlot:
        """A new task: it counts until its place is left. Raises QuotaExceeded."""
        keys = (("principal", principal), ("tenant", tenant), ("agent", agent))
        for full in self.quotas.limited("mb", keys):
            kind, name, limit = full
            self._want((kind, name))
            if self.stored.get((kind, name), 0) >= limit << 20:
                raise self._exceeded("mb", full, FULL_RETRY_S)
        return self._admit("tasks", keys)

    def resume_task(self, principal: str, tenant: str, agent: str) -> QuotaSlot:
        """A task that was admitted before, by this host or another: it counts, and is never refused."""
        keys = (("principal", principal), ("tenant", tenant), ("agent", agent))
        return self._place("tasks", self.quotas.limited("tasks", keys))

    def open_stream(self, principal: str, tenant: str, agent: str) -> QuotaSlot:
        return self._admit("streams", (("principal", principal), ("tenant", tenant), ("agent", agent)))

    def figures(self) -> bytes:
        """What other hosts have to know of this one."""
        rates = [(*key, minute, count) for key, minute, count in self.windows.recent()]
        rates.sort(key=lambda row: self._share(row[0], row[1], "rate", row[3]), reverse=True)
        held = [(*key, count) for key, count in self.held.items()]
        held.sort(key=lambda row: self._share(*row), reverse=True)
        while len(data := msgspec.json.encode(Figures(1, rates, held))) > MAX_FIGURES:
            longer = rates if len(rates) >= len(held) else held
            del longer[len(longer) // 2 :]
        return data

    def heard(self, others: Mapping[str, bytes]) -> None:
        """What other hosts have told, by host; all that they told before is forgotten."""
        rates: dict[Key, Counter[int]] = {}
        held: Counter[tuple[str, str, str]] = Counter()
        for told in filter(None, map(_understood, others.values())):
            for kind, name, minute, count in told.rates:
                rates.setdefault((kind, name), Counter())[minute] += count
            for kind, name, what, count in told.held:
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


def _understood(data: bytes) -> Figures | None:
    """None: it is of another release."""
    if len(data) > MAX_FIGURES:
        return None
    try:
        return msgspec.json.decode(data, type=Figures)
    except (ValueError, RecursionError):
        return None
