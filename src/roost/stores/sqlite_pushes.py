"""Queries for push configs and dead letters. There is only one host, so every other holder is dead."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from roost.engine.store_types import CursorMove, DeadLetter, Push, PushConfig
from roost.identity.ports import now_ms

PUSH = "task_id, id, sealed, cursor, agent, created, holder, due, attempts, buried, paused, error"
DEAD = "task_id, config_id, seq, attempts, error, time"
FAILING = "attempts > 0 OR buried > 0 OR paused"
SET_BACK_S = 2.0
"""Seconds by which the clock must have been set back to be noticed."""
LONGEST_MS = 2 * 3_600_000
"""Longer than any delay before a delivery: a config that is due later got its time from another clock."""


def put_push(connection: sqlite3.Connection, config: PushConfig, worker: str) -> bool:
    now = now_ms()
    done = connection.execute(
        "INSERT INTO pushes (task_id, id, agent, sealed, cursor, created, holder, due)"
        " SELECT t.id, ?, agent, ?, ?, ?, ?, ? FROM tasks t JOIN scopes ON scopes.id = t.scope WHERE t.id = ?"
        " ON CONFLICT DO UPDATE SET sealed = excluded.sealed, cursor = excluded.cursor, holder = excluded.holder,"
        " due = excluded.due, attempts = 0, buried = 0, paused = 0, error = ''",
        (config.id, config.sealed, config.cursor, now, worker, now, config.task_id),
    )
    return done.rowcount == 1


def read_pushes(connection: sqlite3.Connection, task_id: str) -> list[Push]:
    return _pushes(connection.execute(f"SELECT {PUSH} FROM pushes WHERE task_id = ? ORDER BY rowid", (task_id,)))


def delete_push(connection: sqlite3.Connection, task_id: str, config_id: str) -> bool:
    connection.execute("DELETE FROM dead_letters WHERE task_id = ? AND config_id = ?", (task_id, config_id))
    return connection.execute("DELETE FROM pushes WHERE task_id = ? AND id = ?", (task_id, config_id)).rowcount == 1


class _ClockWatch:
    """Notices when the machine's clock was set back, because then configs would become due much too late."""

    def __init__(self) -> None:
        self.ahead: float | None = None
        """Seconds from the monotonic clock to the wall clock, at the last check."""

    def was_set_back(self) -> bool:
        ahead = time.time() - time.monotonic()
        before, self.ahead = self.ahead, ahead
        return before is not None and ahead < before - SET_BACK_S


_clock = _ClockWatch()


def hold_pushes(connection: sqlite3.Connection, worker: str, limit: int) -> list[Push]:
    now = now_ms()
    latest = now if _clock.was_set_back() else now + LONGEST_MS
    connection.execute("UPDATE pushes SET due = ? WHERE due > ?", (now, latest))
    found = connection.execute(
        f"SELECT {PUSH} FROM pushes WHERE due <= ? AND holder IS NOT ? ORDER BY due, task_id, id LIMIT ?",
        (now, worker, limit),
    )
    held = [push._replace(holder=worker) for push in _pushes(found)]
    connection.executemany(
        "UPDATE pushes SET holder = ? WHERE task_id = ? AND id = ?",
        [(worker, push.config.task_id, push.config.id) for push in held],
    )
    return held


def move_pushes(connection: sqlite3.Connection, worker: str, moves: Sequence[CursorMove]) -> list[bool]:
    return [_move(connection, worker, move) for move in moves]


def _move(connection: sqlite3.Connection, worker: str, move: CursorMove) -> bool:
    now = now_ms()
    due = None if move.delay_s is None else now + round(move.delay_s * 1000)
    if due is None and not move.paused and _last_seq(connection, move.task_id) > move.cursor:
        due = now
    done = connection.execute(
        "UPDATE pushes SET cursor = ?, attempts = ?, buried = ?, paused = ?, error = ?, due = ?, holder = ?"
        " WHERE task_id = ? AND id = ? AND holder = ?",
        (
            move.cursor,
            move.attempts,
            move.buried,
            move.paused,
            move.error,
            due,
            worker if move.keep else None,
            move.task_id,
            move.config_id,
            worker,
        ),
    )
    if done.rowcount == 1 and move.dead is not None:
        connection.execute(f"INSERT OR REPLACE INTO dead_letters ({DEAD}) VALUES (?, ?, ?, ?, ?, ?)", move.dead)
    return done.rowcount == 1


def _last_seq(connection: sqlite3.Connection, task_id: str) -> int:
    """Return the seq of the last wire entry: internal entries have the seq of the wire entry before them."""
    found = connection.execute("SELECT max(last_seq) FROM segments WHERE task_id = ?", (task_id,)).fetchone()[0]
    return int(found or 0)


def list_pushes(connection: sqlite3.Connection, *, failing: bool, limit: int) -> list[Push]:
    where = f"WHERE {FAILING}" if failing else ""
    return _pushes(connection.execute(f"SELECT {PUSH} FROM pushes {where} ORDER BY rowid DESC LIMIT ?", (limit,)))


def list_dead(connection: sqlite3.Connection, limit: int) -> list[DeadLetter]:
    rows = connection.execute(f"SELECT {DEAD} FROM dead_letters ORDER BY rowid DESC LIMIT ?", (limit,))
    return [DeadLetter(*row) for row in rows]


def retry_pushes(connection: sqlite3.Connection, task_id: str | None, config_id: str | None) -> int:
    chosen = "(:task IS NULL OR task_id = :task) AND (:config IS NULL OR {} = :config)"
    dead = "FROM dead_letters d WHERE d.task_id = pushes.task_id AND d.config_id = pushes.id"
    args = {"task": task_id, "config": config_id, "now": now_ms()}
    done = connection.execute(
        f"UPDATE pushes SET cursor = min(cursor, coalesce((SELECT min(d.seq) - 1 {dead}), cursor)), holder = NULL,"
        " due = :now, attempts = 0, buried = 0, paused = 0, error = ''"
        f" WHERE {chosen.format('id')} AND ({FAILING} OR EXISTS (SELECT 1 {dead}))",
        args,
    )
    connection.execute(f"DELETE FROM dead_letters WHERE {chosen.format('config_id')}", args)
    return done.rowcount


def outbox(connection: sqlite3.Connection) -> tuple[int, int]:
    due, dead = connection.execute(
        "SELECT (SELECT count(*) FROM pushes WHERE due IS NOT NULL), (SELECT count(*) FROM dead_letters)"
    ).fetchone()
    return due, dead


def _pushes(rows: sqlite3.Cursor) -> list[Push]:
    return [_push(row) for row in rows]


def _push(row: tuple[Any, ...]) -> Push:
    agent, created, holder, due, attempts, buried, paused, error = row[4:]
    return Push(PushConfig(*row[:4]), agent, created, holder, due, attempts, buried, bool(paused), error)
