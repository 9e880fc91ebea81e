"""The outcomes of checks, and the report about all of them.

A check that returns has passed. One that raises has another outcome:

CheckOutcome
├── CheckFailed    the host does not do what the specification says
├── Skipped        the host does not declare the feature, or the user did not give what the check needs
└── NotJudged      a preparation of the check did not work
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

LONGEST = 2000
"""Characters of an observation that a report shows."""


class Outcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ERROR = "error"


class CheckOutcome(Exception):
    """Ends a check that has not passed."""


class CheckFailed(CheckOutcome):
    def __init__(self, observed: object, expected: str) -> None:
        super().__init__(expected)
        self.observed = observed
        self.expected = expected


class Skipped(CheckOutcome):
    pass


class NotJudged(CheckOutcome):
    pass


class Result(Struct, frozen=True, rename="camel"):
    """The result of one check, on one binding or on the host as a whole."""

    id: str
    surface: str
    binding: str
    """Empty for a check of the host as a whole."""
    title: str
    section: str
    level: str
    outcome: Outcome
    reason: str = ""
    """Why the check was skipped or could not be judged."""
    observed: str = ""
    expected: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.id} [{self.binding}]" if self.binding else self.id


class ConformReport(Struct, rename="camel"):
    url: str
    """The URL of the card."""
    agent: str
    """The name in the card."""
    bindings: list[str]
    profile: str
    results: list[Result]
    notes: list[str] = []
    """The parts of the host that were not judged, and why."""

    def count(self, outcome: Outcome) -> int:
        return sum(result.outcome is outcome for result in self.results)

    def of(self, outcome: Outcome) -> list[Result]:
        return [result for result in self.results if result.outcome is outcome]

    @property
    def code(self) -> int:
        """The exit code. 0: every check that ran passed. 1: a check failed. 2: the host cannot be judged."""
        if self.count(Outcome.FAILED):
            return 1
        return 2 if self.count(Outcome.ERROR) or not self.count(Outcome.PASSED) else 0


def shown(value: object, secrets: Iterable[str] = (), longest: int = LONGEST) -> str:
    """Format a value for a report. Secrets are removed before the text is cut, so that no part of one remains."""
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
