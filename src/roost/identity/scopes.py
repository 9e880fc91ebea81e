"""What a credential opens: words that tokens and JWTs carry.

agent:<pattern>       call the agents whose id fits (`*` and `?` as in file names), and read one's own tasks there
operate               see the state of any task and cancel it, never its content
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
"""The ways to prove who one is, in the order in which they are told."""
AGENT = "agent:"
ALL_AGENTS = "agent:*"

_AGENT_SCOPE = re.compile(r"agent:[A-Za-z0-9._*?-]{1,128}")


def known_scope(word: str) -> bool:
    return word in PLAIN or _AGENT_SCOPE.fullmatch(word) is not None


def meant_for_us(word: str) -> bool:
    """A scope of Roost's, or one that was to be: it must not be taken for somebody else's."""
    return word in PLAIN or word.startswith((AGENT, "pty:"))


def parse_scopes(words: Iterable[str]) -> tuple[str, ...]:
    """In their order, once each. ValueError names one that does not exist."""
    found = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
    for word in found:
        if not known_scope(word):
            raise ValueError(f"{word!r} is no scope; there are agent:<pattern>, {', '.join(sorted(PLAIN))}")
    return found


def for_agents(scopes: Iterable[str]) -> bool:
    """It opens some agent."""
    return any(scope.startswith(AGENT) for scope in scopes)


@lru_cache(4096)
def opens_agent(scopes: tuple[str, ...], agent: str) -> bool:
    return any(scope.startswith(AGENT) and fnmatchcase(agent, scope[len(AGENT) :]) for scope in scopes)
