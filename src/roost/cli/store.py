"""Opens the store for commands that need no running host and do not disturb one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from roost.cli.errors import CommandFailed
from roost.cli.settings import read_settings
from roost.engine.ports import AdminStore
from roost.engine.store_types import StoreUnavailable
from roost.identity.principal import principal_name, user_name
from roost.settings import Settings
from roost.stores.postgres_pool import DriverMissing
from roost.stores.sqlite import OfflineStore, SQLiteStore, StoreBroken
from roost.stores.sqlite_files import StoreInUse
from roost.stores.sqlite_schema import NewerSchema

T = TypeVar("T")


def with_store(flags: dict[str, Any], work: Callable[[AdminStore, Settings], Awaitable[T]], *, make: bool = False) -> T:
    """The result of `work` on the store that the settings name. With `make`, a missing store is created."""
    settings = read_settings(flags)
    if settings.memory:
        raise CommandFailed("`memory` is set, so there is no store that a command could open")
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
    """The user who runs this command, for the audit log."""
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
        return SQLiteStore(folder)  # creates a journal, or migrates an old one
