"""Fixtures: every store, and further stores on the database of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

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
    "postgresql": lambda request, folder: PostgresStore(request.getfixturevalue("database")),
}
"""A new store joins the suite with a line here. A server is started only if a test needs it."""


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


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Wait for a condition, with a limit that ends a test which would wait forever."""
    async with asyncio.timeout(30):
        while not await holds():
            await asyncio.sleep(0.02)
