"""`roost backup` and `roost restore`: the whole journal in one file, copied while hosts run."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from roost.cli.errors import CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note
from roost.cli.settings import STORE, read_settings, with_settings
from roost.engine.store_types import StoreUnavailable
from roost.protocol.codec import encode
from roost.settings import Settings
from roost.settings_reading import without_password
from roost.stores.sqlite import StoreBroken
from roost.stores.sqlite_files import StoreInUse
from roost.stores.sqlite_schema import NewerSchema

To = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]
From = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `roost backup` wrote.")]
WithSecret = Annotated[
    bool, typer.Option("--with-secret", help="Copy the key that encrypts secrets too, to FILE.key. SQLite only.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing journal. SQLite only.")]


@with_settings(*STORE)
def backup(file: To, with_secret: WithSecret = False, as_json: Json = False, **flags: Any) -> None:
    """Copy the journal to a file, as of one moment. Hosts may keep running."""
    from roost.stores.sqlite_backup import BackupError, backup_sqlite

    settings = _settings(flags)
    note(f"copying {_place(settings)}")
    try:
        if settings.store:
            from roost.stores import postgres_backup  # an extra

            if with_secret:
                raise CommandFailed("with PostgreSQL the key is the file of --secret-file: copy that file yourself")
            postgres_backup.back_up(settings.store, file)
        else:
            backup_sqlite(Path(settings.data), file, include_secret=with_secret)
    except (BackupError, StoreBroken, StoreUnavailable, NewerSchema, OSError) as error:
        raise CommandFailed(f"no backup was made: {error}") from error
    size = file.stat().st_size
    if as_json:
        json_line(encode({"file": str(file), "bytes": size}))
    else:
        print(f"{file} holds the journal, {size:,} bytes")
        if not with_secret:
            note("it does not hold the key that encrypts secrets: back that up too, or webhooks fail after a restore")


@with_settings(*STORE)
def restore(file: From, force: Force = False, as_json: Json = False, **flags: Any) -> None:
    """Replace the journal with a backup. No host may be running on it."""
    from roost.stores.sqlite_backup import BackupError, restore_sqlite

    settings = _settings(flags)
    note(f"checking {file}")
    try:
        if settings.store:
            from roost.stores import postgres_backup  # an extra

            try:
                postgres_backup.restore(settings.store, file)
            except postgres_backup.NoBackup as error:
                raise BackupError(str(error)) from error
        else:
            if zipfile.is_zipfile(file):
                raise BackupError(f"{file} is a backup of a PostgreSQL journal: name the database with --store")
            restore_sqlite(file, Path(settings.data), force=force)
    except (BackupError, StoreBroken, StoreInUse, StoreUnavailable, NewerSchema, OSError) as error:
        raise CommandFailed(f"nothing was restored: {error}") from error
    if as_json:
        json_line(encode({"file": str(file), "into": _place(settings)}))
    else:
        print(f"restored {_place(settings)} from {file}")


def _settings(flags: dict[str, Any]) -> Settings:
    settings = read_settings(flags)
    if settings.memory:
        raise CommandFailed("`memory` is set, so there is no journal on disk")
    return settings


def _place(settings: Settings) -> str:
    return without_password(settings.store) if settings.store else settings.data
