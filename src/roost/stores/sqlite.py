"""The journal in one SQLite file: WAL, synchronous=FULL, one writer that commits in groups.

One host process per file: an flock on `journal.lock` is the lease. The writer (sqlite_writer.py)
has a connection of its own, in a process or a thread; readers have theirs and hold no
transaction between calls.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

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
from roost.stores.schema import ACTIVE, CODE_OF, LISTED, STATE_OF
from roost.stores.sqlite_process import ProcessCarrier
from roost.stores.sqlite_thread import ThreadCarrier
from roost.stores.sqlite_writer import connect

T = TypeVar("T")

READERS = 2
LOCK_WAIT_S = 2.0
TASK = "t.id, t.scope, t.context_id, t.created, t.state, t.status_time, t.worker, t.fence, t.hidden"
SNAPSHOT = (
    "SELECT rowid FROM segments WHERE task_id = t.id AND body IS NOT NULL ORDER BY last_seq DESC, last_sub DESC LIMIT 1"
)
SETTLED = [code for code in STATE_OF if code > 2]

decode_segment = msgspec.msgpack.Decoder(list[Entry]).decode


class StoreInUse(Exception):
    """Another host process has the journal open."""


class SQLiteStore:
    name = "sqlite"

    def __init__(self, folder: Path, carrier: type[ThreadCarrier] | type[ProcessCarrier] = ThreadCarrier) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = folder / "journal.db"
        self.location = str(self.path)
        self.lock = _lock(folder / "journal.lock")
        try:
            self.path.touch(mode=0o600)
            connection = connect(self.path)
            schema.migrate(connection)
        except BaseException:
            os.close(self.lock)
            raise
        connection.close()
        self.carrier = carrier(self.path, self.lock)
        self.reading = ThreadPoolExecutor(READERS, thread_name_prefix="sqlite-reader")
        self.local = threading.local()
        self.connections: list[sqlite3.Connection] = []
        self.scopes: dict[int, Scope] = {}

    async def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        results: list[StaleFence | None] = await self.carrier.do("commit", group)
        return results

    async def claim(self, task_id: str, worker: str, fence: int) -> int | None:
        taken: int | None = await self.carrier.do("claim", task_id, worker, fence)
        return taken

    async def probe(self) -> None:
        await self.carrier.do("probe")

    async def read_task(self, task_id: str) -> Stored | None:
        return await self._read(self._read_task, task_id)

    async def read_entries(self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0) -> list[Entry]:
        return await self._read(self._read_entries, task_id, after, limit, wire, sub)

    async def read_internal(self, task_id: str) -> list[Entry]:
        return await self._read(self._read_internal, task_id)

    async def list_tasks(self, query: ListQuery) -> Listed:
        return await self._read(self._list_tasks, query)

    async def orphans(self, worker: str, agents: Sequence[str], limit: int) -> list[str]:
        return await self._read(self._orphans, worker, agents, limit)

    async def close(self) -> None:
        await self.carrier.close()
        self.reading.shutdown()
        for connection in self.connections:
            connection.close()
        os.close(self.lock)

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
            connection = self.local.connection = connect(self.path)
            connection.execute("PRAGMA query_only = 1")
            self.connections.append(connection)
        return connection

    def _read_task(self, task_id: str) -> Stored | None:
        row = self.reader.execute(
            f"SELECT {TASK}, s.last_seq, s.last_sub, s.body, s.artifacts"
            f" FROM tasks t LEFT JOIN segments s ON s.rowid = ({SNAPSHOT}) WHERE t.id = ?",
            (task_id,),
        ).fetchone()
        return None if row is None else self._stored(row)

    def _read_entries(self, task_id: str, after: int, limit: int, wire: bool, sub: int) -> list[Entry]:
        found: list[Entry] = []
        rows = self.reader.execute(
            "SELECT entries FROM segments WHERE task_id = ? AND (last_seq, last_sub) > (?, ?)"
            " ORDER BY last_seq, last_sub",
            (task_id, after, sub),
        )
        for (blob,) in rows:
            for entry in decode_segment(blob):
                if (entry.seq, entry.sub) > (after, sub) and (not wire or entry.sub == 0):
                    found.append(entry)
            if len(found) >= limit:
                rows.close()
                break
        return found[:limit]

    def _read_internal(self, task_id: str) -> list[Entry]:
        rows = self.reader.execute(
            "SELECT entries FROM segments WHERE task_id = ? AND internal = 1 ORDER BY last_seq, last_sub", (task_id,)
        )
        return [entry for (blob,) in rows for entry in decode_segment(blob) if entry.sub]

    def _list_tasks(self, query: ListQuery) -> Listed:
        found = self.reader.execute(
            "SELECT id FROM scopes WHERE tenant = ? AND owner = ? AND agent = ?", query.scope
        ).fetchone()
        if found is None:
            return Listed([], 0)
        where, args = _filters(query, found[0])
        rows: list[tuple[Any, ...]] = []
        total = 0
        for part in _parts(query):
            count = self.reader.execute(
                f"SELECT count(*) FROM (SELECT 1 FROM tasks t WHERE {part} AND {where} LIMIT {COUNT_CAP})", args
            ).fetchone()[0]
            if count:
                total += count
                rows += self._page(query, f"{part} AND {where}", args)
        rows.sort(key=lambda row: (-row[5], row[0]))
        return Listed([self._stored(row) for row in rows[: query.limit]], min(total, COUNT_CAP))

    def _page(self, query: ListQuery, where: str, args: list[Any]) -> list[tuple[Any, ...]]:
        if query.cursor is not None:
            status_time, task_id = query.cursor
            where += " AND status_time <= ? AND (status_time < ? OR id > ?)"
            args = [*args, status_time, status_time, task_id]
        artifacts = "s.artifacts" if query.artifacts else "NULL"
        return self.reader.execute(
            f"SELECT {TASK}, s.last_seq, s.last_sub, s.body, {artifacts} FROM ("
            f"SELECT * FROM tasks t WHERE {where} ORDER BY status_time DESC, id LIMIT ?"
            f") t LEFT JOIN segments s ON s.rowid = ({SNAPSHOT})",
            [*args, query.limit],
        ).fetchall()

    def _orphans(self, worker: str, agents: Sequence[str], limit: int) -> list[str]:
        marks = ",".join("?" * len(agents))
        rows = self.reader.execute(
            f"SELECT t.id FROM tasks t JOIN scopes ON scopes.id = t.scope WHERE place = {ACTIVE} AND t.worker IS NOT ?"
            f" AND scopes.agent IN ({marks}) ORDER BY t.created, t.id LIMIT ?",
            (worker, *agents, limit),
        )
        return [row[0] for row in rows]

    def _stored(self, row: tuple[Any, ...]) -> Stored:
        new = NewTask(row[0], self._scope(row[1]), row[2], row[3])
        head = Head(STATE_OF[row[4]], row[5], row[6], row[7], bool(row[8]))
        snapshot = None if row[11] is None else Snapshot(row[9], row[10], row[11], row[12] or b"[]")
        return Stored(new, head, snapshot)

    def _scope(self, number: int) -> Scope:
        scope = self.scopes.get(number)
        if scope is None:
            row = self.reader.execute("SELECT tenant, owner, agent FROM scopes WHERE id = ?", (number,)).fetchone()
            scope = Scope(*row)
            if len(self.scopes) > 10_000:
                self.scopes.clear()
            self.scopes[number] = scope
        return scope


def _parts(query: ListQuery) -> list[str]:
    """Conditions that each walk one index in order; together they are all tasks that may be listed."""
    listed, active = f"place = {LISTED}", f"place = {ACTIVE} AND hidden = 0"
    if query.context_id:
        return [listed, active]
    if query.state is not TaskState.UNSPECIFIED:
        code = CODE_OF[query.state]
        return [f"{listed if code in SETTLED else active} AND state = {code}"]
    return [*(f"{listed} AND state = {code}" for code in SETTLED), active]


def _filters(query: ListQuery, scope: int) -> tuple[str, list[Any]]:
    where = "scope = ?"
    args: list[Any] = [scope]
    if query.context_id:
        where += " AND context_id = ?"
        args.append(query.context_id)
    if query.context_id and query.state is not TaskState.UNSPECIFIED:
        where += " AND state = ?"
        args.append(CODE_OF[query.state])
    if query.after is not None:
        where += " AND status_time >= ?"
        args.append(query.after.timestamp() * 1000)
    return where, args


def _lock(path: Path) -> int:
    """Ours until we close it. A host that was killed leaves it when its last commit is done: a moment to wait."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            os.close(handle)
            raise StoreInUse(
                f"{path.parent} is in use by another roost process. Stop it, or choose another folder with --data."
            ) from None
