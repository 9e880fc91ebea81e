"""Templates of paths: `tasks/{id}:cancel`, in segments."""

from __future__ import annotations


def values_of(template: list[str], segments: list[str]) -> dict[str, str] | None:
    """The values of a template's names in a path; None if it does not fit."""
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
