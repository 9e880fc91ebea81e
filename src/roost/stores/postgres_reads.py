"""Queries that read the journal from PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roost.engine.store_types import COUNT_CAP, MOST_BYTES, ListQuery, Position, Stored, TaskPage, Update
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores.postgres_commit import digest
from roost.stores.postgres_pool import Pool
from roost.stores.postgres_rows import (
    HEAD,
    TASK,
    decode_segment,
    entries_after,
    fitting,
    head_of,
    stored_of,
    to_text,
)
from roost.stores.sqlite_schema import CODE_OF, STATE_OF, UNLISTED

STATES = [code for code in STATE_OF if code > 0]

SNAPSHOT = """
    LEFT JOIN LATERAL (
        SELECT last_seq, last_sub, body, artifacts,
            octet_length(body) + coalesce(octet_length(artifacts), 0) AS size, octet_length(body) AS body_size
        FROM segments
        WHERE task_id = t.id AND body IS NOT NULL
        ORDER BY last_seq DESC, last_sub DESC
        LIMIT 1
    ) s ON true
"""

READ_TASK = f"""
    SELECT {TASK}, s.last_seq, s.last_sub, CASE WHEN s.size <= $2 THEN s.body END,
        CASE WHEN s.size <= $2 THEN s.artifacts END, coalesce(s.size, 0)
    FROM tasks t
    JOIN scopes c ON c.id = t.scope
    {SNAPSHOT}
    WHERE t.id = $1
"""
READ_OWNED = f"{READ_TASK} AND c.owner = $3"
ANY_SIZE = 2**31 - 1


def _segments(task_id: str, seq: str, sub: str, limit: str, most: str, counted: str = "count") -> str:
    """Select segments after a position, until they hold `limit` entries or `most` bytes.

    The first may hold earlier entries too, and may be larger.
    """
    return f"""
        SELECT entries, last_seq, last_sub
        FROM (
            SELECT entries, last_seq, last_sub,
                sum({counted}) OVER (ORDER BY last_seq, last_sub) - {counted}
                    - first_value({counted}) OVER (ORDER BY last_seq, last_sub) AS before,
                sum(octet_length(entries)) OVER (ORDER BY last_seq, last_sub) AS size,
                row_number() OVER (ORDER BY last_seq, last_sub) AS number
            FROM segments
            WHERE task_id = {task_id} AND (last_seq, last_sub) > ({seq}, {sub}) AND {counted} > 0
            ORDER BY last_seq, last_sub
            LIMIT {limit} + 1
        ) found
        WHERE before < {limit} AND (number = 1 OR size <= {most})
        ORDER BY last_seq, last_sub
    """


READ_ENTRIES = _segments("$1", "$2", "$3", "$4::bigint", "$5::bigint")
READ_WIRE = _segments("$1", "$2", "$3", "$4::bigint", "$5::bigint", "(count - internal)")
READ_INTERNAL = "SELECT entries FROM segments WHERE task_id = $1 AND internal > 0 ORDER BY last_seq, last_sub"
READ_UPDATES = f"""
    SELECT p.ord, {HEAD}, s.entries
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS p (id, seq, sub, ord)
    JOIN tasks t ON t.id = p.id
    LEFT JOIN LATERAL ({_segments("p.id", "p.seq", "p.sub", "$4::bigint", str(ANY_SIZE))}) s ON true
    ORDER BY p.ord, s.last_seq, s.last_sub
"""


class PostgresReads:
    pool: Pool

    async def read_task(self, task_id: str, owner: str | None = None, most: int | None = None) -> Stored | None:
        size = ANY_SIZE if most is None else most
        if owner is None:
            rows = await self.pool.rows(READ_TASK, to_text(task_id), size)
        else:
            rows = await self.pool.rows(READ_OWNED, to_text(task_id), size, to_text(owner))
        return stored_of(rows[0]) if rows else None

    async def read_entries(
        self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0, most: int = MOST_BYTES
    ) -> list[Entry]:
        rows = await self.pool.rows(READ_WIRE if wire else READ_ENTRIES, to_text(task_id), after, sub, limit, most)
        found = [entry for entry in entries_after((row[0] for row in rows), (after, sub)) if not (wire and entry.sub)]
        return fitting(found[:limit], most)

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
        total, size, cut = rows[0][:3]
        tasks = [stored_of(row[3:]) for row in rows if row[3] is not None]
        return TaskPage(tasks, total, size, cut)


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
        limit, most = self._arg(query.limit), self._arg(query.most)
        unread = self._arg(ANY_SIZE if query.unread is None else query.unread)
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
            ), sized AS (
                SELECT {TASK}, s.last_seq, s.last_sub, s.body,
                    {"s.artifacts" if query.artifacts else "NULL"} AS artifacts,
                    coalesce({"s.size" if query.artifacts else "s.body_size"}, 0) AS size
                FROM page t
                JOIN scopes c ON c.id = t.scope
                {SNAPSHOT}
            ), summed AS (
                SELECT *, sum(size) OVER (ORDER BY status_time DESC, id) AS until,
                    row_number() OVER (ORDER BY status_time DESC, id) AS number
                FROM sized
            ), fitting AS (
                SELECT * FROM summed WHERE number = 1 OR until <= {most}
            ), pages AS (
                SELECT coalesce(max(until), 0)::bigint AS bytes,
                    count(*) < (SELECT count(*) FROM page) AS cut
                FROM fitting
            )
            SELECT counted.total, pages.bytes, pages.cut, id, tenant, owner, agent, context_id, created, state,
                status_time, worker, fence, hidden, last_seq, last_sub, body, artifacts, size
            FROM counted
            CROSS JOIN pages
            LEFT JOIN fitting ON pages.bytes <= {unread}
            ORDER BY status_time DESC, id
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
