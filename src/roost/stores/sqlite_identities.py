"""Queries for tokens, signing keys and the audit log.

Commands change them while a host is running, so nothing is cached here: each query reads the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from roost.identity.ports import Audited, Changes, NumberedAudit, SigningKey, Token

TOKEN = "id, digest, name, subject, tenants, scopes, created, expires, revoked"  # noqa: S105  # columns
KEY = "agent, kid, alg, public, sealed, created, until, retired"
VERSION = "SELECT value FROM meta WHERE key = 'identities'"

_decode_strings = msgspec.json.Decoder(tuple[str, ...]).decode


def read_identities(connection: sqlite3.Connection, after: int) -> Changes:
    connection.execute("BEGIN")
    try:
        [version] = connection.execute(VERSION).fetchone()
        if version == after:
            return Changes(version, [], [])
        tokens = connection.execute(f"SELECT {TOKEN} FROM tokens WHERE version > ? ORDER BY version, id", (after,))
        keys = connection.execute(
            f"SELECT {KEY} FROM signing_keys WHERE version > ? ORDER BY version, agent, kid", (after,)
        )
        return Changes(version, [_token(row) for row in tokens], [SigningKey(*row) for row in keys])
    finally:
        connection.execute("ROLLBACK")


def add_token(connection: sqlite3.Connection, token: Token) -> bool:
    tenants, scopes = (msgspec.json.encode(strings).decode() for strings in (token.tenants, token.scopes))
    done = connection.execute(
        f"INSERT INTO tokens (version, {TOKEN}) VALUES (({VERSION}) + 1, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (*token[:4], tenants, scopes, *token[6:]),
    )
    return _raise_version(connection, done)


def revoke_token(connection: sqlite3.Connection, token_id: str, at: int) -> Token | None:
    done = connection.execute(
        f"UPDATE tokens SET revoked = ?, version = ({VERSION}) + 1 WHERE id = ? AND revoked IS NULL", (at, token_id)
    )
    _raise_version(connection, done)
    row = connection.execute(f"SELECT {TOKEN} FROM tokens WHERE id = ?", (token_id,)).fetchone()
    return None if row is None else _token(row)


def add_key(connection: sqlite3.Connection, key: SigningKey, replacing: str | None, until: int) -> bool:
    current = connection.execute(
        "SELECT kid FROM signing_keys WHERE agent = ? AND until IS NULL", (key.agent,)
    ).fetchone()
    known = connection.execute("SELECT 1 FROM signing_keys WHERE agent = ? AND kid = ?", key[:2]).fetchone()
    if known is not None or (None if current is None else current[0]) != replacing:
        return False
    connection.execute(
        f"UPDATE signing_keys SET until = ?, version = ({VERSION}) + 1 WHERE agent = ? AND kid = ?",
        (until, key.agent, replacing),
    )
    done = connection.execute(
        f"INSERT INTO signing_keys (version, {KEY}) VALUES (({VERSION}) + 1, ?, ?, ?, ?, ?, ?, NULL, NULL)", key[:6]
    )
    return _raise_version(connection, done)


def retire_key(connection: sqlite3.Connection, agent: str, kid: str, at: int) -> bool:
    done = connection.execute(
        f"UPDATE signing_keys SET retired = ?, sealed = x'', version = ({VERSION}) + 1"
        " WHERE agent = ? AND kid = ? AND until IS NOT NULL AND ifnull(retired > ?, 1)",
        (at, agent, kid, at),
    )
    return _raise_version(connection, done)


def write_audit(connection: sqlite3.Connection, lines: Sequence[Audited], keep: int) -> None:
    """Add lines and delete the oldest. Numbers have no gaps, so the newest `keep` are those above a number."""
    connection.executemany(
        "INSERT INTO audit (time, actor, action, target, outcome, address) VALUES (?, ?, ?, ?, ?, ?)",
        lines,
    )
    connection.execute("DELETE FROM audit WHERE number <= (SELECT max(number) FROM audit) - ?", (keep,))


def read_audit(connection: sqlite3.Connection, before: int | None, limit: int) -> list[NumberedAudit]:
    where, args = ("", ()) if before is None else ("WHERE number < ?", (before,))
    rows = connection.execute(
        f"SELECT number, time, actor, action, target, outcome, address FROM audit {where} ORDER BY number DESC LIMIT ?",
        (*args, limit),
    )
    return [NumberedAudit(row[0], Audited(*row[1:])) for row in rows]


def _raise_version(connection: sqlite3.Connection, done: sqlite3.Cursor) -> bool:
    """Raise the version to that of the changed row; return False if no row was changed."""
    if done.rowcount == 0:
        return False
    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'identities'")
    return True


def _token(row: tuple[Any, ...]) -> Token:
    token_id, digest, name, subject, tenants, scopes, *times = row
    return Token(token_id, digest, name, subject, _decode_strings(tenants), _decode_strings(scopes), *times)
