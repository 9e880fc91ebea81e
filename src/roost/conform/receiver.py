"""A webhook on this machine, for as long as a check needs one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

MAX_BODY = 1024 * 1024
"""Bytes of one delivery."""
MAX_DELIVERIES = 1000
READ_S = 10.0
"""Seconds for which a connection may be silent."""


class WebhookDelivery(NamedTuple):
    """One request of the host to the webhook. The names of its headers are in lower case."""

    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object; empty if it is not one."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class Receiver:
    """Records deliveries and answers them with 204. After `hold` it records them and does not answer."""

    def __init__(self) -> None:
        self.deliveries: list[WebhookDelivery] = []
        self._answers = asyncio.Event()
        self._answers.set()
        self._news = asyncio.Condition()
        self._closed = False
        self._callers: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Stop answering deliveries."""
        self._answers.clear()

    async def until(self, enough: Callable[[list[WebhookDelivery]], bool], seconds: float) -> bool:
        """Wait until the deliveries are enough, and return whether they are."""
        try:
            async with asyncio.timeout(seconds), self._news:
                await self._news.wait_for(lambda: enough(self.deliveries))
        except TimeoutError:
            return False
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = asyncio.current_task()
        if self._closed or caller is None:
            writer.close()
            return
        self._callers.add(caller)
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
        try:
            while await self._one(connection, reader, writer):
                connection.start_next_cycle()
        except (h11.ProtocolError, OSError, TimeoutError):
            pass  # what did not arrive was not delivered, and the checks say so
        except asyncio.CancelledError:
            if not self._closed:
                raise
        finally:
            self._callers.discard(caller)
            writer.transport.abort()

    async def close(self) -> None:
        self._closed = True
        callers = [*self._callers]
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    async def _one(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Take one delivery, and return whether another may follow on the connection."""
        headers: dict[str, str] = {}
        body = b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(READ_S):
                    connection.receive_data(await reader.read(64 * 1024))
            elif isinstance(event, h11.Request):
                headers = {name.decode().lower(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY:
                    return False
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return False
        async with self._news:
            if len(self.deliveries) < MAX_DELIVERIES:
                self.deliveries.append(WebhookDelivery(headers, body))
            self._news.notify_all()
        await self._answers.wait()
        answer = connection.send(h11.Response(status_code=204, headers=[("Content-Length", "0")])) or b""
        writer.write(answer + (connection.send(h11.EndOfMessage()) or b""))
        await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE


@asynccontextmanager
async def receiving(place: str) -> AsyncIterator[tuple[Receiver, str]]:
    """Run a webhook at host, host:port or [v6]:port of this machine, and yield it with its URL.

    OSError if it cannot listen there.
    """
    receiver = Receiver()
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname or "127.0.0.1", parts.port or 0
    except ValueError as error:
        raise OSError(f"it is not host:port: {error}") from None
    server = await asyncio.start_server(receiver.serve, host, port)
    shown = f"[{host}]" if ":" in host else host
    try:
        yield receiver, f"http://{shown}:{server.sockets[0].getsockname()[1]}/conform"
    finally:
        server.close()
        await receiver.close()
