"""A webhook on this machine, for as long as a check needs one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

MAX_BODY = 1024 * 1024
MAX_CALLS = 1000
READ_S = 10.0


class WebhookDelivery(NamedTuple):
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class Receiver:
    """While it is `held` it takes calls and does not answer them."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[WebhookDelivery] = []
        self.held = asyncio.Event()
        self.held.set()
        self._news = asyncio.Condition()
        self._closed = False
        self._callers: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    def hold(self) -> None:
        self.held.clear()

    def release(self) -> None:
        self.held.set()

    async def until(self, enough: Callable[[list[WebhookDelivery]], bool], seconds: float) -> bool:
        """Whether that came about in time."""
        end = time.monotonic() + seconds
        async with self._news:
            while not enough(self.calls):
                left = end - time.monotonic()
                if left <= 0:
                    return False
                try:
                    await asyncio.wait_for(self._news.wait(), left)
                except TimeoutError:
                    return enough(self.calls)
        return True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.close()
            return
        self._callers[writer] = asyncio.current_task()
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
        try:
            while await self._one(connection, reader, writer):
                connection.start_next_cycle()
        except (h11.ProtocolError, OSError, TimeoutError):
            pass  # whoever calls is the one who is judged; what did not arrive was not delivered
        finally:
            self._callers.pop(writer, None)
            writer.close()

    async def close(self) -> None:
        self._closed = True
        self.release()
        callers = [task for task in self._callers.values() if task is not None]
        for writer in [*self._callers]:
            writer.transport.abort()
        await asyncio.gather(*callers, return_exceptions=True)

    async def _one(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        headers: dict[str, str] = {}
        body = b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await asyncio.wait_for(reader.read(64 * 1024), READ_S))
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
            if len(self.calls) < MAX_CALLS:
                self.calls.append(WebhookDelivery(headers, body))
            self._news.notify_all()
        await self.held.wait()
        answer = connection.send(h11.Response(status_code=204, headers=[("Content-Length", "0")])) or b""
        writer.write(answer + (connection.send(h11.EndOfMessage()) or b""))
        await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE


@asynccontextmanager
async def receiving(place: str) -> AsyncIterator[Receiver]:
    """`place` is host, host:port or [v6]:port of this machine, as the judged host can reach it."""
    receiver = Receiver()
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname or "127.0.0.1", parts.port or 0
    except ValueError as error:
        raise OSError(f"it is not host:port: {error}") from None
    server = await asyncio.start_server(receiver.serve, host, port)
    shown = f"[{host}]" if ":" in host else host
    receiver.url = f"http://{shown}:{server.sockets[0].getsockname()[1]}/conform"
    try:
        yield receiver
    finally:
        server.close()
        await receiver.close()
