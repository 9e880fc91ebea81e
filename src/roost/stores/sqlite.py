"""The journal in one SQLite file: WAL, synchronous=FULL, one writer that commits in groups.

One host process per file: a lock on the file is the lease (sqlite_files.py). Commands beside it have an OfflineStore.

    SQLiteStore -> Ledger -> Writer.commit    sqlite_ledger.py (reservations), sqlite_writer.py (the connection),
                                              in a thread (sqlite_connections.py) or a process (sqlite_process.py)
         '-> reads(query), writes(query)      sqlite_connections.py; the queries with their SQL are in sqlite_tasks.py,
                                              sqlite_pushes.py, sqlite_records.py, sqlite_checkpoints.py,
                                              sqlite_identities.py and sqlite_reservations.py
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path

from roost.engine.checkpoints import Checkpoint, Leaf, Seal, is_due
from roost.engine.stats import summed
from roost.engine.store_types import Adopted, Append, LostTasks, Refusal, Reserved, UsageDelta
from roost.stores import sqlite_checkpoints as checkpoints
from roost.stores import sqlite_identities as identities
from roost.stores import sqlite_pushes as pushes
from roost.stores import sqlite_records as records
from roost.stores import sqlite_reservations as reservations
from roost.stores import sqlite_schema
from roost.stores import sqlite_tasks as tasks
from roost.stores.sqlite_checkpoints import AT_ONCE, Page
from roost.stores.sqlite_connections import Readers, SQLiteConnections, Writer, WriterThread, reads, writes
from roost.stores.sqlite_files import JOURNAL, JournalLock
from roost.stores.sqlite_ledger import Ledger
from roost.stores.sqlite_writer import connect, reason

READERS = 2
PRUNED_AT_ONCE = 50
"""Tasks that are deleted in one transaction, for which commits have to wait."""


class StoreBroken(Exception):
    """The journal cannot be opened; the message says what to do."""


class SQLiteAdminStore(SQLiteConnections):
    """The methods that need no lock on the folder."""

    def __init__(self, folder: Path, readers: Readers, writer: Writer) -> None:
        super().__init__(readers, writer)
        self.folder = folder
        self.path = folder / JOURNAL
        self.location = str(self.path)

    async def open(self) -> None:
        """Do nothing: the constructor has opened the file, or raised an error."""

    async def close(self) -> None:
        await self.writer.close()
        self.readers.close()

    # Journal

    read_task = reads(tasks.read_task)
    read_entries = reads(tasks.read_entries)
    read_internal = reads(tasks.read_internal)
    read_updates = reads(tasks.read_updates)
    list_tasks = reads(tasks.list_tasks)

    # Push configs

    put_push = writes(pushes.put_push)
    read_pushes = reads(pushes.read_pushes)
    delete_push = writes(pushes.delete_push)
    hold_pushes = writes(pushes.hold_pushes)
    move_pushes = writes(pushes.move_pushes)
    list_pushes = reads(pushes.list_pushes)
    list_dead = reads(pushes.list_dead)
    retry_pushes = writes(pushes.retry_pushes)
    outbox = reads(pushes.outbox)

    # Records

    agents = reads(records.agents)
    unserved = reads(records.unserved)
    unfinished = reads(records.unfinished)
    read_tombstone = reads(records.read_tombstone)
    add_usage = writes(records.add_usage)
    usage = reads(records.usage)
    stored_bytes = reads(records.stored_bytes)
    oldest = reads(records.oldest)

    async def note_served(self, agents: Sequence[str]) -> None:
        await self.writer.do(records.note_served, list(agents), await self.agents())

    async def prune(self, agent: str, before_ms: int | None, keep: int | None, limit: int) -> list[UsageDelta]:
        prunable = await self.readers.do(records.find_prunable, agent, before_ms, keep, limit)
        deleted: list[UsageDelta] = []
        for start in range(0, len(prunable), PRUNED_AT_ONCE):
            deleted += await self.writer.do(records.prune_tasks, prunable[start : start + PRUNED_AT_ONCE])
        return summed(deleted)

    async def prune_task(self, agent: str, task_id: str) -> list[UsageDelta]:
        prunable = await self.readers.do(records.find_one_prunable, agent, task_id)
        return summed(await self.writer.do(records.prune_tasks, prunable)) if prunable else []

    def free_bytes(self) -> int | None:
        space = os.statvfs(self.folder)
        return space.f_bavail * space.f_frsize

    def wal_bytes(self) -> int | None:
        try:
            return self.path.with_name(f"{JOURNAL}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    # Checkpoints

    read_checkpoints = reads(checkpoints.read_checkpoints)
    read_leaves = reads(checkpoints.read_leaves)
    walk_leaves = reads(checkpoints.walk_leaves)
    scan_tasks = reads(checkpoints.scan_tasks)
    scan_tombstones = reads(checkpoints.scan_tombstones)
    read_segments = reads(checkpoints.read_segments)

    async def make_checkpoint(self, seal: Seal, unless_after: int | None = None) -> Checkpoint | None:
        with checkpoints.only_maker(self.folder):
            last = await self.readers.do(checkpoints.last_checkpoint)
            if not is_due(last, unless_after):
                return None
            number = 1 if last is None else last.number + 1
            while await self.writer.do(checkpoints.drop_drafts, number, AT_ONCE):
                pass
            for find in (checkpoints.moved_tasks, checkpoints.moved_tombstones):
                await self._draft(number, find)
            made = await seal(last, self._leaves(number))
            await self.writer.do(checkpoints.add_checkpoint, made)
            return made

    async def _draft(self, number: int, find: Callable[[sqlite3.Connection, str], Page]) -> None:
        after: str | None = ""
        while after is not None:
            leaves, after = await self.readers.do(find, after)
            for start in range(0, len(leaves), AT_ONCE):
                await self.writer.do(checkpoints.draft_leaves, number, leaves[start : start + AT_ONCE])

    async def _leaves(self, number: int) -> AsyncIterator[Leaf]:
        after = ""
        while some := await self.read_leaves(number, after, AT_ONCE):
            for leaf in some:
                yield leaf
            after = some[-1].task_id

    # Identities

    read_identities = reads(identities.read_identities)
    add_token = writes(identities.add_token)
    revoke_token = writes(identities.revoke_token)
    add_key = writes(identities.add_key)
    retire_key = writes(identities.retire_key)
    write_audit = writes(identities.write_audit)
    read_audit = reads(identities.read_audit)

    async def share(self, worker: str, figures: bytes) -> dict[str, bytes]:
        return {}


class SQLiteStore(SQLiteAdminStore):
    """The store of a host, which has the journal to itself."""

    name = "sqlite"
    shared = False

    def __init__(self, folder: Path, open_writer: Callable[[Path, JournalLock], Writer] = WriterThread) -> None:
        path = folder / JOURNAL
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.lock = JournalLock(folder)
        except OSError as error:
            raise StoreBroken(f"{error}. Choose another folder with --data") from error
        try:
            reserved = _prepare(path)
            readers = _open_readers(path, READERS)
            try:
                super().__init__(folder, readers, open_writer(path, self.lock))
            except BaseException:
                readers.close()
                raise
        except BaseException:
            self.lock.close()
            raise
        self.ledger = Ledger(self.readers, self.writer, reserved)
        self.to_cancel: set[str] = set()
        self.lost_tasks = LostTasks()
        self.survived: set[str] = set()
        """Names of this process. Leases do not end here, and every worker of an earlier process is dead."""

    async def close(self) -> None:
        await super().close()
        self.lock.close()

    # Journal

    probe = writes(tasks.probe)

    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        return await self.ledger.commit(group)

    # Leases: the lock on the file is the only one

    leave = writes(tasks.leave)
    adopt_task = writes(tasks.adopt_task)
    mine = reads(tasks.mine)

    async def adopt(self, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
        return self.lost_tasks.remember(await self.writer.do(tasks.adopt, worker, agents, limit))

    async def renew(self, worker: str, ttl_s: float) -> bool:
        return True

    async def survive(self, worker: str) -> None:
        self.survived.add(worker)

    async def survivors(self, workers: Sequence[str]) -> list[str]:
        return [worker for worker in workers if worker in self.survived]

    async def take_turn(self, task_id: str) -> str | None:
        return None

    async def ask_cancel(self, task_id: str) -> None:
        self.to_cancel.add(task_id)

    async def asked_to_cancel(self, worker: str) -> list[str]:
        active = await self.readers.do(tasks.active_of, list(self.to_cancel))
        self.to_cancel.intersection_update(active)
        return [task_id for task_id, holder in active.items() if holder == worker]

    # Reservations

    async def read_reserved(self, key: bytes) -> Reserved | None:
        return await self.ledger.read(key)

    async def drop_reservations(self, most: int) -> int:
        return await self.ledger.drop(most)


class OfflineStore(SQLiteAdminStore):
    """The journal in a folder for commands, beside the host that may be running on it.

    It takes no lock and commits no entries: only the host does. The folder must have a journal of this schema.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / JOURNAL
        if not path.exists():
            raise StoreBroken(f"there is no journal in {folder}. Set its folder with --data")
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                found = sqlite_schema.schema_of(connection)
        except sqlite_schema.NotAJournal as error:
            raise StoreBroken(f"{path}: {error}") from error
        except sqlite3.Error as error:
            raise StoreBroken(reason(path, error)) from error
        if found != sqlite_schema.VERSION:
            raise StoreBroken(
                f"{path} was written by another release of Roost. Start `roost serve` on it once to migrate it"
            )
        readers = _open_readers(path, 1)
        try:
            super().__init__(folder, readers, WriterThread(path))
        except BaseException:
            readers.close()
            raise


def _open_readers(path: Path, count: int) -> Readers:
    try:
        return Readers(path, count)
    except sqlite3.Error as error:
        raise StoreBroken(f"cannot read {reason(path, error)}") from error


def _prepare(path: Path) -> dict[bytes, int]:
    """Make an empty file a journal, or migrate it, and return its reservations. A foreign file stays as it is."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            sqlite_schema.schema_of(connection)
        with closing(connect(path)) as connection:
            sqlite_schema.migrate(connection)
            return reservations.load_keys(connection)
    except (OSError, sqlite_schema.NotAJournal) as error:
        raise StoreBroken(f"cannot use {path}: {error}. Choose another folder with --data") from error
    except sqlite3.Error as error:
        raise StoreBroken(f"cannot use {reason(path, error)}. Or choose another folder with --data") from error
