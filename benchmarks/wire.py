"""Just enough HTTP/1.1 for a load generator: requests are prepared bytes, answers are parsed only as far as needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import cast
from uuid import uuid4

ID_LENGTH = 36
_PREFIX = str(uuid4())[:24].encode()
_NUMBERS = count()


def message_id() -> bytes:
    """Return a new UUID.

    Clients use UUIDs, and Roost reserves one for its message, so the cost of that is measured. The prefix is random
    and differs between load generators; the last 48 bits are a counter, because a random number for each message would
    slow the load generator down.
    """
    return b"%b%012x" % (_PREFIX, next(_NUMBERS))


class Requests:
    """The bytes of one request after another; each message gets a new id.

    With `at_once` the server answers when the task begins, not when it ends.
    """

    def __init__(
        self, port: int, path: str, text: str | None = None, *, at_once: bool = False, token: str = ""
    ) -> None:
        self.port = port
        self.ends = text is not None and not at_once
        """True if the answer must be a task that has ended."""
        method = "GET" if text is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nA2A-Version: 1.0\r\n"
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        if text is None:
            self.before, self.after = f"{head}\r\n".encode(), b""
            self.is_message = False
        else:
            before = '{"message":{"messageId":"'
            configuration = ',"configuration":{"returnImmediately":true}' if at_once else ""
            after = f'","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}{configuration}}}'
            length = len(before) + ID_LENGTH + len(after)
            head += f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
            self.before, self.after = (head + before).encode(), after.encode()
            self.is_message = True

    def next(self) -> bytes:
        return b"%b%b%b" % (self.before, message_id(), self.after) if self.is_message else self.before


class Connection(asyncio.Protocol):
    """A keep-alive connection that carries one request at a time.

    `got` is called with the whole body of a plain answer, and with each chunk of a chunked one: servers write whole
    events into a chunk. `ended` is called with the status, which is 0 if the connection was lost.
    """

    def __init__(self, got: Callable[[bytes], None], ended: Callable[[int], None]) -> None:
        self.got = got
        self.ended = ended
        self.rest = b""
        self.status = 0
        self.length = 0
        self.waiting = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.waiting:
            self.waiting = False
            self.ended(0)

    def send(self, request: bytes) -> None:
        self.waiting = True
        self.status = 0
        if self.transport is None:
            asyncio.get_running_loop().call_soon(self.connection_lost, None)
        else:
            self.transport.write(request)

    def close(self) -> None:
        self.waiting = False
        if self.transport is not None:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.rest:
            data = self.rest + data
            self.rest = b""
        if not self.status:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self.rest = data
                return
            self._head(data[: end + 2].lower())
            data = data[end + 4 :]
        if self.length < 0:
            self._chunks(data)
        elif len(data) < self.length:
            self.rest = data
        else:
            self.got(data)
            self._end()

    def _head(self, head: bytes) -> None:
        self.status = int(head[9:12])
        at = head.find(b"\ncontent-length:")
        self.length = -1 if at < 0 else int(head[at + 16 : head.find(b"\r", at)])

    def _chunks(self, data: bytes) -> None:
        at = 0
        while (line := data.find(b"\r\n", at)) >= 0:
            start, size = line + 2, int(data[at:line], 16)
            if len(data) < start + size + 2:
                break
            if not size:
                self._end()
                return
            self.got(data[start : start + size])
            at = start + size + 2
        self.rest = data[at:]

    def _end(self) -> None:
        self.waiting = False
        self.ended(self.status)
