"""One PostgreSQL and one NATS for all tests that need them; every test has a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.services import Nats, Postgres, drop_database, nats, new_database, postgres


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
