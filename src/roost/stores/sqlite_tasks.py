"""Queries for tasks and their entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from roost.engine.store_types import (
    COUNT_CAP,
    MOST_BYTES,
    Adopted,
    ListQuery,
    NewTask,
    Position,
    Scope,
    Snapshot,
    Stored,
    TaskHead,
    TaskPage,
    Update,
    Withheld,
    adopted_from,
    page_end,
)
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores.sqlite_schema import ACTIVE, CODE_OF, LISTED, STATE_OF

TASK = "t.id, t.context_id, t.created, t.state, t.status_time, t.worker, t.fence, t.hidden"
SNAPSHOT = (
    "SELECT rowid FROM segments WHERE task_id = t.id AND body IS NOT NULL ORDER BY last_seq DESC, last_sub DESC LIMIT 1"
)
SIZE = "ifnull(length(s.body), 0) + ifnull(length(s.artifacts), 0)"
"""The length of a blob is known without reading it."""
ANY_SIZE = 2**62
SETTLED = [code for code in STATE_OF if code > 2]

decode_segment = msgspec.msgpack.Decoder(list[Entry]).decode


def probe(connection: sqlite3.Connection) -> None:
    """Prove that the file can be written."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'probes'")


def read_task(
    connection: sqlite3.Connection, task_id: str, owner: str | None = None, most: int | None = None
) -> Stored | None:
    row = connection.execute(
        f"SELECT {TASK}, s.last_seq, s.last_sub, CASE WHEN {SIZE} <= ?3 THEN s.body END,"
        f" CASE WHEN {SIZE} <= ?3 THEN s.artifacts END, {SIZE}, tenant, owner, agent"
        " FROM tasks t CROSS JOIN scopes ON scopes.id = t.scope"
        f" LEFT JOIN segments s ON s.rowid = ({SNAPSHOT}) WHERE t.id = ?1 AND owner = ifnull(?2, owner)",
        (task_id, owner, ANY_SIZE if most is None else most),
    ).fetchone()
    return None if row is None else _stored(row, Scope(*row[13:]))


def read_entries(
    connection: sqlite3.Connection,
    task_id: str,
    after: int,
    limit: int,
    *,
    wire: bool,
    sub: int = 0,
    most: int = MOST_BYTES,
) -> list[Entry]:
    found: list[Entry] = []
    size = 0
    rows = connection.execute(
        "SELECT entries FROM segments WHERE task_id = ? AND (last_seq, last_sub) > (?, ?) ORDER BY last_seq, last_sub",
        (task_id, after, sub),
    )
    for (blob,) in rows:
        for entry in decode_segment(blob):
            if (entry.seq, entry.sub) > (after, sub) and (not wire or entry.sub == 0):
                size += len(entry.data)
                if found and (size > most or len(found) == limit):
                    rows.close()
                    return found
                found.append(entry)
        if len(found) >= limit:
            rows.close()
            break
    return found[:limit]


def read_internal(connection: sqlite3.Connection, task_id: str) -> list[Entry]:
    rows = connection.execute(
        "SELECT entries FROM segments WHERE task_id = ? AND internal = 1 ORDER BY last_seq, last_sub", (task_id,)
    )
    return [entry for (blob,) in rows for entry in decode_segment(blob) if entry.sub]


def read_updates(connection: sqlite3.Connection, positions: Sequence[Position], limit: int) -> list[Update]:
    connection.execute("BEGIN")
    try:
        return [
            Update(task_id, head, read_entries(connection, task_id, seq, limit, wire=False, sub=sub, most=ANY_SIZE))
            for task_id, seq, sub in positions
            if (head := _read_head(connection, task_id)) is not None
        ]
    finally:
        connection.execute("ROLLBACK")


def _read_head(connection: sqlite3.Connection, task_id: str) -> TaskHead | None:
    row = connection.execute(
        "SELECT state, status_time, worker, fence, hidden FROM tasks WHERE id = ?", (task_id,)
    ).fetchone()
    return None if row is None else _head(row)


def list_tasks(connection: sqlite3.Connection, query: ListQuery) -> TaskPage:
    found = connection.execute(
        "SELECT id FROM scopes WHERE tenant = ? AND owner = ? AND agent = ?", query.scope
    ).fetchone()
    if found is None:
        return TaskPage([], 0)
    where, args = _filters(query, found[0])
    rows: list[tuple[Any, ...]] = []
    total = 0
    connection.execute("BEGIN")
    try:
        for part in _parts(query):
            count = connection.execute(
                f"SELECT count(*) FROM (SELECT 1 FROM tasks t WHERE {part} AND {where} LIMIT {COUNT_CAP})", args
            ).fetchone()[0]
            if count:
                total += count
                rows += _page(connection, query, f"{part} AND {where}", args)
        rows.sort(key=lambda row: (-row[4], row[0]))
        total = min(total, COUNT_CAP)
        end, size = page_end([row[11] for row in rows[: query.limit]], query.most)
        cut = end < min(len(rows), query.limit)
        if query.unread is not None and size > query.unread:
            return TaskPage([], total, size, cut)
        bodies = _bodies(connection, query, [row[10] for row in rows[:end] if row[10] is not None])
    finally:
        connection.execute("ROLLBACK")
    tasks = [_stored((*row[:10], *bodies.get(row[10], (None, None)), row[11]), query.scope) for row in rows[:end]]
    return TaskPage(tasks, total, size, cut)


