"""Medians, spreads, and the verdicts that they allow."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import NamedTuple


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of some ascending values that is not below `share` of them."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


class Spread(NamedTuple):
    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(min(values), median(values), max(values))


class AtLeast(NamedTuple):
    """A ratio that must not be below the floor, and should reach the target."""

    floor: float
    target: float

    def __str__(self) -> str:
        return f"floor {self.floor:g}, target {self.target:g}"

    def verdict(self, spread: Spread) -> str:
        if spread.low >= self.target:
            return "target met"
        if spread.high < self.floor:
            return "missed"
        if spread.low < self.floor:
            return "undecided"
        return "floor met" if spread.high < self.target else "floor met, target undecided"


class AtMost(NamedTuple):
    limit: float
    unit: str = ""

    def __str__(self) -> str:
        return f"<= {self.limit:g}{' ' * bool(self.unit)}{self.unit}"

    def verdict(self, spread: Spread) -> str:
        if spread.high <= self.limit:
            return "met"
        return "missed" if spread.low > self.limit else "undecided"


class NoBar(NamedTuple):
    """A measure for information only."""

    def __str__(self) -> str:
        return ""

    def verdict(self, spread: Spread) -> str:
        return ""


Bar = AtLeast | AtMost | NoBar
