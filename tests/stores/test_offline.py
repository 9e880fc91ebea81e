"""Commands that write tokens and keys into the journal of a running host."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from roost.engine.ports import AdminStore, Store
from roost.stores.sqlite import OfflineStore, SQLiteStore
from roost.stores.sqlite_connections import WriterThread
from roost.stores.sqlite_process import WriterProcess
from tests.waiting import until

from .samples import Cache, audited, creation, ended, key, token

UNTIL = 9000


@pytest.fixture(params=[WriterThread, WriterProcess])
async def host(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    """The store that a host has open."""
    made = SQLiteStore(tmp_path, request.param)
    yield made
    await made.close()


@pytest.fixture
async def offline(host: SQLiteStore, tmp_path: Path) -> AsyncIterator[OfflineStore]:
    made = OfflineStore(tmp_path)
    yield made
    await made.close()


async def test_what_a_command_writes_is_seen_by_the_host_and_the_other_way_round(
    host: SQLiteStore, offline: OfflineStore
) -> None:
    assert await host.add_token(token("host's"))
    mirrors = [Cache(host), Cache(offline)]
    for mirror in mirrors:
        await mirror.refresh()
    assert await offline.add_token(token("first"))
    assert not await host.add_token(token("first", digest=b"another"))
    assert await host.add_key(key("k"), None, UNTIL)
    assert not await offline.add_key(key("l"), None, UNTIL)
    assert await offline.add_key(key("l"), "k", UNTIL)
    assert await offline.retire_key("agent", "k", 5000)
    assert await offline.revoke_token("host's", 2000) == token("host's", revoked=2000)
    await offline.write_audit([audited(1)], 10)
    await host.write_audit([audited(2)], 10)
    assert [line.number for line in await host.read_audit(None, 10)] == [2, 1]
    for mirror in mirrors:
        await mirror.refresh()
        assert set(mirror.tokens) == {"host's", "first"}
        assert mirror.tokens["host's"].revoked == 2000
        assert mirror.keys["agent", "k"] == key("k", until=UNTIL, retired=5000, sealed=b"")
        assert mirror.keys["agent", "l"] == key("l")


async def test_commands_that_write_while_the_host_commits_wait_for_it_and_nobody_misses_anything(
    host: SQLiteStore, offline: OfflineStore
) -> None:
    async def commit() -> None:
        for number in range(100):
            assert await host.commit([creation(f"{number}")]) == [None]

    async def write(store: SQLiteStore, name: str) -> None:
        for number in range(30):
            assert await store.add_token(token(f"{name} {number}"))

    writing = asyncio.gather(commit(), write(host, "host's"), write(offline, "offline"))
    mirrors = [Cache(host), Cache(offline)]
    await asyncio.gather(writing, *(mirror.follow_until(writing) for mirror in mirrors))
    for mirror in mirrors:
        assert await mirror.misses_nothing()
        assert (mirror.version, len(mirror.tokens)) == (60, 60)


async def test_a_command_waits_for_a_write_that_takes_long(host: SQLiteStore, offline: OfflineStore) -> None:
    with closing(sqlite3.connect(host.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        adding = asyncio.ensure_future(offline.add_token(token("a")))
        await until(lambda: _taken_up(offline))
        assert not adding.done()
        other.execute("COMMIT")
    assert await adding


async def _taken_up(store: OfflineStore) -> bool:
    assert isinstance(store.writer, WriterThread)
    return store.writer.jobs.empty()


async def test_what_a_command_prunes_is_taken_from_the_hosts_accounts(host: SQLiteStore, offline: OfflineStore) -> None:
    await host.commit([ended("a", status_time=1), ended("b", status_time=2)])
    [went] = await offline.prune("agent", None, 1, 10)
    await host.add_usage([went, went])
    assert await host.usage() == [("agent", 1, went.size)]
    assert await offline.stored_bytes([("tenant", went.tenant), ("owner", went.owner)]) == [went.size] * 2


def test_a_command_has_the_ports_of_administration_and_no_others() -> None:
    """An offline store has no method that only a host may call, and so none that must fail."""
    ports = {name for name in dir(AdminStore) if not name.startswith("_")}
    host_only = {name for name in dir(Store) if not name.startswith("_")} - ports
    assert {"commit", "adopt", "read_reserved", "drop_reservations"} <= host_only
    assert ports <= set(dir(OfflineStore))
    assert not host_only & set(dir(OfflineStore))
