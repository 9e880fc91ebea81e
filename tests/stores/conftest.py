"""Every store, and stores on the database of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from roost.engine.ports import Store
from roost.stores.memory import MemoryStore
from roost.stores.postgres import PostgresStore
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_process import ProcessCarrier

Open = Callable[[], Awaitable[PostgresStore]]

STORES: dict[str, Callable[[pytest.FixtureRequest, Path], Store]] = {
    "memory": lambda request, folder: MemoryStore(),
    "sqlite": lambda request, folder: SQLiteStore(folder),
    "sqlite in a process": lambda request, folder: SQLiteStore(folder, ProcessCarrier),
    "postgresql": lambda request, folder: PostgresStore(request.getfixturevalue("database")),
}
"""A store joins the suite by a line here. A server is started only if a test asks for it."""


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = STORES[request.param](request, tmp_path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def open_store(database: str) -> AsyncIterator[Open]:
    """Opens one more store on the database of the test."""
    opened: list[PostgresStore] = []

    async def open_one() -> PostgresStore:
        store = PostgresStore(database)
        await store.open()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()
