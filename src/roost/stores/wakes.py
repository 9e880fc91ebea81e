"""Wake-ups between hosts on one PostgreSQL: which tasks have new entries, by NOTIFY or through NATS.

tell -> pending (a set) -> one sender -> NOTIFY or NATS -> on_wake of every other host

Nothing here may delay a host. Ids that cannot be sent are dropped, and a lost connection is made again for as long as
it takes; in the meantime the hosts find new entries by polling, each second.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from roost.stores.postgres_pool import DatabaseTarget, DriverMissing

log = logging.getLogger("roost.stores")

PENDING = 10_000
"""Ids that may wait to be sent; further ones are dropped."""
PAYLOAD = 7_900
"""The most bytes in one notification; NOTIFY accepts 7,999."""
CHANNEL = "roost_wake"
SUBJECT = "roost.wake"
FIRST_S = 5.0
"""Seconds that `listen` waits for the first connection."""
BEAT_S = 10.0
"""Seconds between two keep-alive messages on an idle connection."""
LOOK_S = 0.2
"""Seconds between two checks that NATS is still connected."""
SEND_S = 5.0
RETRY_S, RETRY_MAX_S = 0.2, 2.0

OnWake = Callable[[Sequence[str]], None]
"""A function that is called with the ids of tasks for which another host has committed entries."""


class _ConnectedWakes:
    """The common part of both kinds of wake-ups: a task that keeps the connection, and a task that sends."""

    def __init__(self) -> None:
        self.on_wake: OnWake = lambda task_ids: None
        self.pending: dict[str, None] = {}
        self.connected = False
        self.tried = asyncio.Event()
        self.lost = asyncio.Event()
        self.connector: asyncio.Task[None] | None = None
        self.sender: asyncio.Task[None] | None = None

    async def listen(self, on_wake: OnWake) -> None:
        self.on_wake = on_wake
        self.connector = asyncio.get_running_loop().create_task(self._stay_connected(), name="wakes")
        with suppress(TimeoutError):
            await asyncio.wait_for(self.tried.wait(), FIRST_S)

    def tell(self, task_ids: Sequence[str]) -> None:
        if not self.connected:
            return
        for task_id in task_ids:
            if len(self.pending) >= PENDING:
                break
            self.pending[task_id] = None
        if self.sender is None or self.sender.done():
            self.sender = asyncio.get_running_loop().create_task(self._send_pending(), name="wakes-sender")

    async def close(self) -> None:
        tasks = [task for task in (self.sender, self.connector) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_pending(self) -> None:
        await asyncio.sleep(0)  # ids that other tasks add in this turn of the event loop go into the same message
        while self.pending and self.connected:
            task_ids, self.pending = list(self.pending), {}
            try:
                async with asyncio.timeout(SEND_S):
                    await self._send(list(_payloads(task_ids)))
            except Exception as error:
                log.debug("wake-ups were not sent: %s", type(error).__name__)
                self.lost.set()
                return

    async def _stay_connected(self) -> None:
        delay, was_lost = RETRY_S, False
        while True:
            try:
                self.lost.clear()
                await self._connect()
                self.connected = True
                self.tried.set()
                if was_lost:
                    log.info("wake-ups between hosts work again")
                delay, was_lost = RETRY_S, False
                await self._until_lost()
                problem = "the connection was lost"
            except Exception as error:
                problem = self._reason(error)
            finally:
                self.connected = False
                self.pending.clear()
                if self.sender is not None:
                    self.sender.cancel()
                await self._disconnect()
            self.tried.set()
            if not was_lost:
                log.warning("wake-ups between hosts do not work, so hosts poll each second: %s", problem)
            was_lost = True
            await asyncio.sleep(delay * random.uniform(0.7, 1.3))  # noqa: S311  # hosts must not all try at once
            delay = min(delay * 2, RETRY_MAX_S)

    def _pass_on(self, payload: str) -> None:
        try:
            self.on_wake(payload.split("\n"))
        except Exception:
            log.exception("a wake-up could not be handled")

    async def _connect(self) -> None:
        """Connect and subscribe."""
        raise NotImplementedError

    async def _until_lost(self) -> None:
        await self.lost.wait()

    async def _disconnect(self) -> None:
        raise NotImplementedError

    async def _send(self, payloads: list[str]) -> None:
        raise NotImplementedError

    def _reason(self, error: Exception) -> str:
        raise NotImplementedError


class PostgresWakes(_ConnectedWakes):
    """LISTEN and NOTIFY on one connection."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.target = DatabaseTarget(url)
        self.me = secrets.token_hex(8)
        self.connection: Any = None
        self.statement_lock = asyncio.Lock()

    async def _connect(self) -> None:
        # A notification is a transaction, and losing one in a crash does no harm.
        self.connection = await self.target.connect(synchronous_commit="off")
        self.connection.add_termination_listener(lambda connection: self.lost.set())
        await self.connection.add_listener(CHANNEL, self._on_notify)

    async def _until_lost(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self.lost.wait(), BEAT_S)
                return
            except TimeoutError:
                async with self.statement_lock:
                    await self.connection.execute("SELECT 1", timeout=SEND_S)

    async def _disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.terminate()

    async def _send(self, payloads: list[str]) -> None:
        async with self.statement_lock:
            await self.connection.execute(
                "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload",
                CHANNEL,
                [f"{self.me}\n{payload}" for payload in payloads],
            )

    def _on_notify(self, connection: object, pid: int, channel: str, payload: str) -> None:
        sender, _, task_ids = payload.partition("\n")
        if sender != self.me:
            self._pass_on(task_ids)

    def _reason(self, error: Exception) -> str:
        return self.target.reason(error)


