"""Tokens, signing keys and the audit log in PostgreSQL, and the figures that hosts share.

A change of a token or a key first locks the row of meta that has the version, until the commit. So versions are in the
order of commits, and if two hosts replace the same key, the second one sees the change of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.identity.ports import Audited, Changes, NumberedAudit, SigningKey, Token
from roost.stores.postgres_pool import Pool
from roost.stores.postgres_rows import from_text, to_text

FRESH_MS = 5_000
"""Milliseconds for which the figures of a host count."""
FORGET_MS = 60_000
"""Milliseconds after which the figures of a host are deleted."""

IDENTITIES = (
    """CREATE TABLE tokens (
        id text COLLATE "C" PRIMARY KEY,
        version bigint NOT NULL, -- the value of meta's `identities` after the row's last change
        digest bytea NOT NULL UNIQUE,
        name text NOT NULL,
        subject text NOT NULL,
        tenants text[] NOT NULL,
        scopes text[] NOT NULL,
        created bigint NOT NULL,
        expires bigint,
        revoked bigint
    )""",
    "CREATE INDEX tokens_by_version ON tokens (version)",
    """CREATE TABLE signing_keys (
        agent text COLLATE "C" NOT NULL,
        kid text COLLATE "C" NOT NULL,
        version bigint NOT NULL,
        alg text NOT NULL,
        public bytea NOT NULL,
        sealed bytea NOT NULL,
        created bigint NOT NULL,
        until bigint,
        retired bigint,
        PRIMARY KEY (agent, kid)
    )""",
    "CREATE INDEX signing_keys_by_version ON signing_keys (version)",
    "CREATE UNIQUE INDEX signing_keys_current ON signing_keys (agent) WHERE until IS NULL",
    """CREATE TABLE audit (
        number bigint PRIMARY KEY, -- up to meta's `audit`, without gaps
        time bigint NOT NULL,
        actor text NOT NULL,
        action text NOT NULL,
        target text NOT NULL,
        outcome text NOT NULL,
        address text NOT NULL
    )""",
    "INSERT INTO meta VALUES ('identities', 0), ('audit', 0)",
    # The figures that hosts share each second. They are written again after a crash, so the table is not logged.
    # `told` is the time at which a host wrote them.
    """CREATE UNLOGGED TABLE figures (
        worker text COLLATE "C" PRIMARY KEY,
        figures bytea NOT NULL,
        told bigint NOT NULL
    )""",
)

TOKEN = "id, digest, name, subject, tenants, scopes, created, expires, revoked"  # noqa: S105  # columns
KEY = "agent, kid, alg, public, sealed, created, until, retired"

VERSION = "SELECT value FROM meta WHERE key = 'identities'"
NEXT_VERSION = "SELECT value + 1 FROM meta WHERE key = 'identities' FOR UPDATE"
RAISE_VERSION = "UPDATE meta SET value = $1 WHERE key = 'identities'"

# $1 is the next version; the statements return the rows that they change.
ADD_TOKEN = f"""
    INSERT INTO tokens (version, {TOKEN})
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT DO NOTHING
    RETURNING true
"""
REVOKE_TOKEN = "UPDATE tokens SET version = $1, revoked = $3 WHERE id = $2 AND revoked IS NULL RETURNING true"  # noqa: S105
CURRENT_KEY = """
    SELECT
        (SELECT kid FROM signing_keys WHERE agent = $1 AND until IS NULL),
        EXISTS (SELECT FROM signing_keys WHERE agent = $1 AND kid = $2)
"""
REPLACE_KEY = "UPDATE signing_keys SET version = $1, until = $4 WHERE agent = $2 AND kid = $3"
ADD_KEY = f"INSERT INTO signing_keys (version, {KEY}) VALUES ($1, $2, $3, $4, $5, $6, $7, NULL, NULL)"
RETIRE_KEY = """
    UPDATE signing_keys
    SET version = $1, retired = $4, sealed = ''
    WHERE agent = $2 AND kid = $3 AND until IS NOT NULL AND coalesce(retired > $4, true)
    RETURNING true
"""

WRITE_AUDIT = """
    WITH last AS (
        UPDATE meta SET value = value + cardinality($1::bigint[]) WHERE key = 'audit' RETURNING value
    ), gone AS (
        DELETE FROM audit WHERE number <= (SELECT value FROM last) - $7
    )
    INSERT INTO audit (number, time, actor, action, target, outcome, address)
    SELECT last.value - cardinality($1::bigint[]) + l.ord, l.time, l.actor, l.action, l.target, l.outcome, l.address
    FROM last
    CROSS JOIN unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
        WITH ORDINALITY AS l (time, actor, action, target, outcome, address, ord)
    WHERE last.value - cardinality($1::bigint[]) + l.ord > last.value - $7
"""
READ_AUDIT = """
    SELECT number, time, actor, action, target, outcome, address
    FROM audit
    WHERE number < $1
    ORDER BY number DESC
    LIMIT $2
