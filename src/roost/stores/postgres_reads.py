"""Queries that read the journal from PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roost.engine.store_types import COUNT_CAP, ListQuery, Position, Stored, TaskPage, Update
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores.postgres_commit import digest
from roost.stores.postgres_pool import Pool
from roost.stores.postgres_rows import (
    HEAD,
    TASK,
    decode_segment,
    entries_after,
    head_of,
    stored_of,
    to_text,
)
from roost.stores.sqlite_schema import CODE_OF, STATE_OF, UNLISTED

STATES = [code for code in STATE_OF if code > 0]

SNAPSHOT = """
    LEFT JOIN LATERAL (
        SELECT last_seq, last_sub, body, artifacts
        FROM segments
        WHERE task_id = t.id AND body IS NOT NULL
        ORDER BY last_seq DESC, last_sub DESC
        LIMIT 1
    ) s ON true
"""

READ_TASK = f"""
    SELECT {TASK}, s.last_seq, s.last_sub, s.body, s.artifacts
    FROM tasks t
    JOIN scopes c ON c.id = t.scope
    {SNAPSHOT}
    WHERE t.id = $1
"""
READ_OWNED = f"{READ_TASK} AND c.owner = $2"


def _segments(task_id: str, seq: str, sub: str, limit: str, counted: str = "count") -> str:
    """Select segments after a position, until they hold `limit` entries. The first may hold earlier entries too."""
    return f"""
        SELECT entries, last_seq, last_sub
        FROM (
            SELECT entries, last_seq, last_sub,
                sum({counted}) OVER (ORDER BY last_seq, last_sub) - {counted}
                    - first_value({counted}) OVER (ORDER BY last_seq, last_sub) AS before
            FROM segments
            WHERE task_id = {task_id} AND (last_seq, last_sub) > ({seq}, {sub}) AND {counted} > 0
            ORDER BY last_seq, last_sub
            LIMIT {limit} + 1
        ) found
        WHERE before < {limit}
        ORDER BY last_seq, last_sub
    """


READ_ENTRIES = _segments("$1", "$2", "$3", "$4::bigint")
READ_WIRE = _segments("$1", "$2", "$3", "$4::bigint", "(count - internal)")
READ_INTERNAL = "SELECT entries FROM segments WHERE task_id = $1 AND internal > 0 ORDER BY last_seq, last_sub"
READ_UPDATES = f"""
    SELECT p.ord, {HEAD}, s.entries
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS p (id, seq, sub, ord)
    JOIN tasks t ON t.id = p.id
    LEFT JOIN LATERAL ({_segments("p.id", "p.seq", "p.sub", "$4::bigint")}) s ON true
    ORDER BY p.ord, s.last_seq, s.last_sub
"""


class PostgresReads:
    pool: Pool

    async def read_task(self, task_id: str, owner: str | None = None) -> Stored | None:
        if owner is None:
            rows = await self.pool.rows(READ_TASK, to_text(task_id))
        else:
            rows = await self.pool.rows(READ_OWNED, to_text(task_id), to_text(owner))
        return stored_of(rows[0]) if rows else None

    async def read_entries(self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0) -> list[Entry]:
        rows = await self.pool.rows(READ_WIRE if wire else READ_ENTRIES, to_text(task_id), after, sub, limit)
        found = entries_after((row[0] for row in rows), (after, sub))
        return [entry for entry in found if not (wire and entry.sub)][:limit]

    async def read_internal(self, task_id: str) -> list[Entry]:
        rows = await self.pool.rows(READ_INTERNAL, to_text(task_id))
        return [entry for row in rows for entry in decode_segment(row[0]) if entry.sub]

    async def read_updates(self, positions: Sequence[Position], limit: int) -> list[Update]:
        columns = [
            [to_text(at.task_id) for at in positions],
            [at.seq for at in positions],
            [at.sub for at in positions],
        ]
        found: dict[int, Update] = {}
        for row in await self.pool.rows(READ_UPDATES, *columns, limit):
            task_id, seq, sub = positions[row[0] - 1]
            update = found.get(row[0])
            if update is None:
                update = found[row[0]] = Update(task_id, head_of(row[1:6]), [])
            if row[6] is not None:
                update.entries.extend(entries_after([row[6]], (seq, sub)))
        return list(found.values())

    async def list_tasks(self, query: ListQuery) -> TaskPage:
        statement = _Listing(query)
        rows = await self.pool.rows(statement.sql, *statement.args)
        tasks = [stored_of(row[1:]) for row in rows if row[1] is not None]
        return TaskPage(tasks, rows[0][0])


class _Listing:
    """The statement for a page of tasks and their total number. Each part of it uses one index in its order."""

    def __init__(self, query: ListQuery) -> None:
        self.args: list[Any] = []
        conditions = [f"scope = (SELECT id FROM scopes WHERE digest = {self._arg(digest(query.scope))})"]
        if query.context_id:
            conditions.append(f"context_id = {self._arg(to_text(query.context_id))}")
        if query.context_id and query.state is not TaskState.UNSPECIFIED:
            conditions.append(f"state = {CODE_OF[query.state]}")
        if query.after is not None:
            conditions.append(f"status_time >= {self._arg(math.ceil(query.after.timestamp() * 1000))}")
        every = [" AND ".join([part, *conditions]) for part in _parts(query)]
        if query.cursor is not None:
            at, after = self._arg(query.cursor[0]), self._arg(to_text(query.cursor[1]))
            conditions.append(f"status_time <= {at} AND (status_time < {at} OR id > {after})")
        paged = [" AND ".join([part, *conditions]) for part in _parts(query)]
        limit = self._arg(query.limit)
        self.sql = f"""
            WITH page AS (
                SELECT *
                FROM (
                    {" UNION ALL ".join(f"(SELECT * FROM tasks WHERE {one} {_ORDER} LIMIT {limit})" for one in paged)}
                ) found
                {_ORDER}
                LIMIT {limit}
            ), counted AS (
                SELECT count(*) AS total
                FROM (
                    {" UNION ALL ".join(f"SELECT 1 FROM tasks WHERE {one}" for one in every)}
                    LIMIT {COUNT_CAP}
                ) found
            )
            SELECT counted.total, {TASK}, s.last_seq, s.last_sub, s.body, {"s.artifacts" if query.artifacts else "NULL"}
            FROM counted
            LEFT JOIN page t ON true
            LEFT JOIN scopes c ON c.id = t.scope
            {SNAPSHOT}
            ORDER BY t.status_time DESC, t.id
        """

    def _arg(self, value: Any) -> str:
        self.args.append(value)
        return f"${len(self.args)}"


_ORDER = "ORDER BY status_time DESC, id"


def _parts(query: ListQuery) -> list[str]:
    """Return conditions that together match all tasks that may be listed."""
    if query.context_id:
        return [f"place <> {UNLISTED} AND NOT hidden"]
    states = STATES if query.state is TaskState.UNSPECIFIED else [CODE_OF[query.state]]
    return [f"NOT hidden AND state = {code}" for code in states]
