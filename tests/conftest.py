"""One PostgreSQL and one NATS for all tests that need them; every test has a database of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import coverage
import pytest
from tools.services import Nats, Postgres, drop_database, nats, new_database, postgres

if "PYTEST_XDIST_WORKER" in os.environ:
    coverage.process_startup()  # where the tests as a whole are measured


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


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[str]:
    """The url of an empty database."""
    url = new_database(postgres_server.url)
    yield url
    drop_database(url)
