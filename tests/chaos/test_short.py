"""A short round of `make chaos` on each store: faults under load, and no client notices."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.report import markdown
from chaos.scenario import STORES, run_round

KILLS = 5
SECONDS = 10.0
SEED = 7


@pytest.mark.parametrize("store", STORES)
async def test_no_client_notices_that_hosts_die(store: str, tmp_path: Path) -> None:
    done = await run_round(store, KILLS, SECONDS, SEED, tmp_path, print)
    print(markdown([done]))
    assert done.verdict.violations == []
    assert done.harm["kills"] > 0
    assert done.counts.tasks > 0
    assert done.counts.resumes > 0
    assert done.webhooks > 0
