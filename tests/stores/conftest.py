"""Fixtures: every store, and further stores on the database of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tools.services import Postgres, execute, new_database, run_aside

from roost.engine.ports import Store
from roost.stores.memory import MemoryStore
from roost.stores.postgres import PostgresStore
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_process import WriterProcess

Open = Callable[[], Awaitable[PostgresStore]]

STORES: dict[str, Callable[[pytest.FixtureRequest, Path], Store]] = {
    "memory": lambda request, folder: MemoryStore(),
    "sqlite": lambda request, folder: SQLiteStore(folder),
    "sqlite in a process": lambda request, folder: SQLiteStore(folder, WriterProcess),
    "postgresql": lambda request, folder: PostgresStore(request.getfixturevalue("emptied_database")),
}
"""A new store joins the suite with a line here. A server is started only if a test needs it."""


EMPTY = """
DO $$ DECLARE kept text; filled boolean; BEGIN
    FOR kept IN SELECT tablename FROM pg_tables WHERE schemaname = 'roost' LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM roost.%I)', kept) INTO filled;
        IF filled THEN EXECUTE format('TRUNCATE roost.%I RESTART IDENTITY CASCADE', kept); END IF;
    END LOOP;
    INSERT INTO roost.meta SELECT * FROM public.meta;
END $$
"""


@pytest.fixture(scope="session")
def reused_database(postgres_server: Postgres) -> str:
    """A database with Roost's tables; public.meta has what is in them from the beginning."""
    url = new_database(postgres_server.url)

    async def make() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    run_aside(make())
    execute(url, "CREATE TABLE public.meta AS TABLE roost.meta")
    return url


@pytest.fixture
def emptied_database(reused_database: str) -> str:
    """Empty the database but keep its tables, because creating them takes longer than most tests."""
    execute(reused_database, EMPTY)
    return reused_database


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = STORES[request.param](request, tmp_path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def open_store(database: str) -> AsyncIterator[Open]:
    """Open one more store on the database of the test."""
    opened: list[PostgresStore] = []

    async def open_one() -> PostgresStore:
        store = PostgresStore(database)
        await store.open()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()
