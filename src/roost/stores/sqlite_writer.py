"""The connection that writes the SQLite file. One statement writes a whole group, through a trigger.

In a thread, each statement hands the interpreter lock over, and then the writer has to wait for a busy event loop.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import msgspec

from roost.engine.store_types import (
    Append,
    PushConfig,
    Reservation,
    Scope,
    StoreMisplaced,
    StoreUnavailable,
    TaskHead,
)
from roost.identity.ports import now_ms
from roost.stores.sqlite_files import JournalFiles
from roost.stores.sqlite_schema import APPENDS, CODE_OF, PUSHING, RESERVING, View, place_of

P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]

MOST_ROWS = 128
"""Rows of one statement. Smaller groups are padded to a power of two, so that few statements are prepared."""
KNOWN_SCOPES = 10_000
OPEN_BYTES = 128 * 1024
"""The room that SQLite may need beside a journal to open it: its index and the beginning of its log."""

NO_HEAD: Row = (None,) * 6
NO_TASK: Row = (None,) * 3
NO_SEGMENT: Row = (None,) * 6
NO_RESERVE: Row = (None,) * 4
NO_PUSH: Row = (None,) * 4

_STALE = (
    "SELECT v.column1 FROM ({values}) v LEFT JOIN tasks t ON t.id = v.column1"
    " WHERE t.fence IS NOT v.column2 AND v.column1 IS NOT NULL"
)


encode_segment = msgspec.msgpack.Encoder().encode


class SQLiteWriter:
    """The connection that writes. It is not thread-safe: a WriterThread or a WriterProcess calls it."""

    def __init__(self, path: Path, files: JournalFiles | None = None) -> None:
        """Open the file. With `files`, nothing is written unless they are in their places."""
        self.path = path
        self.files = files
        self.connection = connect_writer(path)
        self.failed = False
        """True if the connection is to be replaced before it is used again."""
        self.scopes: dict[Scope, int] = {}

    def close(self) -> None:
        self.connection.close()
        if self.files is not None:
            self.files.close()

    def do(self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the query in a transaction; raise StoreUnavailable if SQLite refuses."""
        return self._guarded(partial(self._in_transaction, query, *args, **kwargs))

    def commit(self, group: Sequence[Append], reserve_ids: Sequence[int | None]) -> list[int]:
        """Write the group and return the places of the appends that are stale, and so not written.

        `reserve_ids` are the row ids for their reservations; it is empty if no append takes one.
        """
        return self._guarded(partial(self._commit, group, reserve_ids))

    def _guarded(self, work: Callable[[], T]) -> T:
        if self.files is not None:
            self.files.check()
        if self.failed:
            self._reopen()
        try:
            return work()
        except sqlite3.Error as error:
            self._reopen()
            raise StoreUnavailable(reason(self.path, error)) from error
        except BaseException:
            self._reopen()
            raise

    def _in_transaction(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self.connection.execute("BEGIN IMMEDIATE")
        result = query(self.connection, *args, **kwargs)
        self.connection.execute("COMMIT")
        return result

    def _reopen(self) -> None:
        """Replace the connection, whose state cannot be trusted after a failed commit.

        The new connection is opened before the old one is closed: without any, SQLite would read the file again and
        take the frames of the failed commit for committed ones.
        """
        self.scopes.clear()
        self.failed = True
        failed = self.connection
        with suppress(sqlite3.Error):
            failed.execute("ROLLBACK")
        with suppress(sqlite3.Error, StoreMisplaced):  # if it fails, so does the next transaction, with the reason
            opened = connect_writer(self.path)
            try:
                if self.files is not None:
                    self.files.check()
            except StoreMisplaced:
                opened.close()
                raise
            self.connection, self.failed = opened, False
            failed.close()

    def _commit(self, group: Sequence[Append], reserve_ids: Sequence[int | None]) -> list[int]:
        refused: list[int] = []
        stale = self._stale([(append.task_id, append.fence) for append in group if append.create is None])
        if stale:
            stale -= {append.task_id for append in group if append.task_id in stale and self._is_done(append)}
            refused = [at for at, a in enumerate(group) if a.create is None and a.task_id in stale]
        view = _view(group, reserve_ids)
        rows = [self._row(append) for append in group]
        if view is not APPENDS:
            ids = reserve_ids or [None] * len(group)
            rows = [(*row, *_reserve(a.reserve, number)) for row, a, number in zip(rows, group, ids, strict=True)]
        if view is PUSHING:
            now = now_ms()
            rows = [
                (*row, *_push(append.push, now), now if append.goes_on else None)
                for row, append in zip(rows, group, strict=True)
            ]
        if refused:
            rows = [row for at, row in enumerate(rows) if at not in set(refused)]
        if len(rows) <= MOST_ROWS:
            self._append(view, rows)  # a single statement is a transaction
            return refused
        self.connection.execute("BEGIN IMMEDIATE")
        for start in range(0, len(rows), MOST_ROWS):
            self._append(view, rows[start : start + MOST_ROWS])
        self.connection.execute("COMMIT")
        return refused

    def _stale(self, fences: list[Row]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(fences), MOST_ROWS):
            some = _padded(fences[start : start + MOST_ROWS], (None, None))
            sql = _STALE.format(values=_values(2, len(some)))
            found.update(row[0] for row in self.connection.execute(sql, _flat(some)))
        return found

    def _is_done(self, append: Append) -> bool:
        """Whether an earlier try, whose reply was lost, has committed the append and raised the fence itself."""
        if append.head is None or not append.entries:
            return False
        last = append.entries[-1]
        found = self.connection.execute(
            "SELECT 1 FROM tasks t JOIN segments s ON s.task_id = t.id"
            " WHERE t.id = ? AND t.fence = ? AND s.last_seq = ? AND s.last_sub = ? AND s.entries = ?",
            (append.task_id, append.head.fence, last.seq, last.sub, encode_segment(append.entries)),
        ).fetchone()
        return found is not None and append.head.fence != append.fence

    def _append(self, view: View, rows: list[Row]) -> None:
        if not rows:
            return
        rows = _padded(rows, (None,) * view.width)
        self.connection.execute(f"INSERT INTO {view.name} {_values(view.width, len(rows))}", _flat(rows))

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


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that exists: SQLite must not make a new journal in place of one that was deleted."""
    url = f"file:{quote(os.fsencode(path))}?mode=rw"
    connection = sqlite3.connect(
        url, uri=True, isolation_level=None, check_same_thread=False, timeout=10, cached_statements=256
    )
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000", "cache_size = -32000"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def connect_writer(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    connection.execute("PRAGMA temp_store = MEMORY")
    for view in (APPENDS, RESERVING, PUSHING):
        for statement in view.statements:
            connection.execute(statement)
    return connection


_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make it writable for this user",
    sqlite3.SQLITE_CANTOPEN: "the folder must exist, and this user must be allowed to write in it",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: stop the host and restore a backup with `roost restore`",
    sqlite3.SQLITE_NOTADB: "the file is damaged: stop the host and restore a backup with `roost restore`",
}


def reason(path: Path, error: sqlite3.Error) -> str:
    """Describe an error, with advice where there is some."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_IOERR and _is_full(path):  # without room SQLite cannot open the file, and says just that
        code = sqlite3.SQLITE_FULL
    advice = _ADVICE.get(code)
    return f"{path}: {error}" + (f" ({advice})" if advice else "")


def _is_full(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < OPEN_BYTES


def _view(group: Sequence[Append], reserve_ids: Sequence[int | None]) -> View:
    if any(append.push is not None or append.goes_on for append in group):
        return PUSHING
    return RESERVING if reserve_ids else APPENDS


def _reserve(reserve: Reservation | None, row_id: int | None) -> Row:
    if reserve is None or row_id is None:
        return NO_RESERVE
    return row_id, reserve.key, reserve.fingerprint, now_ms() + reserve.ttl_s * 1000


def _push(push: PushConfig | None, now: int) -> Row:
    return NO_PUSH if push is None else (push.id, push.sealed, push.cursor, now)


def _head(head: TaskHead) -> Row:
    place = place_of(head.state, head.hidden)
    return CODE_OF[head.state], head.status_time, head.worker, head.fence, int(head.hidden), place


def _padded(rows: list[Row], empty: Row) -> list[Row]:
    size = 1 << (len(rows) - 1).bit_length() if rows else 0
    return rows + [empty] * (size - len(rows))


@cache
def _values(width: int, rows: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return "VALUES " + ",".join([row] * rows)


def _flat(rows: list[Row]) -> list[Any]:
    return list(chain.from_iterable(rows))
