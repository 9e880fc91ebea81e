"""Reservations, retention, tombstones, and which agents are served, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.engine.stats import summed
from roost.engine.store_types import Reserved, Scope, Tombstone, UsageDelta
from roost.stores.postgres_accounts import ADD_TO_KEPT, SIZE
from roost.stores.postgres_leases import gone
from roost.stores.postgres_pool import Pool
from roost.stores.postgres_rows import decode_segment, from_text, to_text
from roost.stores.postgres_schema import OVER, PAUSED
from roost.stores.sqlite_schema import ACTIVE, STATE_OF

READ_RESERVED = "SELECT task_id, seq, fingerprint FROM reservations WHERE key = $1 AND expires > now_ms() * 1000"
DROP_RESERVATIONS = """
    DELETE FROM reservations
    WHERE key IN (
        SELECT key
        FROM reservations
        WHERE expires <= greatest(
            now_ms() * 1000,
            (SELECT expires FROM reservations ORDER BY expires DESC OFFSET $1 LIMIT 1)
        )
        FOR UPDATE SKIP LOCKED
    )
    RETURNING true
"""

NEWEST_EXCESS = f"""
    SELECT status_time, id
    FROM tasks
    WHERE agent = $1 AND {OVER}
    ORDER BY status_time DESC, id DESC
    OFFSET $2
    LIMIT 1
"""
FIND_PRUNABLE = f"""
    SELECT t.id, s.entries
    FROM tasks t
    CROSS JOIN LATERAL (
        SELECT entries
        FROM segments
        WHERE task_id = t.id
        ORDER BY last_seq DESC, last_sub DESC
        LIMIT 1
    ) s
    WHERE t.agent = $1 AND t.{OVER} AND {{until}}
        AND NOT EXISTS (SELECT FROM pushes p WHERE p.task_id = t.id AND p.due IS NOT NULL)
    ORDER BY t.status_time, t.id
    LIMIT $2
    FOR UPDATE OF t SKIP LOCKED
"""
PRUNE = f"""
    WITH prunable AS (
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS d (id, seq, chain)
    ), deleted_segments AS (
        DELETE FROM segments WHERE task_id = ANY ($1::text[]) RETURNING task_id, {SIZE} AS size
    ), deleted_pushes AS (
        DELETE FROM pushes WHERE task_id = ANY ($1::text[])
    ), deleted_letters AS (
        DELETE FROM dead_letters WHERE task_id = ANY ($1::text[])
    ), deleted AS (
        DELETE FROM tasks t USING prunable d WHERE t.id = d.id RETURNING t.id, t.scope, t.state, t.status_time
    ), new_tombstones AS (
        INSERT INTO tombstones (task_id, scope, state, status_time, seq, chain, pruned)
        SELECT g.id, g.scope, g.state, g.status_time, d.seq, d.chain, now_ms()
        FROM deleted g
        JOIN prunable d ON d.id = g.id
    ), deltas AS (
        SELECT c.tenant, c.owner, c.agent, -count(*) AS tasks, -coalesce(sum(s.size), 0)::bigint AS size
        FROM deleted g
        JOIN scopes c ON c.id = g.scope
        LEFT JOIN (SELECT task_id, sum(size) AS size FROM deleted_segments GROUP BY task_id) s ON s.task_id = g.id
        GROUP BY c.id
    ), accounted AS ({ADD_TO_KEPT})
    SELECT tenant, owner, agent, -tasks, -size FROM deltas
"""
READ_TOMBSTONE = """
    SELECT c.tenant, c.owner, c.agent, t.state, t.status_time, t.seq, t.chain, t.pruned
    FROM tombstones t
    JOIN scopes c ON c.id = t.scope
    WHERE t.task_id = $1
"""
NOTE_SERVED = """
    INSERT INTO served_agents (agent, time_ms)
    SELECT agent, now_ms()
    FROM (
        SELECT agent COLLATE "C"
        FROM unnest($1::text[]) AS given (agent)
        UNION
        SELECT agent
        FROM scopes c
        WHERE NOT EXISTS (SELECT FROM served_agents s WHERE s.agent = c.agent)
    ) found
    ORDER BY agent -- everyone locks the rows in the same order
    ON CONFLICT (agent) DO UPDATE
    SET time_ms = EXCLUDED.time_ms
