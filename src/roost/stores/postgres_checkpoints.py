"""Checkpoints and their leaves in PostgreSQL.

A checkpoint is made in one transaction, by the host that holds an advisory lock. Commits do not wait for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from roost.engine.checkpoints import Checkpoint, CheckpointBusy, Leaf, Seal, Segment, is_due, leaf_of, leaf_of_tombstone
from roost.engine.store_types import NewTask, Scope, Tombstone
from roost.protocol.entries import Entry
from roost.stores.postgres_pool import Pool
from roost.stores.postgres_rows import decode_segment, from_text, to_text
from roost.stores.sqlite_schema import STATE_OF

LOCK = 0x726F6F7375
"""The advisory lock of the host that makes a checkpoint."""
PAGE = 2_000
"""Tasks that are compared with one statement."""

CHECKPOINTS = (
    """CREATE TABLE checkpoints (
        number bigint PRIMARY KEY,
        time bigint NOT NULL, -- by the clock of the host that made it
        statement bytea NOT NULL
    )""",
    """CREATE TABLE leaves (
        task_id text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        seq bigint NOT NULL,
        sub bigint NOT NULL,
        chain bytea NOT NULL,
        scope bytea NOT NULL,
        PRIMARY KEY (task_id, number)
    )""",
    "CREATE UNIQUE INDEX leaves_by_number ON leaves (number, task_id)",
)

_TASK = """
    SELECT t.id, c.tenant, c.owner, c.agent, t.context_id, t.created, s.entries
    FROM tasks t
    JOIN scopes c ON c.id = t.scope
    CROSS JOIN LATERAL (
        SELECT last_seq, last_sub, entries
        FROM segments
        WHERE task_id = t.id
        ORDER BY last_seq DESC, last_sub DESC
        LIMIT 1
    ) s
"""
_TOMBSTONE = """
    SELECT t.task_id, c.tenant, c.owner, c.agent, t.state, t.status_time, t.seq, t.chain, t.pruned
    FROM tombstones t
    JOIN scopes c ON c.id = t.scope
"""
_LATEST = """
    LEFT JOIN LATERAL (
        SELECT seq, sub, chain FROM leaves WHERE task_id = t.{id} ORDER BY number DESC LIMIT 1
    ) l ON true
"""
_END = f"SELECT max({{id}}) FROM (SELECT {{id}} FROM {{table}} WHERE {{id}} > $1 ORDER BY {{id}} LIMIT {PAGE}) page"
END_OF_TASKS = _END.format(id="id", table="tasks")
END_OF_TOMBSTONES = _END.format(id="task_id", table="tombstones")
MOVED_TASKS = f"""
    {_TASK} {_LATEST.format(id="id")}
    WHERE t.id > $1 AND t.id <= $2 AND (l.seq IS DISTINCT FROM s.last_seq OR l.sub IS DISTINCT FROM s.last_sub)
"""
MOVED_TOMBSTONES = f"""
    {_TOMBSTONE} {_LATEST.format(id="task_id")}
    WHERE t.task_id > $1 AND t.task_id <= $2 AND l.chain IS DISTINCT FROM t.chain
"""
SCAN_TASKS = f"{_TASK} WHERE t.id > $1 ORDER BY t.id LIMIT $2"
SCAN_TOMBSTONES = f"{_TOMBSTONE} WHERE t.task_id > $1 ORDER BY t.task_id LIMIT $2"
ADD_LEAVES = """
    INSERT INTO leaves (number, task_id, seq, sub, chain, scope)
    SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[])
    ON CONFLICT (task_id, number) DO UPDATE
    SET seq = EXCLUDED.seq, sub = EXCLUDED.sub, chain = EXCLUDED.chain, scope = EXCLUDED.scope
"""
READ_SEGMENTS = """
    SELECT last_seq, last_sub, count, internal, entries
    FROM segments
    WHERE task_id = $1 AND ($2::bigint IS NULL OR (last_seq, last_sub) > ($2, $3))
    ORDER BY last_seq, last_sub
    LIMIT $4
"""
LAST = "SELECT number, time, statement FROM checkpoints ORDER BY number DESC LIMIT 1"
ADD = "INSERT INTO checkpoints (number, time, statement) VALUES ($1, $2, $3)"
READ = "SELECT number, time, statement FROM checkpoints WHERE number > $1 ORDER BY number LIMIT $2"
READ_LEAVES = """
    SELECT task_id, seq, sub, chain, scope FROM leaves WHERE number = $1 AND task_id > $2 ORDER BY task_id LIMIT $3
