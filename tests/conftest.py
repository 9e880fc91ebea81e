"""One PostgreSQL and one NATS for all tests that need them; every test has a database of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import coverage
import httpx
import pytest
from tools.services import Nats, Postgres, empty_database, nats, new_database, postgres

from tests.waiting import PATIENCE_S

if "PYTEST_XDIST_WORKER" in os.environ:
    coverage.process_startup()  # where the tests as a whole are measured

for phase in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, phase, PATIENCE_S)
# To load the system's certificates takes longer than a request, and tests make hundreds of clients.
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)


LONGEST = (
    "conform/test_sdk.py",
    "chaos/test_short.py",
    "chaos/test_hostile.py",
    "conform/test_faults.py",
    "test_benchmarks.py",
    "fuzz/test_short.py",
    "replicas/test_replicas.py",
    "stores/test_conformance.py",
    "mcp_door/test_stdio.py",
    "mcp_door/test_workers.py",
    "durability/test_faults.py",
    "clients/test_page.py",
    "agents/test_crash.py",
    "access/test_matrix.py",
    "replicas/test_store_commands.py",
    "evidence/test_bundle_hostile.py",
    "mcp_door/test_calls.py",
    "chaos/test_cluster.py",
)
"""The files that take longest. They begin first, so that no worker is alone with one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_sessionfinish() -> None:
    """A worker of xdist ends without a word to anyone."""
    measured = coverage.Coverage.current()
    if measured is not None and "PYTEST_XDIST_WORKER" in os.environ:
        measured.stop()
        measured.save()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """Without fsync: what tests need of a disk is that it is quick. Started only if a test asks for it."""
    with postgres(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def nats_server() -> Iterator[Nats]:
    with nats() as server:
        yield server


@pytest.fixture(scope="session")
def databases(postgres_server: Postgres) -> list[str]:
    """The urls of empty databases that no test has: to empty one is quicker than to make one."""
    return []


@pytest.fixture
def database(postgres_server: Postgres, databases: list[str]) -> Iterator[str]:
    """The url of an empty database."""
    url = databases.pop() if databases else new_database(postgres_server.url)
    yield url
    empty_database(url)
    databases.append(url)
