"""The SQLite store's own behaviour: one process per folder, a file that outlives it, a disk that may refuse."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from roost.engine.store_types import Scope, StoreUnavailable
from roost.protocol.types import TaskState
from roost.stores import sqlite_backup
from roost.stores import sqlite_pushes as pushes
from roost.stores import sqlite_records as records
from roost.stores import sqlite_tasks as tasks
from roost.stores.sqlite import SQLiteStore, StoreBroken
from roost.stores.sqlite_connections import WriterThread
from roost.stores.sqlite_files import StoreInUse
from roost.stores.sqlite_process import WriterProcess

from .samples import SCOPE, addition, creation, ended, entry, head, query, reservation, snapshot

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


async def test_a_folder_whose_name_is_not_utf_8_is_opened_and_copied(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9 %41?")
    store = SQLiteStore(folder)
    assert await store.commit([creation("t")]) == [None]
    await store.close()
    assert (folder / "journal.db").exists()
    with closing(sqlite_backup._read_only(folder / "journal.db")) as connection:
        assert connection.execute("SELECT id FROM tasks").fetchall() == [("t",)]


async def test_a_second_store_in_the_same_process_is_refused_too(store: SQLiteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreInUse):
        SQLiteStore(tmp_path)
    await store.probe()


async def test_the_folder_is_free_again_when_its_process_is_gone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", f"{OPEN}; import os; os._exit(9)", str(tmp_path)], check=False)
    store = SQLiteStore(tmp_path)
    await store.probe()
    assert await store.commit([creation("t")]) == [None]
    await store.close()


async def test_everything_survives_a_reopen(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "made" / "on the way"):
        first = SQLiteStore(folder)
        append = creation("t", state=TaskState.WORKING, snapshot=snapshot("t", artifacts=b'["a"]'))
        await first.commit([append, creation("other", hidden=True)])
        await first.commit([addition("t", entry(2), entry(2, 1))])
        assert await first.adopt("worker-2", ["agent"], 10) == [
            ("other", 2, False, "worker-1", 2),
            ("t", 2, False, "worker-1", 2),
        ]
        kept = await first.read_task("t"), await first.read_entries("t", -1, 10, wire=False)
        await first.close()
        second = SQLiteStore(folder)
        assert (await second.read_task("t"), await second.read_entries("t", -1, 10, wire=False)) == kept
        assert await second.commit([addition("t", entry(3), fence=2)]) == [None]
        assert [stored.new.id for stored in (await second.list_tasks(query())).tasks] == ["t"]
        await second.close()


def damage(path: Path, table: str) -> None:
    """Overwrite the page that a table or an index begins with."""
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


@pytest.mark.parametrize(
    "content", [b"not a database, but somebody's file" * 100, b"SQLite format 3\0" + b"\xff" * 8000]
)
async def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.db").write_bytes(content)
    for _ in range(2):  # refused again, not "in use": the lock was let go
        with pytest.raises(StoreBroken, match=r"journal\.db: file is not a database .*`roost restore`.*--data"):
            SQLiteStore(tmp_path)
    assert (tmp_path / "journal.db").read_bytes() == content


async def test_a_journal_that_was_cut_off_is_refused_at_the_start(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    await store.commit([creation(f"{number}") for number in range(100)])
    await store.close()
    data = (tmp_path / "journal.db").read_bytes()
    (tmp_path / "journal.db").write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreBroken, match=r"malformed .*`roost restore`.*--data"):
        SQLiteStore(tmp_path)


async def test_a_folder_that_cannot_be_one_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(StoreBroken, match=r"file.*--data"):
            SQLiteStore(folder)


OPEN_AS_NOBODY = """
import os, sys
from pathlib import Path
from typing import Any
from roost.stores.sqlite import SQLiteStore, StoreBroken
if os.geteuid() == 0:  # who may write everywhere
    os.setgid(65534)
    os.setuid(65534)
try:
    SQLiteStore(Path(sys.argv[1]))
except StoreBroken as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("readonly", "said"),
    [(None, ""), ("", "Permission denied|unable to open|readonly"), ("journal.db", "Permission denied|readonly")],
)
async def test_who_may_not_write_is_told_at_the_start(readonly: str | None, said: str) -> None:
    folder = Path(tempfile.mkdtemp())  # not tmp_path, which only its owner may enter
    await SQLiteStore(folder).close()
    for path in (folder, *folder.iterdir()):
        path.chmod(0o777)
    if readonly is not None:
        (folder / readonly).chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", OPEN_AS_NOBODY, str(folder)], capture_output=True, text=True, check=True
    )
    shutil.rmtree(folder)
    if readonly is None:
        assert done.stdout == ""
    else:
        assert re.search(rf"({said}).*--data", done.stdout), done.stdout


@pytest.mark.parametrize("writer", [WriterThread, WriterProcess])
async def test_a_journal_that_is_damaged_while_it_is_open_fails_with_the_reason(
    tmp_path: Path, writer: type[WriterThread] | type[WriterProcess]
) -> None:
    store = SQLiteStore(tmp_path)
    await store.commit([creation(f"{number:03}") for number in range(300)])
    await store.close()
    damage(tmp_path / "journal.db", "tasks")
    store = SQLiteStore(tmp_path, writer)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"journal\.db: .*malformed .*`roost restore`"):
            await store.read_task("007")
        with pytest.raises(StoreUnavailable, match=r"journal\.db: .*malformed .*`roost restore`"):
            await store.commit([creation("t", reserve=reservation("m"))])
    assert await store.read_reserved(reservation("m").key) is None
    await store.close()


