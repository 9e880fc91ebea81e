"""Backups of the PostgreSQL journal: every table at one moment, in one file, while hosts continue to write.

A backup is a zip file with `backup.json`, which describes it, and each table in PostgreSQL's binary COPY format.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from roost.stores.postgres_pool import DatabaseTarget
from roost.stores.postgres_schema import VERSION, migrate

TABLES = (
    "scopes",
    "tasks",
    "segments",
    "reservations",
    "pushes",
    "dead_letters",
    "tombstones",
    "usage",
    "kept",
    "tokens",
    "signing_keys",
    "audit",
    "checkpoints",
    "leaves",
)
"""The tables in a backup. Leases and shared figures are left out, because no worker is alive after a restore.

So are the times when agents were served: nobody could serve them since the backup, so their time begins anew.
"""
NUMBERED = {"scopes": "id", "pushes": "number", "dead_letters": "number"}
COUNT_ON = """
    UPDATE meta
    SET value = CASE key
        WHEN 'audit' THEN (SELECT coalesce(max(number), 0) FROM audit)
        ELSE greatest(
            (SELECT coalesce(max(version), 0) FROM tokens), (SELECT coalesce(max(version), 0) FROM signing_keys)
        )
    END
    WHERE key IN ('audit', 'identities')
"""
"""Sets the counters after a restore, so that new rows get higher numbers than the restored ones."""
COPY_S = 24 * 3600.0


class About(Struct):
    format: str = "roost-postgresql-1"
    schema: int = VERSION
    readable: int = VERSION
    tables: dict[str, int] = {}
    """The number of rows of each table."""


class NoBackup(Exception):
    """The backup cannot be restored; the message says why."""


def back_up(url: str, file: Path) -> dict[str, int]:
    """Write the backup and return the number of rows of each table. The file appears only when it is complete."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            about = asyncio.run(_copy(url, out))
            out.flush()
            os.fsync(out.fileno())
        Path(name).replace(file)
    finally:
        Path(name).unlink(missing_ok=True)
    return about.tables


async def _copy(url: str, out: Any) -> About:
    target = DatabaseTarget(url)
    connection = await target.connect(command_s=COPY_S, statement_timeout="0", idle_in_transaction_session_timeout="0")
    try:
        return await _write(connection, out)
    except target.failures as error:
        raise target.unavailable(error) from error
    finally:
        await connection.close(timeout=5.0)


async def _write(connection: Any, out: Any) -> About:
    about = About()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            meta = {row["key"]: row["value"] for row in await connection.fetch("SELECT key, value FROM meta")}
            about.schema, about.readable = meta["schema"], meta["readable"]
            for table in TABLES:
                with archive.open(f"{table}.copy", "w", force_zip64=True) as member:
                    done = await connection.copy_from_table(
                        table, schema_name="roost", output=_Sink(member), format="binary"
                    )
                about.tables[table] = int(done.split()[-1])
        archive.writestr("backup.json", msgspec.json.encode(about))
    return about


class _Sink:
    """The coroutine function to which asyncpg writes."""

    def __init__(self, member: Any) -> None:
        self.member = member

    async def __call__(self, data: bytes) -> None:
        self.member.write(data)


def restore(url: str, file: Path) -> dict[str, int]:
    """Restore the backup into a database without tasks, all of it or nothing."""
    about = _about(file)
    asyncio.run(_put(url, file))
    return about.tables


async def _put(url: str, file: Path) -> None:
    target = DatabaseTarget(url)
    connection = await target.connect(command_s=COPY_S, statement_timeout="0", idle_in_transaction_session_timeout="0")
    try:
        async with connection.transaction():
            await migrate(connection)
            await connection.execute("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
            if await connection.fetchval("SELECT EXISTS (SELECT FROM tasks)"):
                raise NoBackup(f"{target.location} already has tasks: restore into an empty database")
            for table in (*TABLES, "served_agents"):
                await connection.execute(f"DELETE FROM {table}")
            with zipfile.ZipFile(file) as archive:
                for table in TABLES:
                    with archive.open(f"{table}.copy") as member:
                        await connection.copy_to_table(table, schema_name="roost", source=member, format="binary")
            for table, column in NUMBERED.items():
                await connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('roost.{table}', '{column}'),"
                    f" coalesce((SELECT max({column}) FROM {table}), 0) + 1, false)"
                )
            await connection.execute(COUNT_ON)
    except (zipfile.BadZipFile, EOFError) as error:
        raise NoBackup(f"{file} is damaged: {error}") from error
    except target.failures as error:
        raise target.unavailable(error) from error
    finally:
        await connection.close(timeout=5.0)


def _about(file: Path) -> About:
    """Check every byte of the file before anything is changed."""
    try:
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip()
            about = msgspec.json.decode(archive.read("backup.json"), type=About)
            missing = {f"{table}.copy" for table in TABLES} - set(archive.namelist())
    except FileNotFoundError:
        raise NoBackup(f"{file} does not exist") from None
    except (zipfile.BadZipFile, KeyError, msgspec.MsgspecError, OSError) as error:
        raise NoBackup(f"{file} is not a backup of a PostgreSQL journal: {error}") from error
    if broken or missing:
        raise NoBackup(f"{file} is damaged: {broken or ', '.join(sorted(missing))}")
    if about.schema != VERSION:
        raise NoBackup(
            f"{file} has schema {about.schema}, but this release of Roost restores schema {VERSION}:"
            " use the release that made it"
        )
    return about
