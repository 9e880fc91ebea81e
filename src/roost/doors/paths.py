"""Tables of paths: `/tasks/{id}:cancel`, matched segment by segment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

H = TypeVar("H")

OPENAI_ALIAS = "/v1/chat/completions"
"""The path of a chat completion, below an agent. It belongs to no other door, even if OpenAI's is closed."""


class Endpoint(NamedTuple, Generic[H]):
    method: str
    template: str
    """`{name}` stands for one segment, or for its part before a `:verb`."""
    handler: H
    summary: str


class Match(NamedTuple, Generic[H]):
    endpoint: Endpoint[H] | None
    path: dict[str, str]
    """The values of the names in the template."""
    allowed: tuple[str, ...]
    """The methods of the path, if it matches and the request's method does not."""


NOTHING: Match[Any] = Match(None, {}, ())


class Table(Generic[H]):
    def __init__(self, endpoints: Iterable[Endpoint[H]]) -> None:
        self.endpoints = tuple(endpoints)
        self._split = [(endpoint, endpoint.template.split("/")) for endpoint in self.endpoints]
        self._exact = {
            (endpoint.method, endpoint.template): Match(endpoint, {}, ())
            for endpoint in self.endpoints
            if "{" not in endpoint.template
        }

    def match(self, method: str, path: str) -> Match[H]:
        """Find the endpoint of a path."""
        exact = self._exact.get((method, path))
        if exact is not None:
            return exact
        allowed: list[str] = []
        segments = path.split("/")
        for endpoint, template in self._split:
            values = values_of(template, segments)
            if values is None:
                continue
            if endpoint.method == method:
                return Match(endpoint, values, ())
            allowed.append(endpoint.method)
        return Match(None, {}, tuple(dict.fromkeys(allowed))) if allowed else NOTHING


def values_of(template: list[str], segments: list[str]) -> dict[str, str] | None:
    """Return the values of a template's names in a path, or None if the path does not fit."""
    if len(template) != len(segments):
        return None
    values: dict[str, str] = {}
    for pattern, segment in zip(template, segments, strict=True):
        if not pattern.startswith("{"):
            if pattern != segment:
                return None
            continue
        name, _, verb = pattern[1:].partition("}")
        if verb:
            if not segment.endswith(verb):
                return None
            segment = segment[: -len(verb)]
        elif ":" in segment:
            return None
        if not segment:
            return None
        values[name] = segment
    return values
