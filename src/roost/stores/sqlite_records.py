"""Queries for retention: which tasks are pruned, their tombstones, what is stored, and which agents are served."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from roost.engine.store_types import Party, Scope, StoredUsage, Tombstone, UsageDelta
from roost.identity.ports import now_ms
from roost.protocol.entries import NO_CHAIN
from roost.stores.sqlite_schema import ACTIVE, LISTED, OVER, STATE_OF, UNLISTED, WAITING
from roost.stores.sqlite_tasks import decode_segment, marks

_ENDED = " UNION ALL ".join(
    f"SELECT t.id, t.status_time FROM scopes CROSS JOIN tasks t INDEXED BY {index} ON t.scope = scopes.id"
    f" WHERE scopes.agent = :agent AND t.place = {place} AND t.state IN ({', '.join(map(str, OVER))})"
    " AND t.status_time < :before"
    " AND NOT EXISTS (SELECT 1 FROM pushes WHERE pushes.task_id = t.id AND pushes.due IS NOT NULL)"
    for index, place in (("tasks_by_state", LISTED), ("tasks_unlisted", UNLISTED))
)
"""The terminal tasks of an agent up to a time, found through the indexes scope by scope.

Tasks whose webhooks still have something to deliver are left out.
"""
_WAITING = " UNION ALL ".join(
    f"SELECT t.id FROM scopes CROSS JOIN tasks t INDEXED BY {index} ON t.scope = scopes.id"
    f" WHERE scopes.agent = :agent AND t.place = {place} AND t.state IN ({', '.join(map(str, WAITING))})"
    for index, place in (("tasks_by_state", LISTED), ("tasks_unlisted", UNLISTED))
)
_UNFINISHED = (
    f"{_WAITING} UNION ALL SELECT t.id FROM tasks t INDEXED BY tasks_active CROSS JOIN scopes ON scopes.id = t.scope"
    f" WHERE scopes.agent = :agent AND t.place = {ACTIVE} AND t.worker IS NULL"
)
"""The tasks of an agent that wait for an answer or for a worker."""
_FOREVER = 2**62


class PrunableTask(NamedTuple):
    """A task to be pruned, with the last entry for its tombstone. Nothing changes it: a terminal state is final."""

    task_id: str
    seq: int
    chain: bytes


def find_prunable(
    connection: sqlite3.Connection, agent: str, before_ms: int | None, keep: int | None, limit: int
) -> list[PrunableTask]:
    """Return up to `limit` tasks of an agent whose retention is over, by age and then by number."""
    found: list[str] = []
    if before_ms is not None:
        rows = connection.execute(f"{_ENDED} LIMIT :limit", {"agent": agent, "before": before_ms, "limit": limit})
        found = [row[0] for row in rows]
    if keep is not None and len(found) < limit:
        found += _beyond(connection, agent, before_ms, keep, limit - len(found))
    return [_prunable(connection, task_id) for task_id in found]


def find_one_prunable(connection: sqlite3.Connection, agent: str, task_id: str) -> list[PrunableTask]:
    """Return a task of an agent if it is terminal and no webhook has something left to deliver."""
    rows = connection.execute(
        "SELECT t.id FROM tasks t JOIN scopes ON scopes.id = t.scope"
        f" WHERE t.id = ? AND scopes.agent = ? AND t.place <> {ACTIVE} AND t.state IN ({', '.join(map(str, OVER))})"
        " AND NOT EXISTS (SELECT 1 FROM pushes WHERE pushes.task_id = t.id AND pushes.due IS NOT NULL)",
        (task_id, agent),
    )
    return [_prunable(connection, row[0]) for row in rows.fetchall()]


def _beyond(connection: sqlite3.Connection, agent: str, before_ms: int | None, keep: int, limit: int) -> list[str]:
    """Return the oldest tasks beyond the `keep` newest, among those that are not too old anyway."""
    young = -_FOREVER if before_ms is None else before_ms
    args: dict[str, Any] = {"agent": agent, "before": _FOREVER, "young": young, "most": keep + limit}
    [count] = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM ({_ENDED}) WHERE status_time >= :young LIMIT :most)", args
    ).fetchone()
    if count <= keep:
        return []
    args["spare"] = count - keep
    rows = connection.execute(
        f"SELECT id FROM ({_ENDED}) WHERE status_time >= :young ORDER BY status_time, id LIMIT :spare", args
    )
    return [row[0] for row in rows]


def _prunable(connection: sqlite3.Connection, task_id: str) -> PrunableTask:
    row = connection.execute(
        "SELECT entries FROM segments WHERE task_id = ? ORDER BY last_seq DESC, last_sub DESC LIMIT 1", (task_id,)
    ).fetchone()
    last = None if row is None else decode_segment(row[0])[-1]
    return PrunableTask(task_id, 0, NO_CHAIN) if last is None else PrunableTask(task_id, last.seq, last.chain)


def prune_tasks(connection: sqlite3.Connection, tasks: Sequence[PrunableTask]) -> list[UsageDelta]:
    """Replace each task by a tombstone, and return what was deleted, by scope."""
    now = now_ms()
    ids = [task.task_id for task in tasks]
    connection.executemany(
        "INSERT OR REPLACE INTO tombstones SELECT id, scope, state, status_time, ?, ?, ? FROM tasks"
        f" WHERE id = ? AND place <> {ACTIVE}",
        [(task.seq, task.chain, now, task.task_id) for task in tasks],
    )
    deleted = _usage_of(connection, ids)
    add_usage(connection, [usage._replace(tasks=-usage.tasks, size=-usage.size) for usage in deleted])
    for table in ("segments", "pushes", "dead_letters"):
        connection.execute(f"DELETE FROM {table} WHERE task_id IN ({marks(ids)})", ids)
    connection.execute(f"DELETE FROM tasks WHERE id IN ({marks(ids)})", ids)
    return deleted


def _usage_of(connection: sqlite3.Connection, ids: Sequence[str]) -> list[UsageDelta]:
    """Return what these tasks use, by scope."""
    size = "length(entries) + ifnull(length(body), 0) + ifnull(length(artifacts), 0)"
    rows = connection.execute(
        "SELECT tenant, owner, agent, count(*),"
        f" sum(ifnull((SELECT sum({size}) FROM segments WHERE task_id = t.id), 0))"
        f" FROM tasks t JOIN scopes ON scopes.id = t.scope WHERE t.id IN ({marks(ids)}) GROUP BY scopes.id",
        ids,
    )
    return [UsageDelta(*row) for row in rows]


def read_tombstone(connection: sqlite3.Connection, task_id: str) -> Tombstone | None:
    row = connection.execute(
        "SELECT t.task_id, tenant, owner, agent, state, status_time, seq, chain, pruned"
        " FROM tombstones t JOIN scopes ON scopes.id = t.scope WHERE t.task_id = ?",
        (task_id,),
    ).fetchone()
    return None if row is None else Tombstone(row[0], Scope(*row[1:4]), STATE_OF[row[4]], *row[5:])


def add_usage(connection: sqlite3.Connection, deltas: Sequence[UsageDelta]) -> None:
    connection.executemany(
        "INSERT INTO kept (party, name, tasks, size) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET tasks = tasks + excluded.tasks, size = size + excluded.size",
        [
            (party, name, delta.tasks, delta.size)
            for delta in deltas
            for party, name in zip(Scope._fields, delta, strict=False)
        ],
    )


def usage(connection: sqlite3.Connection) -> list[StoredUsage]:
    rows = connection.execute("SELECT name, tasks, size FROM kept WHERE party = 'agent' ORDER BY name")
    return [StoredUsage(*row) for row in rows]


def stored_bytes(connection: sqlite3.Connection, accounts: Sequence[tuple[Party, str]]) -> list[int]:
    found = (
        connection.execute("SELECT size FROM kept WHERE party = ? AND name = ?", account).fetchone()
        for account in accounts
    )
    return [0 if row is None else int(row[0]) for row in found]


def agents(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT DISTINCT agent FROM scopes ORDER BY agent")]


def note_served(connection: sqlite3.Connection, agents: Sequence[str], known: Sequence[str]) -> None:
    """Record that `agents` are served now, and `known` ones too unless they have a record."""
    now = now_ms()
    connection.executemany(
        "INSERT INTO served_agents (agent, time_ms) VALUES (?, ?) ON CONFLICT DO UPDATE SET time_ms = excluded.time_ms",
        [(agent, now) for agent in agents],
    )
    connection.executemany(
        "INSERT INTO served_agents (agent, time_ms) VALUES (?, ?) ON CONFLICT DO NOTHING",
        [(agent, now) for agent in known],
    )


def unserved(connection: sqlite3.Connection, before_ms: int) -> list[str]:
    rows = connection.execute("SELECT agent FROM served_agents WHERE time_ms < ? ORDER BY agent", (before_ms,))
    return [row[0] for row in rows]


def unfinished(connection: sqlite3.Connection, agent: str, limit: int) -> list[str]:
    """List paused tasks, and active ones that no worker is named for.

    The file does not say which worker is alive. Tasks that name a dead one are found by `adopt`.
    """
    rows = connection.execute(f"{_UNFINISHED} ORDER BY 1 LIMIT :limit", {"agent": agent, "limit": limit})
    return [row[0] for row in rows]


def oldest(connection: sqlite3.Connection) -> int | None:
    """Return when the oldest task was created. Ids are in the order in which tasks are created."""
    row = connection.execute("SELECT created / 1000 FROM tasks ORDER BY id LIMIT 1").fetchone()
    return None if row is None else int(row[0])
