"""The leases of workers, by PostgreSQL's clock."""

from __future__ import annotations

from collections.abc import Sequence

from roost.engine.store_types import Adopted
from roost.stores.postgres_pool import Pool
from roost.stores.postgres_rows import from_text, to_text
from roost.stores.sqlite_schema import ACTIVE

FORGET_MS = 3_600_000
"""Milliseconds for which an expired lease is kept: a worker whose lease is gone must not begin again."""
SURVIVORS_MS = 30 * 24 * FORGET_MS
"""Milliseconds for which it is kept that a worker lived on: attempts that name it are judged by that."""
FORGET_EVERY = 600
"""The number of renewals after which expired leases are deleted."""

BEGIN = """
    INSERT INTO workers AS w (id, expires)
    VALUES ($1, now_ms() + $2)
    ON CONFLICT (id) DO UPDATE
    SET expires = EXCLUDED.expires
    WHERE w.expires > now_ms()
    RETURNING true
"""
PROLONG = "UPDATE workers SET expires = now_ms() + $2 WHERE id = $1 AND expires > now_ms() RETURNING true"
FORGET = "DELETE FROM workers WHERE expires < now_ms() - $1"
SURVIVE = "INSERT INTO survivors (worker, time_ms) VALUES ($1, now_ms()) ON CONFLICT DO NOTHING"
SURVIVORS = "SELECT worker FROM survivors WHERE worker = ANY ($1::text[])"
FORGET_SURVIVORS = "DELETE FROM survivors WHERE time_ms < now_ms() - $1::bigint"


def gone(table: str, column: str, where: str, condition: str = "worker <> $1") -> str:
    """Select the workers that are named in rows, have no lease and meet the condition; '' stands for no worker.

    The query skips from name to name in an index. A row that another host takes in the meantime names a worker that
    is not in this list, so a statement that waits for the row leaves it alone.
    """
    return f"""
        WITH RECURSIVE named (worker) AS (
            (SELECT coalesce({column}, '') AS worker FROM {table} WHERE {where} ORDER BY 1 LIMIT 1)
            UNION ALL
            SELECT (
                SELECT coalesce({column}, '') AS worker
                FROM {table}
                WHERE {where} AND coalesce({column}, '') > n.worker
                ORDER BY 1
                LIMIT 1
            )
            FROM named n
            WHERE n.worker IS NOT NULL
        )
        SELECT worker
        FROM named
        WHERE {condition} AND NOT EXISTS (SELECT FROM workers w WHERE w.id = named.worker AND w.expires > now_ms())
    """


ADOPT = f"""
    WITH left_alone AS MATERIALIZED (
        SELECT id, worker
        FROM tasks
        WHERE place = {ACTIVE}
            AND agent = ANY ($2::text[])
            AND coalesce(worker, '') = ANY (ARRAY({gone("tasks", "worker", f"place = {ACTIVE}")}))
        ORDER BY created, id
        LIMIT $3
        FOR UPDATE SKIP LOCKED
    ), had AS MATERIALIZED (
        SELECT l.worker, (SELECT count(*) FROM tasks o WHERE o.place = {ACTIVE} AND coalesce(o.worker, '') = l.worker)
            AS tasks
        FROM (SELECT DISTINCT worker FROM left_alone WHERE worker IS NOT NULL) l
    ), most AS (
        -- The number before the first adoption. Hosts that adopt tasks of one worker do this one after another.
        INSERT INTO workers AS w (id, expires, tasks)
        SELECT worker, now_ms() - 1, tasks
        FROM had
        ORDER BY worker
        ON CONFLICT (id) DO UPDATE
        SET tasks = greatest(w.tasks, EXCLUDED.tasks)
        RETURNING w.id, w.tasks
    )
    UPDATE tasks t
    SET worker = $1, fence = t.fence + 1
    FROM left_alone
    LEFT JOIN most ON most.id = left_alone.worker
    WHERE t.id = left_alone.id
    RETURNING t.created, t.id, t.fence, left_alone.worker, most.tasks
"""
ADOPT_TASK = f"""
    UPDATE tasks t
    SET worker = $1, fence = t.fence + 1
    WHERE t.id = $2
        AND t.place = {ACTIVE}
        AND t.worker IS DISTINCT FROM $1
        AND NOT EXISTS (SELECT FROM workers w WHERE w.id = t.worker AND w.expires > now_ms())
    RETURNING t.fence
"""
LEAVE = f"""
    WITH left_behind AS (
        UPDATE tasks SET worker = NULL WHERE place = {ACTIVE} AND worker = $1
    )
    DELETE FROM workers WHERE id = $1
"""
MINE = f"SELECT id, fence FROM tasks WHERE place = {ACTIVE} AND worker = $1 ORDER BY created, id LIMIT $2"
ASK_CANCEL = f"UPDATE tasks SET cancel = true WHERE id = $1 AND place = {ACTIVE} AND NOT cancel"


class PostgresLeases:
    pool: Pool
    lease: Pool
    """A connection of its own, so that a lease is renewed however busy the other connections are."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.renewals = 0

    async def renew(self, worker: str, ttl_s: float) -> bool:
        known = worker in self.begun
        rows = await self.lease.rows(PROLONG if known else BEGIN, worker, round(ttl_s * 1000))
        self.begun.add(worker)
        self.renewals += 1
        if self.renewals % FORGET_EVERY == 0:
            await self.lease.rows(FORGET, FORGET_MS)
            await self.lease.rows(FORGET_SURVIVORS, SURVIVORS_MS)
        return bool(rows)

    async def survive(self, worker: str) -> None:
        await self.lease.rows(SURVIVE, worker)

    async def survivors(self, workers: Sequence[str]) -> list[str]:
        return [row[0] for row in await self.pool.rows(SURVIVORS, list(workers))]

    async def leave(self, worker: str) -> None:
        await self.lease.rows(LEAVE, worker)

    async def adopt(self, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
        rows = await self.pool.rows(ADOPT, worker, [to_text(agent) for agent in agents], limit)
        rows.sort(key=lambda row: (row[0], row[1]))
        return [
            Adopted(from_text(task_id), fence, lost is None, lost or "", tasks or 0)
            for _, task_id, fence, lost, tasks in rows
        ]

    async def adopt_task(self, worker: str, task_id: str) -> int | None:
        rows = await self.pool.rows(ADOPT_TASK, worker, to_text(task_id))
        return rows[0][0] if rows else None

    async def mine(self, worker: str, limit: int) -> list[Adopted]:
        rows = await self.pool.rows(MINE, worker, limit)
        return [Adopted(from_text(task_id), fence, False) for task_id, fence in rows]

    async def take_turn(self, task_id: str) -> str | None:
        [(before,)] = await self.pool.rows("SELECT take_turn_1($1)", to_text(task_id))
        return None if before is None else from_text(before)

    async def ask_cancel(self, task_id: str) -> None:
        await self.pool.rows(ASK_CANCEL, to_text(task_id))

    async def asked_to_cancel(self, worker: str) -> list[str]:
        rows = await self.pool.rows("SELECT id FROM tasks WHERE cancel AND worker = $1", worker)
        return [from_text(row[0]) for row in rows]
