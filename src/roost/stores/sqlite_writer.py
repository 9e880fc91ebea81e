"""The one thread that writes to the SQLite file.

Rows go in with multi-row statements: one statement is one hand-over of the interpreter lock,
and with one per row the writer would wait for the event loop at each of them.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from roost.engine.ports import Append, Head, Scope, StaleFence, StoreUnavailable
from roost.stores.schema import CODE_OF, place_of

T = TypeVar("T")
Row = tuple[Any, ...]
Job = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]

CHUNKS = (128, 32, 8, 4, 2, 1)
"""Rows per statement: few sizes, so that few statements have to be prepared."""
KNOWN_SCOPES = 10_000

encode_segment = msgspec.msgpack.Encoder().encode


class Writer:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.scopes: dict[Scope, int] = {}
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="sqlite-writer", daemon=True)
        self.thread.start()

    async def do(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work` in a transaction of its own on the writer's thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.jobs.put((work, args, loop, future))
        return await future

    def close(self) -> None:
        self.jobs.put(None)
        self.thread.join()
        self.connection.close()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            work, args, loop, future = job
            result: Any = None
            failure: Exception | None = None
            try:
                result = self._transaction(work, *args)
            except Exception as error:
                failure = error
            try:
                loop.call_soon_threadsafe(_settle, future, result, failure)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

    def _transaction(self, work: Callable[..., T], *args: Any) -> T:
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            result = work(*args)
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._reopen()
            raise StoreUnavailable(f"{self.path}: {error}") from error
        except BaseException:
            self.scopes.clear()  # those that this transaction made are gone with it
            self.connection.execute("ROLLBACK")
            raise
        return result

    def _reopen(self) -> None:
        """After a failed commit nothing that the connection believes is to be trusted.

        The new one is opened before the old one is closed: with none left, SQLite would read the
        file anew and take the frames of the commit that failed for committed ones.
        """
        self.scopes.clear()
        failed = self.connection
        with suppress(sqlite3.Error):
            failed.execute("ROLLBACK")
        with suppress(sqlite3.Error):  # or else the next transaction fails too, and says why
            self.connection = connect(self.path)
            failed.close()

    # In a transaction

    def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        results: list[StaleFence | None] = [None] * len(group)
        stale = self._stale([(append.task_id, append.fence) for append in group if append.create is None])
        if stale:
            results = [StaleFence(a.task_id) if a.create is None and a.task_id in stale else None for a in group]
            group = [append for append, refusal in zip(group, results, strict=True) if refusal is None]
        tasks: list[Row] = []
        heads: list[Row] = []
        segments: list[Row] = []
        for append in group:
            task_id, new, head, entries = append.task_id, append.create, append.head, append.entries
            if new is not None and head is not None:
                tasks.append((task_id, self._scope(new.scope), new.context_id, new.created, *_head(head)))
            elif head is not None:
                heads.append((task_id, *_head(head)))
            snapshot = append.snapshot
            body, artifacts = (None, None) if snapshot is None else (snapshot.body, snapshot.artifacts)
            if entries:
                last = entries[-1]
                internal = any(entry.sub for entry in entries)
                segments.append((task_id, last.seq, last.sub, internal, encode_segment(entries), body, artifacts))
            elif snapshot is not None:
                self.connection.execute(
                    "UPDATE segments SET body = ?, artifacts = ? WHERE (task_id, last_seq, last_sub) = (?, ?, ?)",
                    (body, artifacts, task_id, snapshot.seq, snapshot.sub),
                )
        self._insert("tasks", 10, tasks)
        self._insert("segments", 7, segments)
        self._update_heads(heads)
        return results

    def _stale(self, fences: list[Row]) -> set[str]:
        found: set[str] = set()
        for some in _chunks(fences):
            sql = (
                f"SELECT v.column1 FROM ({_values(2, len(some))}) v LEFT JOIN tasks t ON t.id = v.column1"
                " WHERE t.fence IS NOT v.column2"
            )
            found.update(row[0] for row in self.connection.execute(sql, _flat(some)))
        return found

    def _insert(self, table: str, width: int, rows: list[Row]) -> None:
        """A row that is there already is this commit's own: an earlier try whose answer was lost."""
        for some in _chunks(rows):
            self.connection.execute(
                f"INSERT INTO {table} {_values(width, len(some))} ON CONFLICT DO NOTHING", _flat(some)
            )

    def _update_heads(self, rows: list[Row]) -> None:
        for some in _chunks(rows):
            self.connection.execute(
                "UPDATE tasks SET state = v.column2, status_time = v.column3, worker = v.column4,"
                " fence = v.column5, hidden = v.column6, place = v.column7"
                f" FROM ({_values(7, len(some))}) v WHERE tasks.id = v.column1",
                _flat(some),
            )

    def _scope(self, scope: Scope) -> int:
        number = self.scopes.get(scope)
        if number is None:
            self.connection.execute(
                "INSERT INTO scopes (tenant, owner, agent) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", scope
            )
            found = self.connection.execute(
                "SELECT id FROM scopes WHERE tenant = ? AND owner = ? AND agent = ?", scope
            ).fetchone()
            number = int(found[0])
            if len(self.scopes) >= KNOWN_SCOPES:
                self.scopes.clear()
            self.scopes[scope] = number
        return number

    def claim(self, task_id: str, worker: str, fence: int) -> int | None:
        done = self.connection.execute(
            "UPDATE tasks SET worker = ?, fence = fence + 1 WHERE id = ? AND fence = ?", (worker, task_id, fence)
        )
        return fence + 1 if done.rowcount == 1 else None

    def probe(self) -> None:
        self.connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'probes'")


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10, cached_statements=256)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000", "cache_size = -32000"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _settle(future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)


def _head(head: Head) -> Row:
    place = place_of(head.state, head.hidden)
    return CODE_OF[head.state], head.status_time, head.worker, head.fence, int(head.hidden), place


def _chunks(rows: list[Row]) -> list[list[Row]]:
    found, at = [], 0
    for size in CHUNKS:
        while len(rows) - at >= size:
            found.append(rows[at : at + size])
            at += size
    return found


def _values(width: int, rows: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return "VALUES " + ",".join([row] * rows)


def _flat(rows: list[Row]) -> list[Any]:
    return list(chain.from_iterable(rows))
