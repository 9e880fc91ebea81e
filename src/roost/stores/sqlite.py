"""The journal in one SQLite file: WAL, synchronous=FULL, one writer that commits in groups.

One host process per file: an flock on `journal.lock` is the lease. The writer has a thread
and a connection of its own; readers have theirs and hold no transaction between calls.
Rows go in with multi-row statements: one statement is one hand-over of the interpreter
lock, and with one per row the writer waits for the event loop at each of them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from roost.engine.ports import (
    COUNT_CAP,
    Append,
    Head,
    Listed,
    ListQuery,
    NewTask,
    Scope,
    Snapshot,
    StaleFence,
    Stored,
    StoreUnavailable,
)
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores import schema
from roost.stores.schema import CODE_OF, STATE_OF

T = TypeVar("T")

READERS = 2
CHUNKS = (256, 64, 16, 4, 1)
ENTRY_COLUMNS = "seq, sub, kind, data, time, ordinal, chain"
TASK_COLUMNS = (
    "id, tenant, owner, agent, context_id, created, state, status_time, worker, fence, hidden,"
    " snapshot_seq, snapshot_sub, body"
)


class StoreInUse(Exception):
    """Another host process has the journal open."""


class SQLiteStore:
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "journal.db"
        self.location = str(self.path)
        self.lock = _lock(folder / "journal.lock")
        try:
            self.writer = _connect(self.path)
            schema.migrate(self.writer)
        except BaseException:
            os.close(self.lock)
            raise
        self.writing = ThreadPoolExecutor(1, thread_name_prefix="sqlite-writer")
        self.reading = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-reader")
        self.local = threading.local()
        self.connections: list[sqlite3.Connection] = []

    async def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        return await self._write(self._commit, group)

    async def claim(self, task_id: str, worker: str, fence: int) -> int | None:
        return await self._write(self._claim, task_id, worker, fence)

    async def probe(self) -> None:
        await self._write(self._probe)

    async def read_task(self, task_id: str) -> Stored | None:
        return await self._read(self._read_task, task_id)

    async def read_entries(self, task_id: str, after: int, limit: int, *, wire: bool) -> list[Entry]:
        return await self._read(self._read_entries, task_id, after, limit, wire)

    async def read_internal(self, task_id: str) -> list[Entry]:
        return await self._read(self._read_internal, task_id)

    async def list_tasks(self, query: ListQuery) -> Listed:
        return await self._read(self._list_tasks, query)

    async def orphans(self, worker: str, agents: Sequence[str], limit: int) -> list[str]:
        return await self._read(self._orphans, worker, agents, limit)

    async def close(self) -> None:
        self.writing.shutdown()
        self.reading.shutdown()
        for connection in self.connections:
            connection.close()
        self.writer.close()
        os.close(self.lock)

    # On the writer's thread

    async def _write(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.writing, self._transaction, work, *args)

    def _transaction(self, work: Callable[..., T], *args: Any) -> T:
        try:
            self.writer.execute("BEGIN IMMEDIATE")
            result = work(*args)
            self.writer.execute("COMMIT")
        except sqlite3.Error as error:
            self._reopen()
            raise StoreUnavailable(f"{self.path}: {error}") from error
        return result

    def _reopen(self) -> None:
        """After a failed commit nothing that the connection believes is to be trusted."""
        try:
            self.writer.close()
            self.writer = _connect(self.path)
        except sqlite3.Error:
            return

    def _commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        results: list[StaleFence | None] = [None] * len(group)
        stale = self._stale([append for append in group if append.create is None])
        if stale:
            results = [StaleFence(a.task_id) if a.create is None and a.task_id in stale else None for a in group]
            group = [append for append, refusal in zip(group, results, strict=True) if refusal is None]
        self._insert_tasks(group)
        self._insert("entries", 8, [(append.task_id, *entry) for append in group for entry in append.entries])
        self._update_heads(group)
        self._update_snapshots(group)
        return results

    def _stale(self, group: list[Append]) -> set[str]:
        found: set[str] = set()
        for rows in _chunks([(append.task_id, append.fence) for append in group]):
            sql = (
                f"SELECT v.column1 FROM ({_values(2, len(rows))}) v LEFT JOIN tasks t ON t.id = v.column1"
                " WHERE t.fence IS NOT v.column2"
            )
            found.update(row[0] for row in self.writer.execute(sql, _flat(rows)))
        return found

    def _insert_tasks(self, group: Sequence[Append]) -> None:
        rows = []
        for append in group:
            new, head, snapshot = append.create, append.head, append.snapshot
            if new is None or head is None:
                continue
            snap = (None, None, None, None) if snapshot is None else snapshot
            rows.append((new.id, *new.scope, new.context_id, new.created, *_head(head), *snap))
        self._insert("tasks", 15, rows)

    def _insert(self, table: str, width: int, rows: list[tuple[Any, ...]]) -> None:
        """A row that is there already is this commit's own: an earlier try whose answer was lost."""
        for some in _chunks(rows):
            self.writer.execute(f"INSERT INTO {table} {_values(width, len(some))} ON CONFLICT DO NOTHING", _flat(some))

    def _update_heads(self, group: Sequence[Append]) -> None:
        rows = [(a.task_id, *_head(a.head)) for a in group if a.head is not None and a.create is None]
        for some in _chunks(rows):
            self.writer.execute(
                "UPDATE tasks SET state = v.column2, status_time = v.column3, worker = v.column4,"
                " fence = v.column5, hidden = v.column6"
                f" FROM ({_values(6, len(some))}) v WHERE tasks.id = v.column1",
                _flat(some),
            )

    def _update_snapshots(self, group: Sequence[Append]) -> None:
        rows = [(a.task_id, *a.snapshot) for a in group if a.snapshot is not None and a.create is None]
        for some in _chunks(rows):
            self.writer.execute(
                "UPDATE tasks SET snapshot_seq = v.column2, snapshot_sub = v.column3, body = v.column4,"
                f" artifacts = v.column5 FROM ({_values(5, len(some))}) v WHERE tasks.id = v.column1",
                _flat(some),
            )

    def _claim(self, task_id: str, worker: str, fence: int) -> int | None:
        done = self.writer.execute(
            "UPDATE tasks SET worker = ?, fence = fence + 1 WHERE id = ? AND fence = ?", (worker, task_id, fence)
        )
        return fence + 1 if done.rowcount == 1 else None

    def _probe(self) -> None:
        self.writer.execute("UPDATE meta SET value = value + 1 WHERE key = 'probes'")

    # On a reader's thread

    async def _read(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.reading, self._guarded, work, *args)

    def _guarded(self, work: Callable[..., T], *args: Any) -> T:
        try:
            return work(*args)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error

    @property
    def reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = _connect(self.path)
            connection.execute("PRAGMA query_only = 1")
            self.connections.append(connection)
        return connection

    def _read_task(self, task_id: str) -> Stored | None:
        row = self.reader.execute(f"SELECT {TASK_COLUMNS}, artifacts FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return None if row is None else _stored(row)

    def _read_entries(self, task_id: str, after: int, limit: int, wire: bool) -> list[Entry]:
        which = "seq > ? AND sub = 0" if wire else "(seq, sub) > (?, 0)"
        rows = self.reader.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE task_id = ? AND {which} ORDER BY seq, sub LIMIT ?",
            (task_id, after, limit),
        )
        return [Entry(*row) for row in rows]

    def _read_internal(self, task_id: str) -> list[Entry]:
        rows = self.reader.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE task_id = ? AND sub > 0 ORDER BY seq, sub", (task_id,)
        )
        return [Entry(*row) for row in rows]

    def _list_tasks(self, query: ListQuery) -> Listed:
        where = "tenant = ? AND owner = ? AND agent = ? AND hidden = 0"
        args: list[Any] = [*query.scope]
        if query.context_id:
            where += " AND context_id = ?"
            args.append(query.context_id)
        if query.state is not TaskState.UNSPECIFIED:
            where += " AND state = ?"
            args.append(CODE_OF[query.state])
        if query.after is not None:
            where += " AND status_time >= ?"
            args.append(query.after.timestamp() * 1000)
        total: int = self.reader.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM tasks WHERE {where} LIMIT {COUNT_CAP})", args
        ).fetchone()[0]
        if query.cursor is not None:
            status_time, task_id = query.cursor
            where += " AND status_time <= ? AND (status_time < ? OR id > ?)"
            args += [status_time, status_time, task_id]
        artifacts = "artifacts" if query.artifacts else "NULL"
        rows = self.reader.execute(
            f"SELECT {TASK_COLUMNS}, {artifacts} FROM tasks WHERE {where} ORDER BY status_time DESC, id LIMIT ?",
            [*args, query.limit],
        )
        return Listed([_stored(row) for row in rows], total)

    def _orphans(self, worker: str, agents: Sequence[str], limit: int) -> list[str]:
        marks = ",".join("?" * len(agents))
        rows = self.reader.execute(
            "SELECT id FROM tasks WHERE state IN (1, 2) AND worker IS NOT ?"
            f" AND agent IN ({marks}) ORDER BY created, id LIMIT ?",
            (worker, *agents, limit),
        )
        return [row[0] for row in rows]


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000", "cache_size = -32000"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _lock(path: Path) -> int:
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise StoreInUse(
            f"{path.parent} is in use by another roost process. Stop it, or choose another folder with --data."
        ) from None
    return handle


def _head(head: Head) -> tuple[int, int, str | None, int, int]:
    return CODE_OF[head.state], head.status_time, head.worker, head.fence, int(head.hidden)


def _stored(row: tuple[Any, ...]) -> Stored:
    new = NewTask(row[0], Scope(row[1], row[2], row[3]), row[4], row[5])
    head = Head(STATE_OF[row[6]], row[7], row[8], row[9], bool(row[10]))
    snapshot = None if row[13] is None else Snapshot(row[11], row[12], row[13], row[14] or b"[]")
    return Stored(new, head, snapshot)


def _chunks(rows: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Cut into few sizes, so that few statements have to be prepared."""
    found, at = [], 0
    for size in CHUNKS:
        while len(rows) - at >= size:
            found.append(rows[at : at + size])
            at += size
    return found


def _values(width: int, rows: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return "VALUES " + ",".join([row] * rows)


def _flat(rows: list[tuple[Any, ...]]) -> list[Any]:
    return list(chain.from_iterable(rows))
