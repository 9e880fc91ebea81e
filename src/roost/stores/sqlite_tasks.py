"""Queries for tasks and their entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from roost.engine.store_types import (
    COUNT_CAP,
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
    adopted_from,
)
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores.sqlite_schema import ACTIVE, CODE_OF, LISTED, STATE_OF

TASK = "t.id, t.context_id, t.created, t.state, t.status_time, t.worker, t.fence, t.hidden"
SNAPSHOT = (
    "SELECT rowid FROM segments WHERE task_id = t.id AND body IS NOT NULL ORDER BY last_seq DESC, last_sub DESC LIMIT 1"
)
SETTLED = [code for code in STATE_OF if code > 2]

decode_segment = msgspec.msgpack.Decoder(list[Entry]).decode


def probe(connection: sqlite3.Connection) -> None:
    """Prove that the file can be written."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'probes'")


def read_task(connection: sqlite3.Connection, task_id: str, owner: str | None = None) -> Stored | None:
    row = connection.execute(
        f"SELECT {TASK}, s.last_seq, s.last_sub, s.body, s.artifacts, tenant, owner, agent"
        " FROM tasks t CROSS JOIN scopes ON scopes.id = t.scope"
        f" LEFT JOIN segments s ON s.rowid = ({SNAPSHOT}) WHERE t.id = ? AND owner = ifnull(?, owner)",
        (task_id, owner),
    ).fetchone()
    return None if row is None else _stored(row, Scope(*row[12:]))


def read_entries(
    connection: sqlite3.Connection, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0
) -> list[Entry]:
    found: list[Entry] = []
    rows = connection.execute(
        "SELECT entries FROM segments WHERE task_id = ? AND (last_seq, last_sub) > (?, ?) ORDER BY last_seq, last_sub",
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


def read_internal(connection: sqlite3.Connection, task_id: str) -> list[Entry]:
    rows = connection.execute(
        "SELECT entries FROM segments WHERE task_id = ? AND internal = 1 ORDER BY last_seq, last_sub", (task_id,)
    )
    return [entry for (blob,) in rows for entry in decode_segment(blob) if entry.sub]


def read_updates(connection: sqlite3.Connection, positions: Sequence[Position], limit: int) -> list[Update]:
    connection.execute("BEGIN")
    try:
        return [
            Update(task_id, head, read_entries(connection, task_id, seq, limit, wire=False, sub=sub))
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
    for part in _parts(query):
        count = connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM tasks t WHERE {part} AND {where} LIMIT {COUNT_CAP})", args
        ).fetchone()[0]
        if count:
            total += count
            rows += _page(connection, query, f"{part} AND {where}", args)
    rows.sort(key=lambda row: (-row[4], row[0]))
    return TaskPage([_stored(row, query.scope) for row in rows[: query.limit]], min(total, COUNT_CAP))


def _page(connection: sqlite3.Connection, query: ListQuery, where: str, args: list[Any]) -> list[tuple[Any, ...]]:
    if query.cursor is not None:
        status_time, task_id = query.cursor
        where += " AND status_time <= ? AND (status_time < ? OR id > ?)"
        args = [*args, status_time, status_time, task_id]
    artifacts = "s.artifacts" if query.artifacts else "NULL"
    return connection.execute(
        f"SELECT {TASK}, s.last_seq, s.last_sub, s.body, {artifacts} FROM ("
        f"SELECT * FROM tasks t WHERE {where} ORDER BY status_time DESC, id LIMIT ?"
        f") t LEFT JOIN segments s ON s.rowid = ({SNAPSHOT})",
        [*args, query.limit],
    ).fetchall()


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
    snapshot = None if row[10] is None else Snapshot(row[8], row[9], row[10], row[11] or b"[]")
    return Stored(NewTask(row[0], scope, row[1], row[2]), _head(row[3:8]), snapshot)


def _head(row: tuple[Any, ...]) -> TaskHead:
    state, status_time, worker, fence, hidden = row
    return TaskHead(STATE_OF[state], status_time, worker, fence, bool(hidden))
