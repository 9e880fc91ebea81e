"""A backup is the journal at one moment, and is restored completely or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tools.services import Postgres, drop_database, new_database

from roost.engine.ports import Store
from roost.engine.store_types import Append, UsageDelta
from roost.protocol.entries import ARTIFACT, NO_CHAIN, Entry, link
from roost.protocol.types import TaskState
from roost.stores import postgres_backup
from roost.stores.postgres import PostgresStore
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_backup import BackupError, backup_sqlite, restore_sqlite
from roost.stores.sqlite_files import StoreInUse
from roost.stores.sqlite_process import WriterProcess
from roost.stores.sqlite_schema import NewerSchema
from tests.waiting import until

from .conftest import Open
from .samples import SCOPE, addition, audited, config, creation, entry, head, key, reservation, token

TASKS = 8
FUTURE_MS = 2**50


class Chains:
    """Tasks that grow by one entry at a time, each with a valid hash chain."""

    def __init__(self, store: SQLiteStore) -> None:
        self.store = store
        self.last = {f"task {number}": Entry(0, 0, "", b"", 0, 0, NO_CHAIN) for number in range(TASKS)}
        self.rounds = 0

    async def grow(self) -> None:
        group: list[Append] = []
        for name, before in self.last.items():
            seq = before.seq + 1
            data = b"%b %d" % (name.encode(), seq) * 50
            now = Entry(seq, 0, ARTIFACT, data, seq, seq, link(before.chain, seq, 0, ARTIFACT, data, seq, seq))
            group.append(creation(name, now) if seq == 1 else addition(name, now))
            self.last[name] = now
        assert await self.store.commit(group) == [None] * len(group)
        self.rounds += 1

    async def grow_on(self) -> None:
        while True:
            await self.grow()


async def whole(store: SQLiteStore, name: str) -> int:
    """Verify the chain of a task and return its length."""
    chain = NO_CHAIN
    entries = await store.read_entries(name, -1, 1_000_000, wire=False)
    for number, found in enumerate(entries, 1):
        assert found.seq == number
        chain = link(chain, *found[:6])
        assert chain == found.chain
    return len(entries)


async def keep_identities(store: Store) -> None:
    """Return tokens, keys, lines of the audit log, and accounts."""
    await store.add_token(token("a"))
    await store.add_token(token("b"))
    await store.add_key(key("k"), None, 9000)
    await store.add_key(key("l"), "k", 9000)
    await store.revoke_token("a", 2000)
    await store.write_audit([audited(number) for number in range(5)], 3)
    await store.add_usage([UsageDelta(*SCOPE, 2, 300)])


async def same_identities(first: Store, second: Store) -> None:
    """The next rows get the same numbers too."""
    for store in (first, second):
        assert await store.add_token(token("c"))
        await store.write_audit([audited(6)], 100)
    found = await second.read_identities(0)
    assert found == await first.read_identities(0)
    assert (found.version, len(found.tokens), len(found.keys)) == (6, 3, 2)
    assert [line.number for line in await second.read_audit(None, 10)] == [6, 5, 4, 3]
    assert await second.read_audit(None, 10) == await first.read_audit(None, 10)
    assert await second.usage() == await first.usage() == [(SCOPE.agent, 2, 300)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "data", WriterProcess)
    yield made
    await made.close()


@pytest.fixture
async def backup(tmp_path: Path) -> Path:
    """A backup of a journal with something in every table."""
    store = SQLiteStore(tmp_path / "first")
    await store.commit([creation("t", reserve=reservation("m"), push=config("t"), worker="gone"), creation("other")])
    await store.commit([addition("other", entry(2), head=head(TaskState.COMPLETED, worker=None))])
    await keep_identities(store)
    await store.note_served(["gone"])
    backup_sqlite(tmp_path / "first", tmp_path / "kept")
    await store.close()
    return tmp_path / "kept"


async def test_a_backup_taken_while_a_host_writes_is_the_journal_of_one_moment(
    store: SQLiteStore, tmp_path: Path
) -> None:
    chains = Chains(store)
    for _ in range(40):
        await chains.grow()
    writing = asyncio.get_running_loop().create_task(chains.grow_on())
    for number in range(3):
        before = chains.rounds
        await asyncio.to_thread(backup_sqlite, tmp_path / "data", tmp_path / f"backup {number}")
        await until(lambda before=before: chains.rounds > before)  # it goes on meanwhile, and after
        restore_sqlite(tmp_path / f"backup {number}", tmp_path / f"restored {number}")
        restored = SQLiteStore(tmp_path / f"restored {number}")
        lengths = {await whole(restored, name) for name in chains.last}
        assert len(lengths) == 1  # a group is in the backup completely or not at all
        assert before <= lengths.pop() <= chains.rounds + 1
        await restored.close()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_a_backup_is_one_file_that_only_its_owner_may_read(backup: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "kept"]
    assert backup.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(backup) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()
    backup_sqlite(tmp_path / "first", backup)  # once more: the new one takes the place of the old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "kept"]


async def test_what_is_restored_is_all_that_was_backed_up(backup: Path, tmp_path: Path) -> None:
    restore_sqlite(backup, tmp_path / "deep" / "second")
    assert (tmp_path / "deep" / "second" / "journal.db").stat().st_mode & 0o777 == 0o600
    first, second = SQLiteStore(tmp_path / "first"), SQLiteStore(tmp_path / "deep" / "second")
    for name in ("t", "other"):
        assert await second.read_task(name) == await first.read_task(name) is not None
        entries = await first.read_entries(name, -1, 10, wire=False)
        assert await second.read_entries(name, -1, 10, wire=False) == entries
        assert await second.read_pushes(name) == await first.read_pushes(name)
    key = reservation("m").key
    assert await second.read_reserved(key) == await first.read_reserved(key) is not None
    assert [one.task_id for one in await second.adopt("me", ["agent"], 10)] == ["t"]
    await same_identities(first, second)
    await first.close()
    await second.close()


async def test_after_a_restore_no_agent_counts_as_unserved_and_the_file_is_a_whole_one(
    backup: Path, tmp_path: Path
) -> None:
    """The time for which an agent was not served must not grow while the backup lay on a shelf."""
    restore_sqlite(backup, tmp_path / "second")
    assert sorted(path.name for path in (tmp_path / "second").iterdir()) == ["journal.db", "journal.lock"]
    first, second = SQLiteStore(tmp_path / "first"), SQLiteStore(tmp_path / "second")
    assert await first.unserved(FUTURE_MS) == ["agent", "gone"]
    assert await second.unserved(FUTURE_MS) == []
    await second.note_served(["new"])
    assert await second.unserved(FUTURE_MS) == ["agent", "new"]
    await first.close()
    await second.close()


async def test_a_backup_of_an_older_schema_is_restored(backup: Path, tmp_path: Path) -> None:
    with sqlite3.connect(backup) as connection:
        connection.execute("DROP TABLE served_agents")
        connection.execute("UPDATE meta SET value = 4 WHERE key = 'schema'")
    connection.close()
    restore_sqlite(backup, tmp_path / "second")
    second = SQLiteStore(tmp_path / "second")
    assert await second.read_task("t") is not None
    assert await second.unserved(FUTURE_MS) == []
    await second.close()


async def test_a_folder_with_a_journal_is_not_restored_into(backup: Path, tmp_path: Path) -> None:
    used = SQLiteStore(tmp_path / "used")
    await used.commit([creation("mine")])
    with pytest.raises(StoreInUse):
        restore_sqlite(backup, tmp_path / "used", force=True)
    await used.close()
    before = (tmp_path / "used" / "journal.db").read_bytes()
    with pytest.raises(BackupError, match=r"used already has a journal.*--force"):
        restore_sqlite(backup, tmp_path / "used")
    assert (tmp_path / "used" / "journal.db").read_bytes() == before
    assert sorted(path.name for path in (tmp_path / "used").iterdir()) == ["journal.db", "journal.lock"]


@pytest.mark.parametrize("crashed", [False, True])
async def test_by_force_a_journal_is_replaced_with_its_log(backup: Path, tmp_path: Path, crashed: bool) -> None:
    used = SQLiteStore(tmp_path / "used")
    await used.commit([creation(f"mine {number}") for number in range(100)])
    log = (tmp_path / "used" / "journal.db-wal").read_bytes()
    assert log
    await used.close()
    if crashed:  # the log of a host that was killed, with commits that the file does not have
        (tmp_path / "used" / "journal.db-wal").write_bytes(log)
    restore_sqlite(backup, tmp_path / "used", force=True)
    restored = SQLiteStore(tmp_path / "used")
    assert await restored.read_task("t") is not None
    assert await restored.read_task("mine 1") is None
    await restored.commit([creation("goes on")])
    await restored.close()
    restored = SQLiteStore(tmp_path / "used")
    assert await restored.read_task("goes on") is not None
    await restored.close()


async def test_by_force_a_damaged_journal_is_replaced(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
        (tmp_path / "used" / name).write_bytes(b"no database" * 1000)
    restore_sqlite(backup, tmp_path / "used", force=True)
    restored = SQLiteStore(tmp_path / "used")
    assert await restored.read_task("t") is not None
    await restored.close()


async def test_a_journal_that_another_program_reads_is_not_replaced(backup: Path, tmp_path: Path) -> None:
    await SQLiteStore(tmp_path / "used").close()
    reader = sqlite3.connect(tmp_path / "used" / "journal.db")
    reader.execute("SELECT * FROM tasks").fetchall()
    with pytest.raises(BackupError, match=r"another program has .* open"):
        restore_sqlite(backup, tmp_path / "used", force=True)
    reader.close()
    restore_sqlite(backup, tmp_path / "used", force=True)


@pytest.mark.parametrize("size", [0, 50, 4096, -4096, -1])
async def test_a_backup_that_was_cut_off_is_refused_and_the_folder_left_alone(
    backup: Path, tmp_path: Path, size: int
) -> None:
    data = backup.read_bytes()
    backup.write_bytes(data[:size])
    with pytest.raises(BackupError):
        restore_sqlite(backup, tmp_path / "second")
    assert not (tmp_path / "second").exists()


async def test_a_backup_with_a_damaged_page_is_refused(backup: Path, tmp_path: Path) -> None:
    with sqlite3.connect(backup) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'segments_of_task'").fetchone()[0]
    connection.close()
    data = bytearray(backup.read_bytes())
    data[(page - 1) * size : page * size] = b"\xff" * size
    backup.write_bytes(data)
    with pytest.raises(BackupError, match=r"damaged|malformed"):
        restore_sqlite(backup, tmp_path / "second")
    assert not (tmp_path / "second").exists()


async def test_what_is_no_backup_of_ours_is_refused(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="no backup"):
        restore_sqlite(tmp_path / "nothing", tmp_path / "second")
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE theirs (id)")
    connection.close()
    with pytest.raises(BackupError, match="not a journal of Roost"):
        restore_sqlite(tmp_path / "other", tmp_path / "second")
    backup.with_name("kept-wal").write_bytes(b"a part of it")
    with pytest.raises(BackupError, match="a part of it is in kept-wal"):
        restore_sqlite(backup, tmp_path / "second")
    backup.with_name("kept-wal").unlink()
    with sqlite3.connect(backup) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE key = 'version'")
    connection.close()
    with pytest.raises(NewerSchema, match="upgrade Roost"):
        restore_sqlite(backup, tmp_path / "second")
    assert not (tmp_path / "second").exists()


async def test_a_backup_has_no_other_place_than_a_file_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="no journal in"):
        backup_sqlite(tmp_path, tmp_path / "kept")
    await SQLiteStore(tmp_path / "data").close()
    with pytest.raises(BackupError, match="choose another folder"):
        backup_sqlite(tmp_path / "data", tmp_path / "data" / "journal.db")
    with pytest.raises(BackupError, match=r"no secret\.key"):
        backup_sqlite(tmp_path / "data", tmp_path / "kept", include_secret=True)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


async def test_the_secret_goes_along_only_if_it_is_asked_for(tmp_path: Path) -> None:
    await SQLiteStore(tmp_path / "data").close()
    (tmp_path / "data" / "secret.key").write_bytes(b"secret")
    backup_sqlite(tmp_path / "data", tmp_path / "without")
    backup_sqlite(tmp_path / "data", tmp_path / "with", include_secret=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "with", "with.key", "without"]
    assert (tmp_path / "with.key").stat().st_mode & 0o777 == 0o600
    restore_sqlite(tmp_path / "without", tmp_path / "1")
    assert not (tmp_path / "1" / "secret.key").exists()
    restore_sqlite(tmp_path / "with", tmp_path / "2")
    assert (tmp_path / "2" / "secret.key").read_bytes() == b"secret"
    assert (tmp_path / "2" / "secret.key").stat().st_mode & 0o777 == 0o600


async def test_another_secret_is_replaced_by_force_only(tmp_path: Path) -> None:
    await SQLiteStore(tmp_path / "data").close()
    (tmp_path / "data" / "secret.key").write_bytes(b"secret")
    backup_sqlite(tmp_path / "data", tmp_path / "with", include_secret=True)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "secret.key").write_bytes(b"another")
    with pytest.raises(BackupError, match="not the secret of the backup"):
        restore_sqlite(tmp_path / "with", tmp_path / "new")
    assert not (tmp_path / "new" / "journal.db").exists()
    assert (tmp_path / "new" / "secret.key").read_bytes() == b"another"
    restore_sqlite(tmp_path / "with", tmp_path / "new", force=True)
    assert (tmp_path / "new" / "secret.key").read_bytes() == b"secret"


async def test_what_is_restored_into_postgresql_is_all_that_was_backed_up(
    open_store: Open, postgres_server: Postgres, tmp_path: Path, database: str
) -> None:
    first = await open_store()
    await first.commit([creation("t", reserve=reservation("m"), push=config("t"), worker="gone")])
    await keep_identities(first)
    await first.share("worker", b"figures")
    await first.note_served(["gone"])
    await asyncio.to_thread(postgres_backup.back_up, database, tmp_path / "kept")
    url = new_database(postgres_server.url)
    unused = PostgresStore(url)
    await unused.open()
    await unused.note_served(["unused"])
    await unused.close()
    rows = await asyncio.to_thread(postgres_backup.restore, url, tmp_path / "kept")
    assert (rows["tokens"], rows["signing_keys"], rows["audit"], rows["kept"]) == (2, 2, 3, 3)
    second = PostgresStore(url)
    await second.open()
    assert await second.read_task("t") == await first.read_task("t") is not None
    assert await second.read_pushes("t") == await first.read_pushes("t")
    await same_identities(first, second)
    assert await second.share("another", b"") == {}
    assert await first.unserved(FUTURE_MS) == ["agent", "gone"]
    assert await second.unserved(FUTURE_MS) == []
    await second.close()
    drop_database(url)
