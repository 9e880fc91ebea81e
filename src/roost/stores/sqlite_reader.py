"""Reads the SQLite file: connections of their own, which hold no transaction between calls."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from roost.engine.ports import StoreUnavailable
from roost.stores.sqlite_writer import connect, reason

T = TypeVar("T")


class Readers:
    """So many threads, each with a connection."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self.threads = ThreadPoolExecutor(count, thread_name_prefix="sqlite-reader")
        self.local = threading.local()
        self.connections: list[sqlite3.Connection] = []

    async def do(self, work: Callable[..., T], *args: Any) -> T:
        """What `work` finds, given a connection; StoreUnavailable if SQLite refuses."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, self._guarded, work, *args)

    def close(self) -> None:
        self.threads.shutdown()
        for connection in self.connections:
            connection.close()

    def _guarded(self, work: Callable[..., T], *args: Any) -> T:
        try:
            return work(self._connection(), *args)
        except sqlite3.Error as error:
            raise StoreUnavailable(reason(self.path, error)) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = connect(self.path)
            connection.execute("PRAGMA query_only = 1")
            self.connections.append(connection)
        return connection
