"""A case: a request that is made to cost others something, and what has to come of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from benchmarks.hostile.host import Arena
from benchmarks.hostile.issuer import Issuer
from benchmarks.hostile.senders import Response

ACCEPTED = r"accepted"
INVALID = r"refused (400|-32602|-32600|-32700|INVALID_ARGUMENT)\b"
TOO_LARGE = r"refused (413|-32024|RESOURCE_EXHAUSTED)\b"


def invalid(reason: str) -> str:
    """Return the pattern of a refusal as invalid for this reason, which is a pattern too."""
    return f"{INVALID}.*({reason})"


LIMITED = invalid("max_|(more|longer|larger|deeper) than|at most|too (large|long|deep|many)|the most") + f"|{TOO_LARGE}"
"""The request is refused because it is over a limit, and the error says over which one."""
EITHER = f"{ACCEPTED}|{LIMITED}"
"""The request is within the limits of one configuration and over those of another."""
BUSY = "refused (429|503)"
"""The caller is asked to come back when earlier requests have been answered."""
SHOWN = 160


class Stage:
    """The host under attack, and tasks that were made before it."""

    def __init__(self, arena: Arena, issuer: Issuer) -> None:
        self.arena = arena
        self.issuer = issuer
        self.port = arena.port
        self.grpc_port = arena.grpc_port
        self.made = cache(self._made)

    def _made(self, make: Callable[[Stage], Any]) -> Any:
        return make(self)


class Case(NamedTuple):
    name: str
    door: str
    act: Callable[[Stage], str]
    """Attacks, and returns the outcome: "accepted", or "refused STATUS: message", or what the case observed."""
    expected: str
    """A pattern that the outcome matches from its beginning."""
    prepare: Callable[[Stage], Any] | None = None
    """Makes what the attack needs, before anything is measured."""
    host: str = "open"
    """The name of the host that is attacked."""


def outcome(response: Response) -> str:
    """Say in one line whether a request was accepted, and if not, why."""
    status, body = response
    if status in ("OK", "202", "204", "201"):
        return "accepted"
    if status != "200":
        return f"refused {status}: {_reason(body)}"
    if len(body) > 65_536:
        return "accepted"
    for line in body.splitlines() if body.startswith((b"event:", b"data:", b":", b"id:")) else [body]:
        with suppress(ValueError):
            found = json.loads(line.removeprefix(b"data:"))
            if isinstance(found, dict) and "error" in found and isinstance(found["error"], dict):
                return f"refused {found['error'].get('code')}: {_clean(str(found['error'].get('message')))}"
            result = found.get("result", {}) if isinstance(found, dict) else {}
            if isinstance(result, dict) and result.get("isError"):
                return f"refused 400: {_clean(json.dumps(result['content']))}"
    return "accepted"


def _reason(body: bytes) -> str:
    with suppress(ValueError):
        found = json.loads(body)
        error = found.get("error", found)
        if isinstance(error, dict):
            return _clean(str(error.get("message") or error.get("detail") or error.get("title")))
    return _clean(body[:1000].decode(errors="replace"))


def _clean(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:SHOWN]