class NatsWakes(_ConnectedWakes):
    """A subject of NATS. `group` is the same for all hosts of a fleet: the URL of their store, or any other text."""

    def __init__(self, url: str, group: str) -> None:
        super().__init__()
        try:
            self.nats: Any = import_module("nats.aio.client")
        except ModuleNotFoundError:
            raise DriverMissing("NATS needs a client: pip install 'roost[nats]'") from None
        self.url = url
        # Only the database's name in the URL counts: hosts may know its server under different names.
        name = unquote(urlsplit(group).path).strip("/") if "://" in group else group
        self.subject = f"{SUBJECT}.{blake2b(name.encode(), digest_size=8).hexdigest()}"
        self.client: Any = None
        self.subscription: Any = None
        self.error_name = ""

    async def _connect(self) -> None:
        self.error_name = ""
        self.client = self.nats.Client()
        await self.client.connect(
            self.url,
            name="roost",
            no_echo=True,
            allow_reconnect=False,  # _stay_connected does it
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=FIRST_S,
            ping_interval=BEAT_S,
            max_outstanding_pings=2,
            error_cb=self._on_error,
        )
        self.subscription = await self.client.subscribe(self.subject, cb=self._on_message, pending_msgs_limit=PENDING)
        await self.client.flush(timeout=SEND_S)

    async def _until_lost(self) -> None:
        while not self.client.is_closed:  # its callback for that is not called when a send fails at the same time
            with suppress(TimeoutError):
                await asyncio.wait_for(self.lost.wait(), LOOK_S)
                return

    async def _disconnect(self) -> None:
        client, subscription, self.client, self.subscription = self.client, self.subscription, None, None
        if client is not None:
            with suppress(Exception):  # whatever happens, the connection is not used any more
                await client.close()
        if subscription is not None:
            subscription._stop_processing()  # noqa: SLF001  # a close that failed has left it running

    async def _send(self, payloads: list[str]) -> None:
        for payload in payloads:
            await self.client.publish(self.subject, payload.encode())
        await self.client.flush(timeout=SEND_S)

    async def _on_message(self, message: Any) -> None:
        self._pass_on(message.data.decode())

    async def _on_error(self, error: Exception) -> None:
        self.error_name = type(error).__name__

    def _reason(self, error: Exception) -> str:
        """Describe an error without its text, which may contain the URL."""
        place = self.url.rpartition("@")[2].rpartition("/")[2]
        return f"NATS at {place}: {self.error_name or type(error).__name__}"


def _payloads(task_ids: Sequence[str]) -> Iterator[str]:
    """Yield the ids, one in a line, in as few payloads as the limit allows. An id that cannot be sent is left out."""
    lines: list[str] = []
    size = 0
    for task_id in task_ids:
        length = len(task_id.encode()) + 1
        if length > PAYLOAD // 2 or "\n" in task_id or "\0" in task_id:
            continue
        if size + length > PAYLOAD - 32:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(task_id)
        size += length
    if lines:
        yield "\n".join(lines)
