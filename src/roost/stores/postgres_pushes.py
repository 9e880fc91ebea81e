"""The push configs of tasks in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from roost.engine.store_types import CursorMove, DeadLetter, Push, PushConfig
from roost.stores.postgres_leases import gone
from roost.stores.postgres_pool import Pool
from roost.stores.postgres_rows import PUSH, from_text, push_of, to_text

PUT = """
    INSERT INTO pushes (task_id, id, sealed, cursor, agent, created, holder, due)
    SELECT t.id, $2, $3, $4, t.agent, now_ms(), $5, now_ms()
    FROM tasks t
    WHERE t.id = $1
    FOR KEY SHARE
    ON CONFLICT (task_id, id) DO UPDATE
    SET sealed = EXCLUDED.sealed,
        cursor = EXCLUDED.cursor,
        holder = EXCLUDED.holder,
        due = EXCLUDED.due,
        attempts = 0,
        buried = 0,
        paused = false,
        error = ''
    RETURNING true
"""
DELETE = """
    WITH letters AS (DELETE FROM dead_letters WHERE task_id = $1 AND config_id = $2)
    DELETE FROM pushes WHERE task_id = $1 AND id = $2 RETURNING true
"""
HOLD = f"""
    WITH waiting AS MATERIALIZED (
        SELECT task_id, id
        FROM pushes
        WHERE due <= now_ms()
            AND coalesce(holder, '') = ANY (ARRAY({gone("pushes", "holder", "due IS NOT NULL")}))
        ORDER BY due, number
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    )
    UPDATE pushes p
    SET holder = $1
    FROM waiting
    WHERE p.task_id = waiting.task_id AND p.id = waiting.id
    RETURNING p.due, p.number, {PUSH}
"""
MOVE = f"SELECT move_pushes_1({', '.join(f'${number}' for number in range(1, 15))})"
FAILING = "(p.attempts > 0 OR p.buried > 0 OR p.paused)"
RETRY = """
    WITH letters AS (
        SELECT task_id, config_id, min(seq) AS first
        FROM dead_letters
        WHERE ($1::text IS NULL OR task_id = $1) AND ($2::text IS NULL OR config_id = $2)
        GROUP BY task_id, config_id
    ), chosen AS (
        SELECT p.task_id, p.id, l.first
        FROM pushes p
        LEFT JOIN letters l ON l.task_id = p.task_id AND l.config_id = p.id
        WHERE ($1::text IS NULL OR p.task_id = $1)
            AND ($2::text IS NULL OR p.id = $2)
            AND (p.attempts > 0 OR p.paused OR l.first IS NOT NULL)
        ORDER BY p.task_id, p.id
        FOR UPDATE OF p
    ), forgotten AS (
        DELETE FROM dead_letters d USING chosen c WHERE d.task_id = c.task_id AND d.config_id = c.id
    )
    UPDATE pushes p
    SET cursor = least(p.cursor, c.first - 1),
        holder = NULL,
        due = now_ms(),
        attempts = 0,
        buried = 0,
        paused = false,
        error = ''
    FROM chosen c
    WHERE p.task_id = c.task_id AND p.id = c.id
    RETURNING true
"""


class PostgresPushes:
    pool: Pool

    async def put_push(self, config: PushConfig, worker: str) -> bool:
        task_id, config_id = to_text(config.task_id), to_text(config.id)
        return bool(await self.pool.rows(PUT, task_id, config_id, config.sealed, config.cursor, worker))

    async def read_pushes(self, task_id: str) -> list[Push]:
        rows = await self.pool.rows(
            f"SELECT {PUSH} FROM pushes p WHERE p.task_id = $1 ORDER BY p.number", to_text(task_id)
        )
        return [push_of(row) for row in rows]

    async def delete_push(self, task_id: str, config_id: str) -> bool:
        return bool(await self.pool.rows(DELETE, to_text(task_id), to_text(config_id)))

    async def hold_pushes(self, worker: str, limit: int) -> list[Push]:
        rows = await self.pool.rows(HOLD, worker, limit)
        return [push_of(row[2:]) for row in sorted(rows, key=lambda row: (row[0], row[1]))]

    async def move_pushes(self, worker: str, moves: Sequence[CursorMove]) -> list[bool]:
        dead = [move.dead for move in moves]
        rows = await self.pool.rows(
            MOVE,
            worker,
            [to_text(move.task_id) for move in moves],
            [to_text(move.config_id) for move in moves],
            [move.cursor for move in moves],
            [move.attempts for move in moves],
            [move.buried for move in moves],
            [move.paused for move in moves],
            [to_text(move.error) for move in moves],
            [None if move.delay_s is None else round(move.delay_s * 1000) for move in moves],
            [move.keep for move in moves],
            [letter and letter.seq for letter in dead],
            [letter and letter.attempts for letter in dead],
            [letter and to_text(letter.error) for letter in dead],
            [letter and letter.time for letter in dead],
        )
        moved = {row[0] for row in rows}
        return [number in moved for number in range(1, len(moves) + 1)]

    async def list_pushes(self, *, failing: bool, limit: int) -> list[Push]:
        condition = FAILING if failing else "true"
        rows = await self.pool.rows(
            f"SELECT {PUSH} FROM pushes p WHERE {condition} ORDER BY p.number DESC LIMIT $1", limit
        )
        return [push_of(row) for row in rows]

    async def list_dead(self, limit: int) -> list[DeadLetter]:
        rows = await self.pool.rows(
            "SELECT task_id, config_id, seq, attempts, error, time FROM dead_letters ORDER BY number DESC LIMIT $1",
            limit,
        )
        return [
            DeadLetter(from_text(row[0]), from_text(row[1]), row[2], row[3], from_text(row[4]), row[5]) for row in rows
        ]

    async def retry_pushes(self, task_id: str | None, config_id: str | None) -> int:
        chosen = (None if name is None else to_text(name) for name in (task_id, config_id))
        return len(await self.pool.rows(RETRY, *chosen))

    async def outbox(self) -> tuple[int, int]:
        [row] = await self.pool.rows(
            "SELECT (SELECT count(*) FROM pushes WHERE due IS NOT NULL), (SELECT count(*) FROM dead_letters)"
        )
        return row[0], row[1]
