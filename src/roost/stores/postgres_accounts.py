"""The accounts of what PostgreSQL stores for tenants, owners and agents."""

from __future__ import annotations

from collections.abc import Sequence

from roost.engine.store_types import Party, StoredUsage, UsageDelta
from roost.stores.postgres_pool import Pool
from roost.stores.postgres_rows import from_text, to_text

SIZE = "octet_length(entries) + coalesce(octet_length(body), 0) + coalesce(octet_length(artifacts), 0)"
"""The bytes of a segment, as the accounts count them."""
ADD_TO_KEPT = """
    INSERT INTO kept AS k (digest, party, name, tasks, size)
    SELECT account(a.party, a.name) AS digest, a.party, a.name, sum(d.tasks), sum(d.size)
    FROM deltas d
    CROSS JOIN LATERAL (VALUES ('tenant', d.tenant), ('owner', d.owner), ('agent', d.agent)) AS a (party, name)
    GROUP BY a.party, a.name
    ORDER BY digest
    ON CONFLICT (digest) DO UPDATE
    SET tasks = k.tasks + EXCLUDED.tasks, size = k.size + EXCLUDED.size
"""
"""Adds `deltas` (tenant, owner, agent, tasks, size) to the accounts, which everyone locks in the same order."""

ACCOUNTS = (
    # It replaces `usage`, which stays for older releases. They count differently, so this is computed anew.
    """CREATE TABLE kept (
        digest bytea PRIMARY KEY, -- of party and name, which together may be too long for an index
        party text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        tasks bigint NOT NULL,
        size bigint NOT NULL
    )""",
    "CREATE INDEX kept_of_agents ON kept (party) WHERE party = 'agent'",
    """CREATE FUNCTION account(party text, name text) RETURNS bytea LANGUAGE sql STABLE
        AS 'SELECT sha256(convert_to(party || '' '' || name, ''UTF8''))'""",
    f"""WITH deltas AS (
        SELECT c.tenant, c.owner, c.agent, count(*) AS tasks, coalesce(sum(s.size), 0) AS size
        FROM tasks t
        JOIN scopes c ON c.id = t.scope
        LEFT JOIN (SELECT task_id, sum({SIZE}) AS size FROM segments GROUP BY task_id) s ON s.task_id = t.id
        GROUP BY c.id
    )
    {ADD_TO_KEPT}""",
)

ADD_USAGE = f"""
    WITH deltas AS (
        SELECT *
        FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
            AS d (tenant, owner, agent, tasks, size)
    )
    {ADD_TO_KEPT}
"""
USAGE = "SELECT name, tasks, size FROM kept WHERE party = 'agent' ORDER BY name"
STORED_BYTES = """
    SELECT coalesce(k.size, 0)
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS a (party, name, ord)
    LEFT JOIN kept k ON k.digest = account(a.party, a.name)
    ORDER BY a.ord
"""


class PostgresAccounts:
    pool: Pool

    async def add_usage(self, deltas: Sequence[UsageDelta]) -> None:
        await self.pool.rows(
            ADD_USAGE,
            [to_text(delta.tenant) for delta in deltas],
            [to_text(delta.owner) for delta in deltas],
            [to_text(delta.agent) for delta in deltas],
            [delta.tasks for delta in deltas],
            [delta.size for delta in deltas],
        )

    async def usage(self) -> list[StoredUsage]:
        rows = await self.pool.rows(USAGE)
        return [StoredUsage(from_text(name), tasks, size) for name, tasks, size in rows]

    async def stored_bytes(self, accounts: Sequence[tuple[Party, str]]) -> list[int]:
        parties, names = [party for party, _ in accounts], [to_text(name) for _, name in accounts]
        return [row[0] for row in await self.pool.rows(STORED_BYTES, parties, names)]
