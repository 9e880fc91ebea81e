"""How a group gets into the SQLite file: with one statement, through a trigger.

In a thread, one statement is one hand-over of the interpreter lock, and at each the writer has
to wait for a busy event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from roost.engine.ports import Append, Head, Scope, StaleFence, StoreUnavailable
from roost.stores.schema import CODE_OF, TRIGGER, place_of

T = TypeVar("T")
Row = tuple[Any, ...]

MOST_ROWS = 128
"""Of one statement. Smaller groups are padded to a power of two, so that few statements have to be prepared."""
KNOWN_SCOPES = 10_000

NO_HEAD: Row = (None,) * 6
NO_TASK: Row = (None,) * 3
NO_SEGMENT: Row = (None,) * 6
NO_ROW: Row = (None, *NO_HEAD, *NO_TASK, *NO_SEGMENT)

_STALE = (
    "SELECT v.column1 FROM ({values}) v LEFT JOIN tasks t ON t.id = v.column1"
    " WHERE t.fence IS NOT v.column2 AND v.column1 IS NOT NULL"
)

encode_segment = msgspec.msgpack.Encoder().encode


class Writer:
    """The connection that writes. Not thread-safe: a carrier calls it (sqlite_thread.py, sqlite_process.py)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = connect_writer(path)
        self.scopes: dict[Scope, int] = {}

    def close(self) -> None:
        self.connection.close()

    def do(self, operation: str, *args: Any) -> Any:
        """Do `commit`, `claim` or `probe`; StoreUnavailable if SQLite refuses."""
        return self._guarded(getattr(self, operation), *args)

    def _guarded(self, work: Callable[..., T], *args: Any) -> T:
        try:
            return work(*args)
        except sqlite3.Error as error:
            self._reopen()
            raise StoreUnavailable(f"{self.path}: {error}") from error
        except BaseException:
            self._reopen()
            raise

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
            self.connection = connect_writer(self.path)
            failed.close()

    def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        results: list[StaleFence | None] = [None] * len(group)
        stale = self._stale([(append.task_id, append.fence) for append in group if append.create is None])
        if stale:
            stale -= {append.task_id for append in group if append.task_id in stale and self._is_done(append)}
            results = [StaleFence(a.task_id) if a.create is None and a.task_id in stale else None for a in group]
            group = [append for append, refusal in zip(group, results, strict=True) if refusal is None]
        rows = [self._row(append) for append in group]
        if len(rows) <= MOST_ROWS:
            self._append(rows)  # one statement is a transaction of its own
            return results
        self.connection.execute("BEGIN IMMEDIATE")
        for start in range(0, len(rows), MOST_ROWS):
            self._append(rows[start : start + MOST_ROWS])
        self.connection.execute("COMMIT")
        return results

    def _stale(self, fences: list[Row]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(fences), MOST_ROWS):
            some = _padded(fences[start : start + MOST_ROWS], (None, None))
            sql = _STALE.format(values=_values(2, len(some)))
            found.update(row[0] for row in self.connection.execute(sql, _flat(some)))
        return found

    def _is_done(self, append: Append) -> bool:
        """It raised the fence itself, in an earlier try whose answer was lost."""
        if append.head is None or not append.entries:
            return False
        last = append.entries[-1]
        found = self.connection.execute(
            "SELECT 1 FROM tasks t JOIN segments s ON s.task_id = t.id"
            " WHERE t.id = ? AND t.fence = ? AND s.last_seq = ? AND s.last_sub = ?",
            (append.task_id, append.head.fence, last.seq, last.sub),
        ).fetchone()
        return found is not None and append.head.fence != append.fence

    def _append(self, rows: list[Row]) -> None:
        if not rows:
            return
        rows = _padded(rows, NO_ROW)
        sql = f"INSERT INTO appends {_values(len(NO_ROW), len(rows))}"
        self.connection.execute(sql, _flat(rows))

    def _row(self, append: Append) -> Row:
        new, head, entries, snapshot = append.create, append.head, append.entries, append.snapshot
        made = NO_TASK if new is None else (self._scope(new.scope), new.context_id, new.created)
        segment: Row = NO_SEGMENT
        body, artifacts = (None, None) if snapshot is None else (snapshot.body, snapshot.artifacts)
        if entries:
            last = entries[-1]
            internal = any(entry.sub for entry in entries)
            segment = (last.seq, last.sub, internal, encode_segment(entries), body, artifacts)
        return (append.task_id, *(NO_HEAD if head is None else _head(head)), *made, *segment)

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


def connect_writer(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    connection.execute("PRAGMA temp_store = MEMORY")
    for statement in TRIGGER:
        connection.execute(statement)
    return connection


def _head(head: Head) -> Row:
    place = place_of(head.state, head.hidden)
    return CODE_OF[head.state], head.status_time, head.worker, head.fence, int(head.hidden), place


def _padded(rows: list[Row], nothing: Row) -> list[Row]:
    size = 1 << (len(rows) - 1).bit_length() if rows else 0
    return rows + [nothing] * (size - len(rows))


@cache
def _values(width: int, rows: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return "VALUES " + ",".join([row] * rows)


def _flat(rows: list[Row]) -> list[Any]:
    return list(chain.from_iterable(rows))
