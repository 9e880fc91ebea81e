"""The store itself, for commands that need no running host and disturb none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from roost import settings as config
from roost.cli.errors import CommandFailed
from roost.engine.ports import AdminStore, StoreUnavailable
from roost.identity.principal import principal_name, user_name
from roost.settings import SettingError, Settings
from roost.stores.postgres_pool import DriverMissing
from roost.stores.sqlite import OfflineStore, SQLiteStore, StoreBroken, StoreInUse
from roost.stores.sqlite_schema import NewerSchema

T = TypeVar("T")

WHERE = ("data", "store", "secret_file")
"""The settings that such a command has as flags."""


def with_store(flags: dict[str, Any], work: Callable[[AdminStore, Settings], Awaitable[T]], *, make: bool = False) -> T:
    """What `work` makes of the store that the flags, the variables and roost.toml name; `make` one if there is none."""
    try:
        settings = config.settings_of(config.read(flags))
    except SettingError as error:
        raise CommandFailed(str(error)) from error
    if settings.memory:
        raise CommandFailed("a host with `memory` keeps nothing that a command could look into")
    try:
        return asyncio.run(_with(settings, work, make))
    except (StoreBroken, StoreInUse, StoreUnavailable, NewerSchema, DriverMissing) as error:
        raise CommandFailed(str(error)) from error


async def _with(settings: Settings, work: Callable[[AdminStore, Settings], Awaitable[T]], make: bool) -> T:
    store = open_store_for_cli(settings, make=make)
    await store.open()
    try:
        return await work(store, settings)
    finally:
        await store.close()


def me() -> str:
    """Who runs this command, for the audit log."""
    return principal_name("unix", user_name(os.getuid()))


def open_store_for_cli(settings: Settings, *, make: bool = False) -> AdminStore:
    if settings.store:
        from roost.stores.postgres import PostgresStore  # an extra

        return PostgresStore(settings.store)
    folder = Path(settings.data)
    try:
        return OfflineStore(folder)
    except StoreBroken:
        if not make:
            raise
        return SQLiteStore(folder)  # which makes a journal, or brings an old one to this release
