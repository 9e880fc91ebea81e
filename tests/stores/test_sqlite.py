"""What is the SQLite store's own: one process per folder, a file that outlives it, a disk that may refuse."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.engine.ports import Scope, StoreUnavailable
from roost.protocol.types import TaskState
from roost.stores.schema import NewerSchema
from roost.stores.sqlite import SQLiteStore, StoreInUse

from .making import addition, creation, entry, head, query, snapshot

OPEN = (
    "import sys; from pathlib import Path; from roost.stores.sqlite import SQLiteStore; SQLiteStore(Path(sys.argv[1]))"
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path)
    yield made
    await made.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow or be written in this process: what a full disk does to a store."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_second_process_on_the_same_folder_is_refused_with_a_clear_message(
    store: SQLiteStore, tmp_path: Path
) -> None:
    second = subprocess.run([sys.executable, "-c", OPEN, str(tmp_path)], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"{tmp_path} is in use by another roost process" in second.stderr
    assert "--data" in second.stderr


async def test_a_second_store_in_the_same_process_is_refused_too(store: SQLiteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreInUse):
        SQLiteStore(tmp_path)
    await store.probe()


async def test_the_folder_is_free_again_when_its_process_is_gone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", f"{OPEN}; import os; os._exit(9)", str(tmp_path)], check=False)
    store = SQLiteStore(tmp_path)
    await store.probe()
    await store.close()


async def test_everything_survives_a_reopen(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "made" / "on the way"):
        first = SQLiteStore(folder)
        append = creation("t", state=TaskState.WORKING, snapshot=snapshot("t", artifacts=b'["a"]'))
        await first.commit([append, creation("other", hidden=True)])
        await first.commit([addition("t", entry(2), entry(2, 1))])
        assert await first.claim("t", "worker-2", 1) == 2
        kept = await first.read_task("t"), await first.read_entries("t", -1, 10, wire=False)
        await first.close()
        second = SQLiteStore(folder)
        assert (await second.read_task("t"), await second.read_entries("t", -1, 10, wire=False)) == kept
        assert await second.commit([addition("t", entry(3), fence=2)]) == [None]
        assert [stored.new.id for stored in (await second.list_tasks(query())).tasks] == ["t"]
        await second.close()


async def test_a_journal_of_a_newer_release_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    await SQLiteStore(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.db") as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE key = 'version'")
    connection.close()
    before = (tmp_path / "journal.db").read_bytes()
    for _ in range(2):  # refused again, not "in use": the lock was let go
        with pytest.raises(NewerSchema, match=r"schema 99.*upgrade Roost"):
            SQLiteStore(tmp_path)
    assert (tmp_path / "journal.db").read_bytes() == before


async def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"not a database, but somebody's file" * 100)
    before = (tmp_path / "journal.db").read_bytes()
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError, match="not a database"):
            SQLiteStore(tmp_path)
    assert (tmp_path / "journal.db").read_bytes() == before


async def test_a_full_disk_fails_the_probe_with_the_reason_and_it_passes_when_there_is_room(
    store: SQLiteStore,
) -> None:
    with full_disk():
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"journal\.db: .*(disk|full|I/O)"):
                await store.probe()
    await store.probe()


@pytest.mark.parametrize("others", [0, 300])
async def test_on_a_full_disk_nothing_is_committed_and_reading_goes_on(store: SQLiteStore, others: int) -> None:
    assert await store.commit([creation("before")]) == [None]
    more = [creation(f"more {number}") for number in range(others)]
    group = [addition("before", entry(2), head=head(TaskState.COMPLETED)), *more, creation("new")]
    with full_disk():
        with pytest.raises(StoreUnavailable):
            await store.commit(group)
        assert await store.read_entries("before", -1, 10, wire=False) == [entry(0, 1), entry(1)]
        assert await store.read_task("new") is None
    assert await store.read_task("new") is None
    assert await store.commit(group) == [None] * len(group)
    assert await store.read_task("new") is not None


async def test_a_connection_that_broke_fails_one_commit_and_is_replaced(store: SQLiteStore) -> None:
    store.carrier.writer.connection.close()
    with pytest.raises(StoreUnavailable):
        await store.probe()
    await store.probe()


@pytest.mark.parametrize("others", [1, 300])
async def test_a_value_that_sqlite_cannot_hold_fails_its_group_and_nothing_after_it(
    store: SQLiteStore, others: int
) -> None:
    one, two = Scope("one", "o", "a"), Scope("two", "o", "a")
    group = [creation(f"t{number}", scope=one) for number in range(others)]
    with pytest.raises(OverflowError):
        await store.commit([*group, creation("impossible", created=2**70)])
    for append in group:
        assert await store.read_task(append.task_id) is None
    for name, scope in (("in two", two), ("in one", one)):
        assert await store.commit([creation(name, scope=scope)]) == [None]
    for name, scope in (("in two", two), ("in one", one)):
        assert [stored.new.id for stored in (await store.list_tasks(query(scope=scope))).tasks] == [name]
