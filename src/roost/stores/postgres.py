"""The journal in PostgreSQL, for several hosts at once.

One call of a function commits a group (postgres_commit.py), on one of two connections. Reads and everything else have
connections of their own (postgres_pool.py), and so does the lease. Sessions keep prepared statements, so pgbouncer
works only with session pooling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from roost.engine.store_types import Append, OutcomeUnknown, Refusal, Scope, StoreUnavailable
from roost.stores.postgres_accounts import PostgresAccounts
from roost.stores.postgres_checkpoints import PostgresCheckpoints
from roost.stores.postgres_commit import COMMIT, arguments, digest, refusals
from roost.stores.postgres_identities import PostgresIdentities
from roost.stores.postgres_leases import PostgresLeases
from roost.stores.postgres_pool import CALL_S, TRIES, DatabaseTarget, Pool, back_off
from roost.stores.postgres_pushes import PostgresPushes
from roost.stores.postgres_reads import PostgresReads
from roost.stores.postgres_records import PostgresRecords
from roost.stores.postgres_rows import to_text
from roost.stores.postgres_schema import migrate

COMMITTING = 2
READING = 4
KNOWN_SCOPES = 10_000
MIGRATE_S = 600.0
"""Seconds for a migration, which may have to wait until another host has migrated a large database."""

FIND_SCOPE = "SELECT id FROM scopes WHERE digest = $1"
ADD_SCOPE = "INSERT INTO scopes (digest, tenant, owner, agent) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
PROBE = "UPDATE meta SET value = value + 1 WHERE key = 'probes' RETURNING true"


class PostgresStore(
    PostgresReads,
    PostgresLeases,
    PostgresPushes,
    PostgresRecords,
    PostgresCheckpoints,
    PostgresAccounts,
    PostgresIdentities,
):
    name = "postgresql"
    shared = True

    def __init__(self, url: str) -> None:
        super().__init__()
        self.target = DatabaseTarget(url)
        self.location = self.target.location
        self.committing = Pool(
            self.target,
            COMMITTING,
            enable_hashjoin="off",
            enable_mergejoin="off",
            plan_cache_mode="force_generic_plan",  # otherwise the first calls of a connection are planned one by one
        )
        self.pool = Pool(self.target, READING)
        self.lease = Pool(self.target, 1)
        self.scopes: dict[Scope, int] = {}

    async def open(self) -> None:
        connection = await self.target.connect(command_s=MIGRATE_S)
        try:
            encoding = await connection.fetchval("SHOW server_encoding")
            if encoding != "UTF8":
                raise StoreUnavailable(f"{self.location} has the encoding {encoding}: Roost needs a database with UTF8")
            await migrate(connection)
        except self.target.failures as error:
            raise self.target.unavailable(error) from error
        finally:
            await connection.close(timeout=1.0)

    async def close(self) -> None:
        for pool in (self.committing, self.pool, self.lease):
            await pool.close()

    async def probe(self) -> None:
        if not await self.pool.rows(PROBE):
            raise StoreUnavailable(f"{self.location}: the schema is damaged")

    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        if not group:
            return []
        scopes = {append.create.scope for append in group if append.create is not None}
        columns = arguments(group, {scope: await self._number_of(scope) for scope in scopes})
        for attempt in range(TRIES):
            sent = False
            try:
                async with asyncio.timeout(CALL_S), self.committing.lend() as connection:
                    sent = True
                    return refusals(group, await connection.fetch(COMMIT, *columns))
            except self.target.failures as error:
                if self.target.lost_race(error) and attempt < TRIES - 1:
                    await back_off(attempt)
                elif sent and not self.target.is_settled(error):
                    raise OutcomeUnknown(f"{self.location}: {self.target.reason(error)}") from error
                else:
                    raise self.target.unavailable(error) from error
        raise AssertionError("the last try returns or raises")

    async def _number_of(self, scope: Scope) -> int:
        number = self.scopes.get(scope)
        if number is None:
            key = digest(scope)
            found = await self.pool.rows(FIND_SCOPE, key)
            if not found:
                await self.pool.rows(ADD_SCOPE, key, *(to_text(part) for part in scope))
                found = await self.pool.rows(FIND_SCOPE, key)
            if len(self.scopes) >= KNOWN_SCOPES:
                self.scopes.clear()
            number = self.scopes[scope] = int(found[0][0])
        return number
