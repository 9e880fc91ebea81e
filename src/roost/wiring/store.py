"""Opens the store, and loads the key that encrypts the secrets in it."""

from __future__ import annotations

from pathlib import Path

from roost.engine.ports import Store, Wakes
from roost.identity.seal import KeyFileError, Seal, load_key, new_key
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_process import WriterProcess


class StoreSetupError(Exception):
    """The store cannot be used with these settings; the message says what to change."""


def open_store(settings: Settings) -> Store:
    if settings.store:
        from roost.stores.postgres import PostgresStore  # an extra

        return PostgresStore(settings.store)
    return MemoryStore() if settings.memory else SQLiteStore(Path(settings.data), WriterProcess)


def open_wakes(settings: Settings, store: Store) -> Wakes | None:
    """Open the channel through which several hosts on one store wake each other. A single host needs none."""
    if not store.shared:
        return None
    from roost.stores.wakes import NatsWakes, PostgresWakes

    return NatsWakes(settings.wake, settings.store) if settings.wake else PostgresWakes(settings.store)


def open_seal(settings: Settings, store: Store) -> Seal:
    """Load the key that encrypts secrets in the store. For a store in memory it is not kept."""
    if not settings.secret_file and (isinstance(store, MemoryStore) or not settings.data):
        return Seal(new_key())
    try:
        if settings.secret_file:
            return Seal(load_key(Path(settings.secret_file), create=False))
        return Seal(load_key(Path(settings.data) / "secret.key", create=True))
    except KeyFileError as error:
        raise StoreSetupError(str(error)) from error