"""
WALK_LEAVES = """
    SELECT number, task_id, seq, sub, chain, scope
    FROM leaves
    WHERE (task_id, number) > ($1, $2)
    ORDER BY task_id, number
    LIMIT $3
"""


class PostgresCheckpoints:
    pool: Pool

    async def make_checkpoint(self, seal: Seal, unless_after: int | None = None) -> Checkpoint | None:
        target = self.pool.target
        try:
            async with self.pool.lend() as connection, connection.transaction():
                if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", LOCK):
                    raise CheckpointBusy("another host is making a checkpoint now: try again in a moment")
                found = await connection.fetchrow(LAST)
                last = None if found is None else Checkpoint(*found)
                if not is_due(last, unless_after):
                    return None
                number = 1 if last is None else last.number + 1
                await _write_leaves(connection, number)
                made = await seal(last, _leaves(connection, number))
                await connection.execute(ADD, *made)
                return made
        except target.failures as error:
            raise target.unavailable(error) from error

    async def read_checkpoints(self, after: int, limit: int) -> list[Checkpoint]:
        return [Checkpoint(*row) for row in await self.pool.rows(READ, after, limit)]

    async def read_leaves(self, number: int, after: str, limit: int) -> list[Leaf]:
        return [_leaf(row) for row in await self.pool.rows(READ_LEAVES, number, to_text(after), limit)]

    async def walk_leaves(self, after: tuple[str, int], limit: int) -> list[tuple[int, Leaf]]:
        rows = await self.pool.rows(WALK_LEAVES, to_text(after[0]), after[1], limit)
        return [(row[0], _leaf(row[1:])) for row in rows]

    async def scan_tasks(self, after: str, limit: int) -> list[tuple[NewTask, Entry]]:
        return [_task_and_last_entry(row) for row in await self.pool.rows(SCAN_TASKS, to_text(after), limit)]

    async def scan_tombstones(self, after: str, limit: int) -> list[Tombstone]:
        return [_tombstone(row) for row in await self.pool.rows(SCAN_TOMBSTONES, to_text(after), limit)]

    async def read_segments(self, task_id: str, after: tuple[int, int] | None, limit: int) -> list[Segment]:
        seq, sub = (None, None) if after is None else after
        return [_segment(*row) for row in await self.pool.rows(READ_SEGMENTS, to_text(task_id), seq, sub, limit)]


async def _write_leaves(connection: Any, number: int) -> None:
    """Write the new leaves, tombstones last: a task that is pruned in the meantime is found as one or the other."""
    after = ""
    while (last := await connection.fetchval(END_OF_TASKS, after)) is not None:
        rows = await connection.fetch(MOVED_TASKS, after, last)
        await _add(connection, number, [leaf_of(*_task_and_last_entry(row)) for row in rows])
        after = last
    after = ""
    while (last := await connection.fetchval(END_OF_TOMBSTONES, after)) is not None:
        rows = await connection.fetch(MOVED_TOMBSTONES, after, last)
        await _add(connection, number, [leaf_of_tombstone(_tombstone(row)) for row in rows])
        after = last


async def _add(connection: Any, number: int, leaves: list[Leaf]) -> None:
    if leaves:
        columns = [list(column) for column in zip(*leaves, strict=True)]
        await connection.execute(ADD_LEAVES, number, [to_text(task_id) for task_id in columns[0]], *columns[1:])


async def _leaves(connection: Any, number: int) -> AsyncIterator[Leaf]:
    after = ""
    while rows := await connection.fetch(READ_LEAVES, number, after, PAGE):
        for row in rows:
            yield _leaf(row)
        after = rows[-1][0]


def _leaf(row: Any) -> Leaf:
    return Leaf(from_text(row[0]), *row[1:])


def _task_and_last_entry(row: Any) -> tuple[NewTask, Entry]:
    task_id, tenant, owner, agent, context_id = (from_text(text) for text in row[:5])
    return NewTask(task_id, Scope(tenant, owner, agent), context_id, row[5]), decode_segment(row[6])[-1]


def _segment(seq: int, sub: int, count: int, internal: int, blob: bytes) -> Segment:
    entries = decode_segment(blob)
    expected = [(entry.seq, entry.sub, len(entries), sum(1 for one in entries if one.sub)) for entry in entries[-1:]]
    return Segment(seq, sub, expected == [(seq, sub, count, internal)], entries)


def _tombstone(row: Any) -> Tombstone:
    task_id, tenant, owner, agent = (from_text(text) for text in row[:4])
    return Tombstone(task_id, Scope(tenant, owner, agent), STATE_OF[row[4]], *row[5:])
