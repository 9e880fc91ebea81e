"""What a check may find, and how it says so.

CheckOutcome
├── CheckFailed    the host did something else than the specification says
├── Skipped        there is nothing to judge: the host does not say that it has this
└── NotJudged      it could not be found out
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

LONGEST = 2000
"""Characters of what was observed that a report shows."""


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ERROR = "error"


class CheckOutcome(Exception):
    """Ends a check. A check that ends without one has passed."""


class CheckFailed(CheckOutcome):
    def __init__(self, observed: object, expected: str) -> None:
        super().__init__(expected)
        self.observed = observed
        self.expected = expected


class Skipped(CheckOutcome):
    pass


class NotJudged(CheckOutcome):
    pass


class Result(Struct, rename="camel"):
    """One check on one binding, or on the host as such."""

    id: str
    surface: str
    binding: str
    title: str
    section: str
    level: str
    outcome: Outcome
    reason: str = ""
    observed: str = ""
    expected: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.id} [{self.binding}]" if self.binding else self.id


class ConformReport(Struct, rename="camel"):
    url: str
    agent: str
    bindings: list[str]
    profile: str
    results: list[Result]
    notes: list[str] = []

    def count(self, outcome: Outcome) -> int:
        return sum(result.outcome is outcome for result in self.results)

    def of(self, outcome: Outcome) -> list[Result]:
        return [result for result in self.results if result.outcome is outcome]

    @property
    def code(self) -> int:
        """0: all that was judged holds. 1: something does not. 2: it cannot be said."""
        if self.count(Outcome.FAILED):
            return 1
        return 2 if self.count(Outcome.ERROR) or not self.count(Outcome.PASSED) else 0


def shown(value: object, secrets: Iterable[str] = (), longest: int = LONGEST) -> str:
    """As text, without what must not be in a report, and only then cut: half of a secret would not be known as one."""
    text = value if isinstance(value, str) else _json(value)
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in {secret, json.dumps(secret)[1:-1]}:
            text = text.replace(form, "***")
    text = "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text[: longest + 1])
    return text if len(text) <= longest else f"{text[:longest]} ..."


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return repr(value)
