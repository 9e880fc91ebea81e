"""The outcome of a run, for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from chaos.checker import Violation
from chaos.faults import BLACK_HOLE, CUT, FREEZE, KILL, NATS, RESTART, ROLL
from chaos.scenario import Round

SHOWN = 5


def _count(kind: str) -> Callable[[Round], Any]:
    return lambda one: one.harm.get(kind, 0)


ROWS: dict[str, Callable[[Round], Any]] = {
    "kill -9": _count(KILL),
    "PostgreSQL restarts (immediate)": _count(RESTART),
    "connections cut": _count(CUT),
    "black holes": _count(BLACK_HOLE),
    "NATS stops": _count(NATS),
    "rolling restarts (SIGTERM)": _count(ROLL),
    "processes frozen": _count(FREEZE),
    "tasks": lambda one: one.counts.tasks,
    "events seen": lambda one: one.counts.events,
    "connections dropped by clients": lambda one: one.counts.drops,
    "streams resumed": lambda one: one.counts.resumes,
    "requests repeated": lambda one: one.counts.retries,
    "messages replayed": lambda one: one.counts.replays,
    "hostile requests answered": lambda one: one.counts.hostile,
    "webhook calls accepted": lambda one: one.webhooks,
    "tasks failed after 3 attempts": lambda one: one.verdict.given_up,
    "of them never started": lambda one: one.verdict.never_begun,
    "tasks failed as interrupted": lambda one: one.verdict.interrupted,
    "hosts that did not start at once": lambda one: one.failed_starts,
    "tracebacks in logs": lambda one: sum(one.tracebacks.values()),
    "seconds": lambda one: f"{one.seconds:.0f}",
    "of them to settle": lambda one: f"{one.settled_s:.1f}",
    "**violations**": lambda one: f"**{len(one.verdict.violations)}**",
}


def markdown(rounds: list[Round]) -> str:
    lines = [
        f"| seed {rounds[0].seed} | {' | '.join(one.store for one in rounds)} |",
        f"|---|{'---:|' * len(rounds)}",
        *(f"| {name} | {' | '.join(str(value(one)) for one in rounds)} |" for name, value in ROWS.items()),
    ]
    for one in rounds:
        lines += _violations(one) + _tracebacks(one)
    return "\n".join(lines)


def _violations(one: Round) -> list[str]:
    """List the first few violations of each kind."""
    found: dict[str, list[Violation]] = {}
    for violation in one.verdict.violations:
        found.setdefault(violation.kind, []).append(violation)
    lines = ["", f"## Violations on {one.store}", ""] if found else []
    for kind, violations in found.items():
        lines += [f"- **{kind}** {task_id}: {evidence}" for _, task_id, evidence in violations[:SHOWN]]
        left = len(violations) - SHOWN
        lines += [f"- and {left} more of this kind; --json has them all"] if left > 0 else []
    return lines


def _tracebacks(one: Round) -> list[str]:
    lines = ["", f"## Tracebacks in the logs on {one.store}", ""] if one.tracebacks else []
    return lines + [f"- {count} x {text}" for text, count in sorted(one.tracebacks.items(), key=lambda item: -item[1])]


def as_json(rounds: list[Round]) -> str:
    return msgspec.json.format(msgspec.json.encode([_plain(one) for one in rounds]), indent=2).decode()


def _plain(one: Round) -> dict[str, Any]:
    verdict = one.verdict._asdict() | {"violations": [item._asdict() for item in one.verdict.violations]}
    return msgspec.structs.asdict(one) | {"verdict": verdict}
