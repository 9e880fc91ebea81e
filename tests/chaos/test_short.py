"""A short round of each scenario of `make chaos`: harm under load, and no client can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.report import markdown
from chaos.scenario import STORES, play

KILLS = 5
SECONDS = 10.0
SEED = 7


@pytest.mark.parametrize("store", STORES)
async def test_no_client_can_tell_that_hosts_die(store: str, tmp_path: Path) -> None:
    done = await play(store, KILLS, SECONDS, SEED, tmp_path, print)
    print(markdown([done]))
    assert done.verdict.violations == []
    assert done.harm["kills"] > 0
    assert done.counts.tasks > 0
    assert done.counts.resumes > 0
    assert done.webhooks > 0