"""

SHARE = f"""
    WITH written AS (
        INSERT INTO figures AS f (worker, figures, told)
        VALUES ($1, $2, now_ms())
        ON CONFLICT (worker) DO UPDATE
        SET figures = EXCLUDED.figures, told = EXCLUDED.told
    ), gone AS (
        DELETE FROM figures
        WHERE worker IN (
            SELECT worker FROM figures WHERE worker <> $1 AND told < now_ms() - {FORGET_MS} FOR UPDATE SKIP LOCKED
        )
    )
    SELECT worker, figures FROM figures WHERE worker <> $1 AND told >= now_ms() - {FRESH_MS}
"""


class PostgresIdentities:
    pool: Pool

    async def read_identities(self, after: int) -> Changes:
        [(version,)] = await self.pool.rows(VERSION)
        if version == after:
            return Changes(version, [], [])
        return await self.pool.do(lambda connection: _read(connection, after))

    async def add_token(self, token: Token) -> bool:
        row = (
            to_text(token.id),
            token.digest,
            to_text(token.name),
            to_text(token.subject),
            [to_text(tenant) for tenant in token.tenants],
            [to_text(scope) for scope in token.scopes],
            *token[6:],
        )
        return await self.pool.do(lambda connection: _change(connection, ADD_TOKEN, *row))

    async def revoke_token(self, token_id: str, at: int) -> Token | None:
        await self.pool.do(lambda connection: _change(connection, REVOKE_TOKEN, to_text(token_id), at))
        rows = await self.pool.rows(f"SELECT {TOKEN} FROM tokens WHERE id = $1", to_text(token_id))
        return _token(rows[0]) if rows else None

    async def add_key(self, key: SigningKey, replacing: str | None, until: int) -> bool:
        return await self.pool.do(lambda connection: _add_key(connection, key, replacing, until))

    async def retire_key(self, agent: str, kid: str, at: int) -> bool:
        return await self.pool.do(lambda connection: _change(connection, RETIRE_KEY, to_text(agent), to_text(kid), at))

    async def write_audit(self, lines: Sequence[Audited], keep: int) -> None:
        rows = [
            (line.time, *map(to_text, (line.actor, line.action, line.target, line.outcome, line.address)))
            for line in lines
        ]
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * len(Audited._fields)
        await self.pool.rows(WRITE_AUDIT, *columns, keep)

    async def read_audit(self, before: int | None, limit: int) -> list[NumberedAudit]:
        rows = await self.pool.rows(READ_AUDIT, 2**62 if before is None else before, limit)
        return [NumberedAudit(row[0], Audited(row[1], *map(from_text, row[2:]))) for row in rows]

    async def share(self, worker: str, figures: bytes) -> dict[str, bytes]:
        return dict(await self.pool.rows(SHARE, worker, figures))


async def _read(connection: Any, after: int) -> Changes:
    """Read tokens and keys at one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        version = await connection.fetchval(VERSION)
        tokens = await connection.fetch(f"SELECT {TOKEN} FROM tokens WHERE version > $1 ORDER BY version, id", after)
        keys = await connection.fetch(
            f"SELECT {KEY} FROM signing_keys WHERE version > $1 ORDER BY version, agent, kid", after
        )
    return Changes(version, [_token(row) for row in tokens], [_key(row) for row in keys])


async def _change(connection: Any, sql: str, *args: Any) -> bool:
    """Run a statement, and raise the version if it changed something; return whether it did."""
    async with connection.transaction():
        version = await connection.fetchval(NEXT_VERSION)
        if not await connection.fetch(sql, version, *args):
            return False
        await connection.execute(RAISE_VERSION, version)
        return True


async def _add_key(connection: Any, key: SigningKey, replacing: str | None, until: int) -> bool:
    agent, kid = to_text(key.agent), to_text(key.kid)
    async with connection.transaction():
        version = await connection.fetchval(NEXT_VERSION)
        current, known = await connection.fetchrow(CURRENT_KEY, agent, kid)
        if known or (None if current is None else from_text(current)) != replacing:
            return False
        await connection.execute(REPLACE_KEY, version, agent, current, until)
        await connection.execute(ADD_KEY, version, agent, kid, *key[2:6])
        await connection.execute(RAISE_VERSION, version)
        return True


def _token(row: Any) -> Token:
    token_id, digest, name, subject, tenants, scopes, *times = row
    token_id, name, subject = map(from_text, (token_id, name, subject))
    return Token(token_id, digest, name, subject, _from_texts(tenants), _from_texts(scopes), *times)


def _from_texts(texts: list[str]) -> tuple[str, ...]:
    return tuple(from_text(text) for text in texts)


def _key(row: Any) -> SigningKey:
    return SigningKey(from_text(row[0]), from_text(row[1]), *row[2:])
