"""Queries for checkpoints and their leaves.

The leaves of a checkpoint are found page by page on a reader, and written in small steps under the next number, so
that commits do not wait for the whole of it. They count once the checkpoint itself is stored. Leaves that a process
left behind when it died are deleted first.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from roost.engine.checkpoints import Checkpoint, CheckpointBusy, Leaf, Segment, leaf_of, leaf_of_tombstone
from roost.engine.store_types import NewTask, Scope, StoreUnavailable, Tombstone
from roost.protocol.entries import Entry
from roost.stores.sqlite_schema import STATE_OF
from roost.stores.sqlite_tasks import decode_segment

LOCK = "checkpoint.lock"
PAGE = 5_000
"""Tasks that are compared in one read."""
AT_ONCE = 500
"""Leaves that are written in one transaction, for which commits have to wait."""

_LAST = "SELECT rowid FROM segments WHERE task_id = t.id ORDER BY last_seq DESC, last_sub DESC LIMIT 1"
_TASK = f"""
    SELECT t.id, t.context_id, t.created, tenant, owner, agent, s.entries
    FROM tasks t CROSS JOIN scopes ON scopes.id = t.scope CROSS JOIN segments s ON s.rowid = ({_LAST})
"""
_LATEST = "(SELECT max(number) FROM leaves WHERE task_id = t.{id})"
_TOMBSTONE = "t.task_id, tenant, owner, agent, state, status_time, t.seq, CAST(t.chain AS BLOB), pruned"
_LEAF = "task_id, seq, sub, chain, scope"
_READ_LEAF = "task_id, seq, sub, CAST(chain AS BLOB), CAST(scope AS BLOB)"
_CHECKPOINT = "SELECT number, CAST(time AS INTEGER), CAST(statement AS BLOB) FROM checkpoints"
"""The casts are for files that were edited by hand: a column may hold another type than a blob."""


class Page(NamedTuple):
    """The new leaves of a page of tasks or tombstones."""

    leaves: list[Leaf]
    last: str | None
    """The last id of the page; None after the last page."""


@contextmanager
def only_maker(folder: Path) -> Iterator[None]:
    """Hold the lock under which a checkpoint is made, by a host or by a command. It ends with the process."""
    try:
        handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"cannot lock {LOCK}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CheckpointBusy("another process is making a checkpoint now: try again in a moment") from None
        yield
    finally:
        os.close(handle)


def moved_tasks(connection: sqlite3.Connection, after: str) -> Page:
    """Return new leaves for the tasks whose last entry is not that of their last leaf."""
    last = _end(connection, "id", "tasks", after)
    if last is None:
        return Page([], None)
    rows = connection.execute(
        f"{_TASK} LEFT JOIN leaves l ON l.task_id = t.id AND l.number = {_LATEST.format(id='id')}"
        " WHERE t.id > ? AND t.id <= ? AND (l.seq IS NOT s.last_seq OR l.sub IS NOT s.last_sub) ORDER BY t.id",
        (after, last),
    )
    return Page([leaf_of(*_task_and_last_entry(row)) for row in rows], last)


def moved_tombstones(connection: sqlite3.Connection, after: str) -> Page:
    """Return new leaves for the tombstones whose chain is not that of the last leaf."""
    last = _end(connection, "task_id", "tombstones", after)
    if last is None:
        return Page([], None)
    rows = connection.execute(
        f"SELECT {_TOMBSTONE} FROM tombstones t CROSS JOIN scopes ON scopes.id = t.scope"
        f" LEFT JOIN leaves l ON l.task_id = t.task_id AND l.number = {_LATEST.format(id='task_id')}"
        " WHERE t.task_id > ? AND t.task_id <= ? AND l.chain IS NOT t.chain ORDER BY t.task_id",
        (after, last),
    )
    return Page([leaf_of_tombstone(_tombstone(row)) for row in rows], last)


def _end(connection: sqlite3.Connection, column: str, table: str, after: str) -> str | None:
    found = connection.execute(
        f"SELECT max({column}) FROM (SELECT {column} FROM {table} WHERE {column} > ? ORDER BY {column} LIMIT {PAGE})",
        (after,),
    ).fetchone()
    last: str | None = found[0]
    return last


def last_checkpoint(connection: sqlite3.Connection) -> Checkpoint | None:
    row = connection.execute(f"{_CHECKPOINT} ORDER BY number DESC LIMIT 1").fetchone()
    return None if row is None else Checkpoint(*row)


def read_checkpoints(connection: sqlite3.Connection, after: int, limit: int) -> list[Checkpoint]:
    rows = connection.execute(f"{_CHECKPOINT} WHERE number > ? ORDER BY number LIMIT ?", (after, limit))
    return [Checkpoint(*row) for row in rows]


def read_leaves(connection: sqlite3.Connection, number: int, after: str, limit: int) -> list[Leaf]:
    rows = connection.execute(
        f"SELECT {_READ_LEAF} FROM leaves WHERE number = ? AND task_id > ? ORDER BY task_id LIMIT ?",
        (number, after, limit),
    )
    return [Leaf(*row) for row in rows]


def walk_leaves(connection: sqlite3.Connection, after: tuple[str, int], limit: int) -> list[tuple[int, Leaf]]:
    rows = connection.execute(
        f"SELECT number, {_READ_LEAF} FROM leaves WHERE (task_id, number) > (?, ?)"
        " AND number <= ifnull((SELECT max(number) FROM checkpoints), 0) ORDER BY task_id, number LIMIT ?",
        (*after, limit),
    )
    return [(row[0], Leaf(*row[1:])) for row in rows]


def scan_tasks(connection: sqlite3.Connection, after: str, limit: int) -> list[tuple[NewTask, Entry]]:
    rows = connection.execute(f"{_TASK} WHERE t.id > ? ORDER BY t.id LIMIT ?", (after, limit))
    return [_task_and_last_entry(row) for row in rows]


def scan_tombstones(connection: sqlite3.Connection, after: str, limit: int) -> list[Tombstone]:
    rows = connection.execute(
        f"SELECT {_TOMBSTONE} FROM tombstones t CROSS JOIN scopes ON scopes.id = t.scope"
        " WHERE t.task_id > ? ORDER BY t.task_id LIMIT ?",
        (after, limit),
    )
    return [_tombstone(row) for row in rows]


def read_segments(
    connection: sqlite3.Connection, task_id: str, after: tuple[int, int] | None, limit: int
) -> list[Segment]:
    where, place = ("", ()) if after is None else (" AND (last_seq, last_sub) > (?, ?)", after)
    rows = connection.execute(
        f"SELECT last_seq, last_sub, internal, entries FROM segments WHERE task_id = ?{where}"
        " ORDER BY last_seq, last_sub LIMIT ?",
        (task_id, *place, limit),
    )
    return [_segment(*row) for row in rows]


def _segment(seq: int, sub: int, internal: int, blob: bytes) -> Segment:
    entries = decode_segment(blob)
    expected = [(entry.seq, entry.sub, any(one.sub for one in entries)) for entry in entries[-1:]]
    return Segment(seq, sub, expected == [(seq, sub, internal)], entries)


def drop_drafts(connection: sqlite3.Connection, number: int, limit: int) -> int:
    """Delete leaves of a checkpoint that was never finished, and return how many."""
    ids = [row[0] for row in connection.execute("SELECT task_id FROM leaves WHERE number = ? LIMIT ?", (number, limit))]
    connection.executemany("DELETE FROM leaves WHERE task_id = ? AND number = ?", [(one, number) for one in ids])
    return len(ids)


def draft_leaves(connection: sqlite3.Connection, number: int, leaves: Sequence[Leaf]) -> None:
    connection.executemany(
        f"INSERT OR REPLACE INTO leaves (number, {_LEAF}) VALUES (?, ?, ?, ?, ?, ?)",
        [(number, *leaf) for leaf in leaves],
    )


def add_checkpoint(connection: sqlite3.Connection, checkpoint: Checkpoint) -> None:
    connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?)", checkpoint)


def _task_and_last_entry(row: tuple[Any, ...]) -> tuple[NewTask, Entry]:
    return NewTask(row[0], Scope(*row[3:6]), row[1], row[2]), decode_segment(row[6])[-1]


def _tombstone(row: tuple[Any, ...]) -> Tombstone:
    return Tombstone(row[0], Scope(*row[1:4]), STATE_OF[row[4]], *row[5:])
