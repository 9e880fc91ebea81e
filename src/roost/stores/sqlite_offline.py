"""The journal in a folder, for commands that look into it or mend it: beside the host that may be running on it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from roost.stores import sqlite_schema
from roost.stores.sqlite import JOURNAL, LOCK, SQLiteStore, StoreBroken
from roost.stores.sqlite_reader import Readers
from roost.stores.sqlite_thread import ThreadCarrier
from roost.stores.sqlite_writer import reason


class OfflineStore(SQLiteStore):
    """Takes no lock and commits no entries: tasks are the host's. The folder must have a journal of this schema."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / JOURNAL
        self.location = str(self.path)
        if not self.path.exists():
            raise StoreBroken(f"there is no journal in {folder}. Say where it is with --data")
        try:
            with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
                found = sqlite_schema.found(connection)
        except sqlite_schema.NotAJournal as error:
            raise StoreBroken(f"{self.path}: {error}") from error
        except sqlite3.Error as error:
            raise StoreBroken(reason(self.path, error)) from error
        if found != sqlite_schema.VERSION:
            raise StoreBroken(f"{self.path} was written by another release of Roost: start `roost serve` on it first")
        self.lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self.carrier = ThreadCarrier(self.path, self.lock)
        self.to_cancel = set()
        self.readers = Readers(self.path, 1)
