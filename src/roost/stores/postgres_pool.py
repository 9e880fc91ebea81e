"""Connections to PostgreSQL that heal by themselves, and errors that say what is wrong and no password.

Every call ends: the server gives up a statement after STATEMENT_S, and after CALL_S the connection
is taken for dead and replaced, which is what a network that swallows bytes comes to.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from roost.engine.ports import StoreUnavailable

T = TypeVar("T")

CONNECT_S = 5.0
STATEMENT_S = 9.0
CALL_S = 10.0
TRIES = 5
"""Of a transaction that the server ended for the sake of another one."""

SETTINGS = {
    "application_name": "roost",
    "search_path": "roost",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "statement_timeout": str(round(STATEMENT_S * 1000)),
    "idle_in_transaction_session_timeout": str(round(CALL_S * 1000)),
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}
"""What this code relies on, whatever the server's defaults are.

A plan is kept for as long as a session. One that was made when the tables were empty would read all of them, and
one with a bitmap collects all that match before a limit counts; every statement here has an index to walk.
"""

HOST = re.compile(r"([^:\[\]]*|\[[^\]]*\])(:\d+)?")
LOST_RACE = ("40001", "40P01")
"""serialization_failure and deadlock_detected"""


class DriverMissing(Exception):
    """Roost was installed without the driver that a setting asks for."""


def driver() -> Any:
    """The module asyncpg, which has no types."""
    try:
        return import_module("asyncpg")
    except ModuleNotFoundError:
        raise DriverMissing("PostgreSQL needs a driver: pip install 'roost[postgres]'") from None


class DatabaseTarget:
    """A database to connect to, and how to speak of it."""

    def __init__(self, url: str) -> None:
        self.asyncpg = driver()
        self.url = url
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("postgresql", "postgres") or not all(map(HOST.fullmatch, hosts.split(","))):
            raise self._invalid()
        self.password = unquote(parts.password or "")
        self.location = f"postgresql://{hosts or 'localhost'}{parts.path}"
        self.failures: tuple[type[Exception], ...] = (
            self.asyncpg.PostgresError,
            self.asyncpg.InterfaceError,
            self.asyncpg.InternalClientError,
            OSError,
        )
        """What a call may raise. TimeoutError is an OSError."""

    @staticmethod
    def _invalid() -> StoreUnavailable:
        return StoreUnavailable("the store's URL has to look like postgresql://user:password@host:5432/database")

    async def connect(self, command_s: float = CALL_S, **settings: str) -> Any:
        """An asyncpg connection; StoreUnavailable if there is none to be had."""
        try:
            return await self.asyncpg.connect(
                self.url, timeout=CONNECT_S, command_timeout=command_s, server_settings=SETTINGS | settings
            )
        except self.asyncpg.ClientConfigurationError:
            raise self._invalid() from None
        except self.failures as error:
            raise StoreUnavailable(f"cannot connect to {self.location}: {self.reason(error)}") from error

    def unavailable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{self.location}: {self.reason(error)}")

    def reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return "no answer in time"
        text = str(error) or type(error).__name__
        return text.replace(self.password, "***") if self.password else text

    def is_settled(self, error: BaseException) -> bool:
        """Nothing was committed, and the session goes on: the server refused, or our values could not be sent."""
        return getattr(error, "severity_en", None) == "ERROR" or isinstance(error, self.asyncpg.DataError)

    @staticmethod
    def lost_race(error: Exception) -> bool:
        return getattr(error, "sqlstate", None) in LOST_RACE


class Pool:
    """Up to `size` connections, made when they are needed. The session's state is never reset: nobody changes it."""

    def __init__(self, target: DatabaseTarget, size: int, **settings: str) -> None:
        self.target = target
        self.settings = settings
        self.permits = asyncio.Semaphore(size)
        self.idle: list[Any] = []
        self.closed = False

    async def rows(self, sql: str, *args: Any) -> list[Any]:
        """One statement, a transaction of its own."""
        found: list[Any] = await self.do(lambda connection: connection.fetch(sql, *args))
        return found

    async def do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do `work` with a connection, again if it loses a race; StoreUnavailable if it cannot be done."""
        for attempt in range(TRIES):
            try:
                async with asyncio.timeout(CALL_S), self.lend() as connection:
                    return await work(connection)
            except self.target.failures as error:
                if not self.target.lost_race(error) or attempt == TRIES - 1:
                    raise self.target.unavailable(error) from error
                await back_off(attempt)
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Any]:
        """A connection; it is given up if it may be broken, or still busy with what was cancelled."""
        async with self.permits:
            connection = await self._take()
            try:
                yield connection
            except BaseException as error:
                if not self.target.is_settled(error):
                    connection.terminate()
                raise
            finally:
                if self.closed:
                    connection.terminate()
                elif not connection.is_closed():
                    self.idle.append(connection)

    async def close(self) -> None:
        self.closed = True
        idle, self.idle = self.idle, []
        for connection in idle:
            await connection.close(timeout=1.0)

    async def _take(self) -> Any:
        if self.closed:
            raise StoreUnavailable(f"{self.target.location}: the store is closed")
        while self.idle:
            connection = self.idle.pop()
            if not connection.is_closed():
                return connection
        return await self.target.connect(CALL_S, **self.settings)


async def back_off(attempt: int) -> None:
    await asyncio.sleep(random.uniform(0, 0.005 * 2**attempt))  # noqa: S311  # so that the two do not meet again
