"""`roost backup` and `roost restore`: the whole journal in one file, while hosts go on."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Any

import typer

from roost import settings as config
from roost.cli.errors import CommandFailed
from roost.cli.options import Json
from roost.cli.output import json_line, note
from roost.engine.ports import StoreUnavailable
from roost.protocol.codec import encode
from roost.settings import SettingError, Settings, without_password
from roost.stores.sqlite import StoreBroken, StoreInUse
from roost.stores.sqlite_schema import NewerSchema

To = Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")]
From = Annotated[Path, typer.Argument(metavar="FILE", help="What `roost backup` wrote.")]
WithSecret = Annotated[
    bool, typer.Option("--with-secret", help="Copy the key of the secrets too, into FILE.key. SQLite only.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace the journal that is there. SQLite only.")]


def backup(file: To, with_secret: WithSecret = False, as_json: Json = False, **flags: Any) -> None:
    """Copy the journal into a file, as of one moment. Hosts may go on meanwhile."""
    from roost.stores.sqlite_backup import BackupError, backup_sqlite

    settings = _settings(flags)
    note(f"copying {_place(settings)}")
    try:
        if settings.store:
            from roost.stores import postgres_backup  # an extra

            if with_secret:
                raise CommandFailed("with PostgreSQL the key is in --secret-file: copy that file yourself")
            postgres_backup.back_up(settings.store, file)
        else:
            backup_sqlite(Path(settings.data), file, include_secret=with_secret)
    except (BackupError, StoreBroken, StoreUnavailable, NewerSchema, OSError) as error:
        raise CommandFailed(f"there is no backup: {error}") from error
    size = file.stat().st_size
    if as_json:
        json_line(encode({"file": str(file), "bytes": size}))
    else:
        print(f"{file} holds the journal, {size:,} bytes")
        if not with_secret:
            note("the key of the secrets is not in it: keep it as well, or webhooks cannot be called after a restore")


def restore(file: From, force: Force = False, as_json: Json = False, **flags: Any) -> None:
    """Put a backup in the place of the journal. No host may be running on it."""
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
                raise BackupError(f"{file} is a backup of a PostgreSQL journal: say with --store where to put it")
            restore_sqlite(file, Path(settings.data), force=force)
    except (BackupError, StoreBroken, StoreInUse, StoreUnavailable, NewerSchema, OSError) as error:
        raise CommandFailed(f"nothing was restored: {error}") from error
    if as_json:
        json_line(encode({"file": str(file), "into": _place(settings)}))
    else:
        print(f"{_place(settings)} is as it was when {file} was written")


def _settings(flags: dict[str, Any]) -> Settings:
    try:
        settings = config.settings_of(config.read(flags))
    except SettingError as error:
        raise CommandFailed(str(error)) from error
    if settings.memory:
        raise CommandFailed("a host with `memory` keeps nothing")
    return settings


def _place(settings: Settings) -> str:
    return without_password(settings.store) if settings.store else settings.data