def _page(connection: sqlite3.Connection, query: ListQuery, where: str, args: list[Any]) -> list[tuple[Any, ...]]:
    """Return tasks with the rowid and the size of their snapshot, which is not read yet."""
    if query.cursor is not None:
        status_time, task_id = query.cursor
        where += " AND status_time <= ? AND (status_time < ? OR id > ?)"
        args = [*args, status_time, status_time, task_id]
    return connection.execute(
        f"SELECT {TASK}, s.last_seq, s.last_sub, s.rowid, {SIZE if query.artifacts else 'ifnull(length(s.body), 0)'}"
        f" FROM (SELECT * FROM tasks t WHERE {where} ORDER BY status_time DESC, id LIMIT ?"
        f") t LEFT JOIN segments s ON s.rowid = ({SNAPSHOT})",
        [*args, query.limit],
    ).fetchall()


def _bodies(
    connection: sqlite3.Connection, query: ListQuery, rowids: list[int]
) -> dict[int, tuple[bytes, bytes | None]]:
    artifacts = "artifacts" if query.artifacts else "NULL"
    rows = connection.execute(f"SELECT rowid, body, {artifacts} FROM segments WHERE rowid IN ({marks(rowids)})", rowids)
    return {rowid: (body, made) for rowid, body, made in rows}


def _parts(query: ListQuery) -> list[str]:
    """Return conditions that each use one index in its order; together they match all tasks that may be listed."""
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


def adopt(connection: sqlite3.Connection, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
    rows = connection.execute(
        "SELECT t.id, t.fence + 1, t.worker FROM tasks t JOIN scopes ON scopes.id = t.scope"
        f" WHERE place = {ACTIVE} AND t.worker IS NOT ? AND scopes.agent IN ({marks(agents)})"
        " ORDER BY t.created, t.id LIMIT ?",
        (worker, *agents, limit),
    ).fetchall()
    if not rows:
        return []
    tasks = dict(
        connection.execute(f"SELECT ifnull(worker, ''), count(*) FROM tasks WHERE place = {ACTIVE} GROUP BY worker")
    )
    connection.executemany(
        "UPDATE tasks SET worker = ?, fence = fence + 1 WHERE id = ?", [(worker, row[0]) for row in rows]
    )
    return [adopted_from(task_id, fence, lost, tasks) for task_id, fence, lost in rows]


def adopt_task(connection: sqlite3.Connection, worker: str, task_id: str) -> int | None:
    found = connection.execute(
        f"UPDATE tasks SET worker = ?, fence = fence + 1 WHERE id = ? AND place = {ACTIVE} AND worker IS NOT ?"
        " RETURNING fence",
        (worker, task_id, worker),
    ).fetchone()
    return None if found is None else int(found[0])


def leave(connection: sqlite3.Connection, worker: str) -> None:
    connection.execute(f"UPDATE tasks SET worker = NULL WHERE place = {ACTIVE} AND worker = ?", (worker,))


def mine(connection: sqlite3.Connection, worker: str, limit: int) -> list[Adopted]:
    rows = connection.execute(
        f"SELECT id, fence FROM tasks WHERE place = {ACTIVE} AND worker = ? ORDER BY created, id LIMIT ?",
        (worker, limit),
    )
    return [Adopted(task_id, fence, False) for task_id, fence in rows]


def active_of(connection: sqlite3.Connection, task_ids: Sequence[str]) -> dict[str, str | None]:
    """Return those of the tasks that are active, with their workers."""
    return dict(
        connection.execute(
            f"SELECT id, worker FROM tasks WHERE place = {ACTIVE} AND id IN ({marks(task_ids)})", list(task_ids)
        )
    )


def marks(values: Sequence[object]) -> str:
    """Return as many question marks, for an SQL list."""
    return ",".join("?" * len(values))


def _stored(row: tuple[Any, ...], scope: Scope) -> Stored:
    """Make a task from the columns of TASK and (last_seq, last_sub, body, artifacts, size)."""
    seq, sub, body, artifacts, size = row[8:13]
    snapshot = None if body is None else Snapshot(seq, sub, body, artifacts or b"[]")
    withheld = Withheld(seq, sub, size) if body is None and size else None
    return Stored(NewTask(row[0], scope, row[1], row[2]), _head(row[3:8]), snapshot, withheld)


def _head(row: tuple[Any, ...]) -> TaskHead:
    state, status_time, worker, fence, hidden = row
    return TaskHead(STATE_OF[state], status_time, worker, fence, bool(hidden))
