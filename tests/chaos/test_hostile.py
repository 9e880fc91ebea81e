"""Hostile requests to two replicas while long tasks of others run: none of those tasks fails, and no lease is lost."""

from __future__ import annotations

from pathlib import Path

from chaos.report import markdown
from chaos.scenario import run_attack

REQUESTS, SECONDS = 5, 10.0
SEED = 7


async def test_no_task_fails_because_of_hostile_requests_of_others(tmp_path: Path) -> None:
    done = await run_attack(REQUESTS, SECONDS, SEED, tmp_path, print)
    print(markdown([done]))
    assert done.verdict.violations == []
    assert done.counts.hostile == REQUESTS
    assert done.counts.tasks > 0
