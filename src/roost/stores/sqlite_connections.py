"""The connections of a SQLite store. Its methods run SQL functions on a reader, or in a transaction of the writer."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from roost.engine.store_types import Append, StoreUnavailable
from roost.stores.sqlite_files import JournalFiles, JournalLock, found_ids
from roost.stores.sqlite_writer import SQLiteWriter, connect, reason

P = ParamSpec("P")
T = TypeVar("T")
Query = Callable[Concatenate[sqlite3.Connection, P], T]
"""A function with SQL: it takes a connection and the arguments of the store's method."""


class Writer(Protocol):
    """The one connection that writes, in a thread or in a process (sqlite_process.py)."""

    async def commit(self, group: Sequence[Append], reserve_ids: Sequence[int | None]) -> list[int]:
        """Call SQLiteWriter.commit."""

    async def do(self, query: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one of sqlite_writer.OPERATIONS in a transaction."""

    async def close(self) -> None: ...


class WriterThread:
    """The writer for a host inside another program, for commands and for tests."""

    def __init__(self, path: Path, lock: JournalLock | None = None) -> None:
        """Open the file. With `lock`, the host's, its files must be and stay those that are there now."""
        self.writer = SQLiteWriter(path, None if lock is None else JournalFiles(path, found_ids(path)))
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="sqlite-writer", daemon=True)
        self.thread.start()

    async def commit(self, group: Sequence[Append], reserve_ids: Sequence[int | None]) -> list[int]:
        return await self._run(partial(self.writer.commit, group, reserve_ids))

    async def do(self, query: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(partial(self.writer.do, query, *args, **kwargs))

    async def close(self) -> None:
        self.jobs.put(None)
        self.thread.join()
        self.writer.close()

    async def _run(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.jobs.put((work, loop, future))
        return await future

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            work, loop, future = job
            result: Any = None
            failure: Exception | None = None
            try:
                result = work()
            except Exception as error:
                failure = error
            try:
                loop.call_soon_threadsafe(_settle, future, result, failure)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more


_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


def _settle(future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)


class Readers:
    """Threads that read, each with a connection that holds no transaction between calls."""

    def __init__(self, path: Path, count: int) -> None:
        """Open the connections, before the file can be deleted or the disk be full."""
        self.path = path
        self.connections: list[sqlite3.Connection] = []
        try:
            for _ in range(count):
                self.connections.append(connect(path))
                self.connections[-1].execute("PRAGMA query_only = 1")
        except BaseException:
            self._disconnect()
            raise
        self.unused = list(self.connections)
        self.local = threading.local()
        self.threads = ThreadPoolExecutor(count, thread_name_prefix="sqlite-reader", initializer=self._take)

    async def do(self, query: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the query; raise StoreUnavailable if SQLite refuses."""
        work = partial(query, **kwargs) if kwargs else query
        return await asyncio.get_running_loop().run_in_executor(self.threads, self._guarded, work, *args)

    def close(self) -> None:
        self.threads.shutdown()
        self._disconnect()

    def _guarded(self, query: Callable[..., T], *args: Any) -> T:
        try:
            return query(self.local.connection, *args)
        except sqlite3.Error as error:
            raise StoreUnavailable(reason(self.path, error)) from error

    def _take(self) -> None:
        self.local.connection = self.unused.pop()

    def _disconnect(self) -> None:
        for connection in self.connections:
            connection.close()


class SQLiteConnections:
    """The readers and the writer of a store, which the methods made by `reads` and `writes` use."""

    def __init__(self, readers: Readers, writer: Writer) -> None:
        self.readers = readers
        self.writer = writer


def reads(query: Query[P, T]) -> Callable[Concatenate[SQLiteConnections, P], Coroutine[Any, Any, T]]:
    """Make the query a method that runs on a reader."""

    async def method(store: SQLiteConnections, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.readers.do(query, *args, **kwargs)

    return method


def writes(query: Query[P, T]) -> Callable[Concatenate[SQLiteConnections, P], Coroutine[Any, Any, T]]:
    """Make the query a method that runs in a transaction of the writer."""

    async def method(store: SQLiteConnections, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.writer.do(query, *args, **kwargs)

    return method
