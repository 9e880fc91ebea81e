"""Scopes: what a token or JWT gives access to.

agent:<pattern>       call the agents whose id matches (`*` and `?` as in file names), and read one's own tasks there
operate               see the state of any task and cancel it, but never read its content
admin                 tokens and keys; opens no agent
audit                 the audit log, and exports of evidence
metrics               /metrics
pty:observe|control   terminals
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

OPERATE, ADMIN, AUDIT, METRICS = "operate", "admin", "audit", "metrics"
PLAIN = frozenset({OPERATE, ADMIN, AUDIT, METRICS, "pty:observe", "pty:control"})
SCHEMES = ("bearer", "apiKey", "jwt", "mtls", "unix")
"""The authentication schemes, in the order in which they are listed."""
AGENT = "agent:"
ALL_AGENTS = "agent:*"

_AGENT_SCOPE = re.compile(r"agent:[A-Za-z0-9._*?-]{1,128}")


def is_known(scope: str) -> bool:
    return scope in PLAIN or _AGENT_SCOPE.fullmatch(scope) is not None


def is_ours(scope: str) -> bool:
    """Whether it is a scope of Roost, or a misspelt one, rather than a scope of another application."""
    return scope in PLAIN or scope.startswith((AGENT, "pty:"))


def parse_scopes(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the scopes in their order, without duplicates. ValueError names one that does not exist."""
    scopes = tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))
    for scope in scopes:
        if not is_known(scope):
            raise ValueError(f"{scope!r} is not a scope; the scopes are agent:<pattern>, {', '.join(sorted(PLAIN))}")
    return scopes


def opens_any_agent(scopes: Iterable[str]) -> bool:
    return any(scope.startswith(AGENT) for scope in scopes)


@lru_cache(4096)
def opens_agent(scopes: tuple[str, ...], agent: str) -> bool:
    return any(scope.startswith(AGENT) and fnmatchcase(agent, scope[len(AGENT) :]) for scope in scopes)
