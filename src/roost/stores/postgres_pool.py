"""Connections to PostgreSQL that are replaced when they break, and errors that never contain the password.

Every call ends: the server cancels a statement after STATEMENT_S, and after CALL_S the connection is considered dead
and replaced, as it has to be when the network loses packets.
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

from roost.engine.store_types import StoreUnavailable

T = TypeVar("T")

CONNECT_S = 5.0
STATEMENT_S = 9.0
CALL_S = 10.0
TRIES = 5
"""The most attempts of a transaction that the server aborts in favour of another one."""

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
"""The settings on which this code relies, whatever the server's defaults are.

A plan is kept as long as the session. A plan that was made when the tables were empty would read them completely, and
one with a bitmap collects all matches before the limit applies; every statement here has an index to use.
"""

HOST = re.compile(r"([^:\[\]]*|\[[^\]]*\])(:\d+)?")
LOST_RACE = ("40001", "40P01")
"""serialization_failure and deadlock_detected"""


class DriverMissing(Exception):
    """Roost was installed without the driver that a setting needs."""


def driver() -> Any:
    """Import the module asyncpg, which has no types."""
    try:
        return import_module("asyncpg")
    except ModuleNotFoundError:
        raise DriverMissing("PostgreSQL needs a driver: pip install 'roost[postgres]'") from None


class DatabaseTarget:
    """A database to connect to, with its name and errors in words for people."""

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
        """The exceptions of a failed call. TimeoutError is an OSError."""

    @staticmethod
    def _invalid() -> StoreUnavailable:
        return StoreUnavailable("the URL of the store must look like postgresql://user:password@host:5432/database")

    async def connect(self, command_s: float = CALL_S, **settings: str) -> Any:
        """Open an asyncpg connection; StoreUnavailable if that fails."""
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
            return "it did not respond in time"
        text = str(error) or type(error).__name__
        return text.replace(self.password, "***") if self.password else text

    def is_settled(self, error: BaseException) -> bool:
        """Whether nothing was committed and the session still works: the server refused, or a value was invalid."""
        return getattr(error, "severity_en", None) == "ERROR" or isinstance(error, self.asyncpg.DataError)

    @staticmethod
    def lost_race(error: Exception) -> bool:
        return getattr(error, "sqlstate", None) in LOST_RACE


class Pool:
    """Up to `size` connections, made when they are needed. The state of a session is never changed, nor reset."""

    def __init__(self, target: DatabaseTarget, size: int, **settings: str) -> None:
        self.target = target
        self.settings = settings
        self.permits = asyncio.Semaphore(size)
        self.idle: list[Any] = []
        self.closed = False

    async def rows(self, sql: str, *args: Any) -> list[Any]:
        """Run one statement in a transaction of its own."""
        found: list[Any] = await self.do(lambda connection: connection.fetch(sql, *args))
        return found

    async def do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Call `work` with a connection, again if it loses a race; StoreUnavailable if it fails."""
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
        """Lend a connection. It is closed afterwards if it may be broken, or busy with a cancelled call."""
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
    await asyncio.sleep(random.uniform(0, 0.005 * 2**attempt))  # noqa: S311  # so that the two do not collide again