"""
UNFINISHED = f"""
    SELECT id
    FROM (
        SELECT id
        FROM tasks
        WHERE agent = $1 AND {PAUSED}
        UNION ALL
        SELECT id
        FROM tasks
        WHERE place = {ACTIVE}
            AND agent = $1
            AND coalesce(worker, '') = ANY (
                ARRAY({gone("tasks", "worker", f"place = {ACTIVE}", "worker IS NOT NULL")})
            )
    ) found
    ORDER BY id
    LIMIT $2
"""
OLDEST = "SELECT min(created) FROM (SELECT created FROM tasks ORDER BY id LIMIT 1000) found"
"""Ids are UUIDs in the order of time, so the oldest task is among the first and needs no index of its own."""


class PostgresRecords:
    pool: Pool

    async def read_reserved(self, key: bytes) -> Reserved | None:
        rows = await self.pool.rows(READ_RESERVED, key)
        return Reserved(from_text(rows[0][0]), rows[0][1], rows[0][2]) if rows else None

    async def drop_reservations(self, most: int) -> int:
        return len(await self.pool.rows(DROP_RESERVATIONS, most))

    async def prune(self, agent: str, before_ms: int | None, keep: int | None, limit: int) -> list[UsageDelta]:
        return await self.pool.do(lambda connection: _prune(connection, to_text(agent), before_ms, keep, limit))

    async def prune_task(self, agent: str, task_id: str) -> list[UsageDelta]:
        return await self.pool.do(lambda connection: _prune_task(connection, to_text(agent), to_text(task_id)))

    async def read_tombstone(self, task_id: str) -> Tombstone | None:
        rows = await self.pool.rows(READ_TOMBSTONE, to_text(task_id))
        if not rows:
            return None
        tenant, owner, agent, state, *rest = rows[0]
        scope = Scope(from_text(tenant), from_text(owner), from_text(agent))
        return Tombstone(task_id, scope, STATE_OF[state], *rest)

    async def agents(self) -> list[str]:
        rows = await self.pool.rows("SELECT DISTINCT agent FROM scopes ORDER BY agent")
        return [from_text(row[0]) for row in rows]

    async def note_served(self, agents: Sequence[str]) -> None:
        await self.pool.rows(NOTE_SERVED, [to_text(agent) for agent in agents])

    async def unserved(self, before_ms: int) -> list[str]:
        rows = await self.pool.rows("SELECT agent FROM served_agents WHERE time_ms < $1 ORDER BY agent", before_ms)
        return [from_text(row[0]) for row in rows]

    async def unfinished(self, agent: str, limit: int) -> list[str]:
        rows = await self.pool.rows(UNFINISHED, to_text(agent), limit)
        return [from_text(row[0]) for row in rows]

    async def oldest(self) -> int | None:
        [(created,)] = await self.pool.rows(OLDEST)
        return None if created is None else int(created) // 1000

    def free_bytes(self) -> int | None:
        return None

    def wal_bytes(self) -> int | None:
        return None


async def _prune(connection: Any, agent: str, before_ms: int | None, keep: int | None, limit: int) -> list[UsageDelta]:
    async with connection.transaction():
        until = await _until(connection, agent, before_ms, keep)
        if until is None:
            return []
        condition, args = until
        return await _prune_found(connection, condition, agent, limit, *args)


async def _prune_task(connection: Any, agent: str, task_id: str) -> list[UsageDelta]:
    async with connection.transaction():
        return await _prune_found(connection, "t.id = $3", agent, 1, task_id)


async def _prune_found(connection: Any, condition: str, agent: str, limit: int, *args: Any) -> list[UsageDelta]:
    rows = await connection.fetch(FIND_PRUNABLE.format(until=condition), agent, limit, *args)
    last = [decode_segment(row[1])[-1] for row in rows]
    deleted = await connection.fetch(
        PRUNE, [row[0] for row in rows], [entry.seq for entry in last], [entry.chain for entry in last]
    )
    return summed(
        UsageDelta(from_text(tenant), from_text(owner), from_text(name), tasks, size)
        for tenant, owner, name, tasks, size in deleted
    )


async def _until(
    connection: Any, agent: str, before_ms: int | None, keep: int | None
) -> tuple[str, tuple[int] | tuple[int, str]] | None:
    """Return the condition for the ended tasks to prune: all up to the later of two points in their order."""
    newest = None if keep is None else await connection.fetchrow(NEWEST_EXCESS, agent, keep)
    if newest is not None and (before_ms is None or newest[0] >= before_ms):
        return "(t.status_time, t.id) <= ($3, $4)", (newest[0], newest[1])
    return None if before_ms is None else ("t.status_time < $3", (before_ms,))