async def test_a_journal_that_became_read_only_fails_with_the_reason(store: SQLiteStore) -> None:
    assert isinstance(store.writer, WriterThread)
    store.writer.writer.connection.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreUnavailable, match=r"readonly database .*make it writable"):
        await store.commit([creation("t")])


async def test_a_writer_that_cannot_open_the_file_any_more_says_why(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path, WriterProcess)
    await store.commit([creation("t")])
    assert isinstance(store.writer, WriterProcess)
    assert store.writer.process is not None
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (tmp_path / name).rename(tmp_path / f"kept {name}")
    (tmp_path / "journal.db").write_bytes(b"no database" * 1000)
    store.writer.process.kill()
    with pytest.raises(StoreUnavailable, match="gone"):
        await asyncio.gather(*(store.probe() for _ in range(1000)))
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"journal\.db was replaced"):
            await store.probe()
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (tmp_path / f"kept {name}").rename(tmp_path / name)
    await store.probe()
    await store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="flock is apart from POSIX locks only there")
async def test_a_refused_second_store_in_the_process_does_not_drop_the_locks_of_sqlite(
    store: SQLiteStore, tmp_path: Path
) -> None:
    """Closing any descriptor of a file drops the POSIX locks of the whole process on it."""

    def posix_locks() -> list[str]:
        inode = f":{(tmp_path / 'journal.db').stat().st_ino}"
        lines = [line.split(maxsplit=1)[1] for line in Path("/proc/locks").read_text().splitlines()]
        return sorted(line for line in lines if "POSIX" in line and any(inode in word for word in line.split()))

    await store.probe()
    before = posix_locks()
    assert before
    (tmp_path / "journal.lock").unlink()
    with pytest.raises(StoreInUse):
        SQLiteStore(tmp_path)
    assert posix_locks() == before
    await store.probe()


def plans_of(path: Path, query: Callable[[sqlite3.Connection], Any]) -> list[str]:
    """Return the lines of SQLite's plans for the statements that the query reads with."""
    with closing(sqlite3.connect(path)) as connection:
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        query(connection)
        connection.set_trace_callback(None)
        return [
            row[3]
            for statement in statements
            if statement.startswith("SELECT")
            for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
        ]


async def test_what_is_to_be_pruned_is_found_by_walking_indexes(store: SQLiteStore) -> None:
    scopes = [SCOPE._replace(owner=f"{number}", agent=f"{number % 2}") for number in range(60)]
    await store.commit([ended(f"{n}", scope=scope, status_time=n, hidden=n % 3 == 0) for n, scope in enumerate(scopes)])

    def find(connection: sqlite3.Connection) -> None:
        assert len(records.find_prunable(connection, "0", 30, 5, 100)) == 25

    plans = plans_of(store.path, find)
    walked = [plan for plan in plans if " t " in f"{plan} "]
    assert any("tasks_by_state (scope=? AND state=? AND status_time<?)" in plan for plan in walked)
    assert any("tasks_unlisted (scope=? AND state=? AND status_time<?)" in plan for plan in walked)
    assert all(plan.startswith("SEARCH t USING COVERING INDEX") for plan in walked)


async def test_unfinished_tasks_are_found_by_walking_indexes(store: SQLiteStore) -> None:
    plans = plans_of(store.path, lambda connection: records.unfinished(connection, "agent", 10))
    assert [plan for plan in plans if " t " in plan] == [
        "SEARCH t USING COVERING INDEX tasks_by_state (scope=? AND state=?)",
        "SEARCH t USING COVERING INDEX tasks_unlisted (scope=? AND state=?)",
        "SCAN t USING INDEX tasks_active",
    ]


async def test_webhooks_that_are_due_are_found_by_walking_an_index(store: SQLiteStore) -> None:
    plans = plans_of(store.path, lambda connection: pushes.hold_pushes(connection, "me", 10))
    assert "SEARCH pushes USING INDEX pushes_due (due<?)" in plans


async def test_for_a_task_of_someone_else_the_snapshot_is_not_looked_for(store: SQLiteStore) -> None:
    await store.commit([creation("t", snapshot=snapshot("t"))])
    steps: list[int] = []

    def count() -> int:
        steps[-1] += 1
        return 0

    with closing(sqlite3.connect(store.path)) as connection:
        connection.set_progress_handler(count, 1)
        for task_id, owner in (("none", "owner"), ("t", "another"), ("t", "owner")):
            steps.append(0)
            found = tasks.read_task(connection, task_id, owner)
            assert (found is not None) == (task_id == "t" and owner != "another")
    none, others, own = steps
    assert others - none < own - others


async def test_space_is_that_of_the_folder_and_of_the_log(store: SQLiteStore, tmp_path: Path) -> None:
    await store.commit([creation("t")])
    assert store.wal_bytes() == (tmp_path / "journal.db-wal").stat().st_size > 0
    free = store.free_bytes()
    assert free is not None
    assert 0 < free <= shutil.disk_usage(tmp_path).total


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
    store.writer.writer.connection.close()
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
