"""Hosts on one real PostgreSQL, with and without NATS."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Server, running

AGENTS = Path(__file__).parent / "agents.py"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "secret.key"
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(32))
    return file


Start = Callable[..., AbstractContextManager[Server]]


@pytest.fixture
def start(database: str, key: Path, tmp_path: Path) -> Start:
    """Starts a host on the test's database."""
    (tmp_path / "log").mkdir()

    def started(*args: str, url: str = database, port: int = 0, **options: Any) -> AbstractContextManager[Server]:
        store = ("--store", url, "--secret-file", str(key))
        env = {"AGENT_LOG": str(tmp_path / "log")}
        return running(AGENTS, store=store, args=("--drain-s", "1", *args), port=port, env=env, **options)

    return started


@pytest.fixture(params=["notify", "nats"])
def three(request: pytest.FixtureRequest, start: Start) -> Iterator[list[Server]]:
    """Three hosts that hear of each other, by NOTIFY or by NATS."""
    args = ("--wake", request.getfixturevalue("nats_server").url) if request.param == "nats" else ()
    with ExitStack() as stack:
        yield [stack.enter_context(start(*args)) for _ in range(3)]
