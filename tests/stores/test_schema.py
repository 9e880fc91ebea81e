"""Files of other releases: older ones are migrated, and newer ones are used if they allow it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from roost.engine.stats import size_of
from roost.engine.store_types import UsageDelta
from roost.identity.ports import now_ms
from roost.protocol.types import TaskState
from roost.stores import sqlite_schema
from roost.stores.sqlite import SQLiteStore, StoreBroken
from roost.stores.sqlite_schema import NewerSchema

from .samples import SCOPE, creation, ended, entry, query, reservation, token

RELEASE_1_TRIGGER = (
    """CREATE TEMP VIEW appends AS SELECT NULL AS task_id, NULL AS state, NULL AS status_time, NULL AS worker,
        NULL AS fence, NULL AS hidden, NULL AS place, NULL AS scope, NULL AS context_id, NULL AS created,
        NULL AS last_seq, NULL AS last_sub, NULL AS internal, NULL AS entries, NULL AS body, NULL AS artifacts""",
    """CREATE TEMP TRIGGER append INSTEAD OF INSERT ON appends WHEN NEW.task_id IS NOT NULL BEGIN
        INSERT OR IGNORE INTO tasks
            SELECT NEW.task_id, NEW.scope, NEW.context_id, NEW.created, NEW.state, NEW.status_time, NEW.worker,
                NEW.fence, NEW.hidden, NEW.place
            WHERE NEW.created IS NOT NULL;
        UPDATE tasks SET state = NEW.state, status_time = NEW.status_time, worker = NEW.worker, fence = NEW.fence,
                hidden = NEW.hidden, place = NEW.place
            WHERE id = NEW.task_id AND NEW.created IS NULL AND NEW.state IS NOT NULL;
        INSERT OR IGNORE INTO segments
            SELECT NEW.task_id, NEW.last_seq, NEW.last_sub, NEW.internal, NEW.entries, NEW.body, NEW.artifacts
            WHERE NEW.entries IS NOT NULL;
    END""",
)
"""The statements with which release 0.1.0 writes. Its migration only checks that `version` is at most 1."""
RELEASE_1_STALE = (
    "SELECT v.column1 FROM (VALUES (?,?)) v LEFT JOIN tasks t ON t.id = v.column1"
    " WHERE t.fence IS NOT v.column2 AND v.column1 IS NOT NULL"
)


def release_1(path: Path) -> None:
    """Make a file as release 0.1.0 does."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        for statement in sqlite_schema.MIGRATIONS[0]:
            connection.execute(statement)
        connection.commit()


