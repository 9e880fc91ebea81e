"""Stores on the database of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from roost.stores.postgres import PostgresStore

Open = Callable[[], Awaitable[PostgresStore]]


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


def make_postgres(request: pytest.FixtureRequest) -> PostgresStore:
    """A store in a database of the test's own. The server is started only if a test asks for it."""
    return PostgresStore(request.getfixturevalue("database"))


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    """Wait for a condition; a test that waits for ever is ended by the limit."""
    async with asyncio.timeout(30):
        while not await holds():
            await asyncio.sleep(0.02)