def meta(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT key, value FROM meta"))


def tables(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT name, sql FROM sqlite_master"))


def release_1_writes(path: Path, task_id: str, scope: int) -> None:
    """Write a task that is accepted, and a direct exchange that begins and ends."""
    segment = msgspec.msgpack.encode([entry(0, 1), entry(1)])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0] <= 1
        for statement in RELEASE_1_TRIGGER:
            connection.execute(statement)
        insert = f"INSERT INTO appends VALUES ({','.join('?' * 16)}),({','.join('?' * 16)})"
        accepted = (task_id, 1, 1000, "worker", 1, 0, 0, scope, "context", 1, 1, 0, 1, segment, None, None)
        direct = (f"{task_id} direct", 2, 1000, "worker", 1, 1, 0, scope, "context", 1, 1, 0, 1, segment, None, None)
        connection.execute(insert, (*accepted, *direct))
        for name in (task_id, f"{task_id} direct"):
            assert connection.execute(RELEASE_1_STALE, (name, 1)).fetchall() == []
        nothing = (None,) * 16
        over = (f"{task_id} direct", 3, 1001, None, 1, 1, 2, *(None,) * 9)
        connection.execute(insert, (*over, *nothing))
        claimed = connection.execute(
            "UPDATE tasks SET worker = ?, fence = fence + 1 WHERE id = ? AND fence = ?", ("other", task_id, 1)
        )
        assert claimed.rowcount == 1


async def test_a_file_of_release_1_is_migrated_and_is_like_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    release_1(tmp_path / "old" / "journal.db")
    for name in ("old", "new"):
        store = SQLiteStore(tmp_path / name)
        assert await store.commit([creation("t", reserve=reservation("m"))]) == [None]
        await store.close()
    assert tables(tmp_path / "old" / "journal.db") == tables(tmp_path / "new" / "journal.db")
    for name in ("old", "new"):
        assert meta(tmp_path / name / "journal.db") == {"version": 1, "schema": 5, "probes": 0, "identities": 0}


async def test_what_release_1_wrote_is_read_after_the_migration(tmp_path: Path) -> None:
    release_1(tmp_path / "journal.db")
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        connection.execute("INSERT INTO scopes VALUES (1, 'tenant', 'owner', 'agent')")
        connection.commit()
    release_1_writes(tmp_path / "journal.db", "t", 1)
    store = SQLiteStore(tmp_path)
    found = await store.read_task("t")
    assert found is not None
    assert (found.new.scope, found.head.worker, found.head.fence) == (SCOPE, "other", 2)
    assert await store.read_entries("t", -1, 10, wire=False) == [entry(0, 1), entry(1)]
    assert len(await store.prune("agent", 2000, None, 10)) == 1
    assert await store.read_task("t direct") is None
    await store.close()


async def test_release_1_goes_on_with_a_file_that_was_migrated_and_this_one_after_it(tmp_path: Path) -> None:
    """An upgrade can be undone."""
    store = SQLiteStore(tmp_path)
    await store.commit([creation("mine", reserve=reservation("m"), status_time=2000), ended("over", status_time=500)])
    assert len(await store.prune("agent", 600, None, 10)) == 1
    await store.close()
    release_1_writes(tmp_path / "journal.db", "theirs", 1)
    store = SQLiteStore(tmp_path)
    assert [stored.new.id for stored in (await store.list_tasks(query())).tasks] == ["mine", "theirs"]
    assert [one.task_id for one in await store.adopt("me", ["agent"], 10)] == ["mine", "theirs"]
    assert await store.commit([creation("new", status_time=3000)]) == [None]
    assert len(await store.prune("agent", 2000, None, 10)) == 1
    tombstone = await store.read_tombstone("theirs direct")
    assert tombstone is not None
    assert (tombstone.state, tombstone.seq, tombstone.chain) == (TaskState.COMPLETED, 1, entry(1).chain)
    await store.close()


async def test_a_file_of_schema_2_gets_accounts_of_what_is_in_it_and_its_release_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    release_1(path)
    with closing(sqlite3.connect(path)) as connection:
        for statement in sqlite_schema.MIGRATIONS[1]:
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('schema', 2)")
        connection.execute("INSERT INTO scopes VALUES (1, 'tenant', 'owner', 'agent'), (2, 'tenant', 'other', 'agent')")
        connection.execute("INSERT INTO usage VALUES ('agent', 2, 10)")
        connection.commit()
    release_1_writes(path, "t", 1)
    release_1_writes(path, "u", 2)
    store = SQLiteStore(tmp_path)
    size = 4 * size_of(creation("t"))
    assert await store.usage() == [("agent", 4, size)]
    assert await store.stored_bytes([("tenant", "tenant"), ("owner", "owner"), ("owner", "other")]) == [
        size,
        size / 2,
        size / 2,
    ]
    went = await store.prune("agent", 2000, None, 10)
    assert went == [
        UsageDelta("tenant", "other", "agent", 1, size // 4),
        UsageDelta("tenant", "owner", "agent", 1, size // 4),
    ]
    assert await store.usage() == [("agent", 2, size // 2)]
    assert await store.add_token(token("a"))
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone() == (1,)
        connection.execute("UPDATE usage SET tasks = tasks + 1")
        connection.commit()
    store = SQLiteStore(tmp_path)
    assert (await store.read_identities(0)).tokens == [token("a")]
    assert await store.usage() == [("agent", 2, size // 2)]
    await store.close()


async def test_the_agents_of_a_file_of_schema_4_count_as_served_now_and_its_release_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    release_1(path)
    with closing(sqlite3.connect(path)) as connection:
        for statement in (statement for step in sqlite_schema.MIGRATIONS[1:4] for statement in step):
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('schema', 4)")
        connection.execute("INSERT INTO scopes VALUES (1, 'tenant', 'owner', 'agent')")
        connection.commit()
    release_1_writes(path, "t", 1)
    before = now_ms()
    store = SQLiteStore(tmp_path)
    assert await store.unserved(2**50) == []
    await store.note_served(["new"])
    assert await store.unserved(before) == []
    assert await store.unserved(2**50) == ["agent", "new"]
    await store.leave("other")
    assert await store.unfinished("agent", 10) == ["t"]
    await store.close()
    assert meta(path) == {"version": 1, "schema": 5, "probes": 0, "identities": 0}
    release_1_writes(path, "u", 1)
    store = SQLiteStore(tmp_path)
    assert [one.task_id for one in await store.adopt("me", ["agent"], 10)] == ["t", "u"]
    assert await store.unserved(2**50) == ["agent", "new"]
    await store.close()


async def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release_1(tmp_path / "journal.db")
    before = tables(tmp_path / "journal.db"), meta(tmp_path / "journal.db")
    with monkeypatch.context() as patched:
        patched.setattr(
            sqlite_schema,
            "MIGRATIONS",
            (*sqlite_schema.MIGRATIONS[:-1], (*sqlite_schema.MIGRATIONS[-1], "CREATE TABLE tasks (id)")),
        )
        for _ in range(2):
            with pytest.raises(StoreBroken, match="already exists"):
                SQLiteStore(tmp_path)
    assert (tables(tmp_path / "journal.db"), meta(tmp_path / "journal.db")) == before
    await SQLiteStore(tmp_path).close()


def set_meta(path: Path, **values: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany("REPLACE INTO meta VALUES (?, ?)", values.items())
        connection.commit()


async def test_a_file_that_only_newer_code_can_work_with_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    await SQLiteStore(tmp_path).close()
    set_meta(tmp_path / "journal.db", version=6, schema=7)
    before = (tmp_path / "journal.db").read_bytes()
    for _ in range(2):  # refused again, and not "in use": the lock was released
        with pytest.raises(NewerSchema, match=r"schema 6.*knows 5.*upgrade Roost"):
            SQLiteStore(tmp_path)
    assert (tmp_path / "journal.db").read_bytes() == before


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
async def test_a_file_of_a_newer_release_that_allows_it_is_used_as_it_is(tmp_path: Path, version: int) -> None:
    await SQLiteStore(tmp_path).close()
    set_meta(tmp_path / "journal.db", version=version, schema=7)
    store = SQLiteStore(tmp_path)
    assert await store.commit([creation("t", reserve=reservation("m"))]) == [None]
    assert await store.read_task("t") is not None
    await store.close()
    assert meta(tmp_path / "journal.db") == {"version": version, "schema": 7, "probes": 0, "identities": 0}


async def test_somebody_elses_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        connection.execute("CREATE TABLE theirs (id)")
    before = (tmp_path / "journal.db").read_bytes()
    with pytest.raises(StoreBroken, match=r"not a journal of Roost.*--data"):
        SQLiteStore(tmp_path)
    assert (tmp_path / "journal.db").read_bytes() == before
