"""Server-sent events: the one writer of all doors that stream over HTTP.

A door brings a form, which turns the opening and each batch of committed events into bytes. The writer owns the rest:
headers, heartbeats, line ends, and the end of a stream whichever side ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from typing import Protocol
from weakref import WeakKeyDictionary

from roost.doors.admission import OpenStream
from roost.doors.errors import known
from roost.doors.http import PIECE, REPLAYED, ClientGone, Headers, Request, activated, send_body
from roost.engine.live import LiveTask
from roost.engine.ring import StreamFrame
from roost.engine.store_types import StoreUnavailable
from roost.protocol.errors import A2AError, Unavailable

log = logging.getLogger("roost.doors")

HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n"
"""A heartbeat. No blank line follows it, because httpx-sse would take that for an event without data after an id."""
LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\u0085\u2028\u2029")
"""Characters at which Python's splitlines, and so every client on httpx, splits lines, although SSE does not."""


Chunk = bytes | tuple[bytes, ...]
"""Whole server-sent events; in parts where one of them is large and shared. The parts have no id or line of their own,
and their line ends are not escaped yet."""


class EventForm(Protocol):
    """The form in which a door writes a stream. Each method returns whole server-sent events."""

    headers: Headers
    """Headers of the response beyond those of every stream."""
    is_escaped: bool
    """Whether the events are free of the line ends in LINE_ENDS; otherwise the writer escapes them."""

    async def opening(self, stream: OpenStream) -> Chunk: ...

    def batch(self, stream: OpenStream, frames: list[StreamFrame]) -> Chunk | Awaitable[bytes]:
        """Write committed events. b"" if the client does not need them."""

    def is_done(self) -> bool:
        """Return whether the client has received everything, even if the task continues."""

    async def closing(self, stream: OpenStream) -> bytes:
        """Write the bytes that follow the last event."""

    def broken(self, error: A2AError) -> bytes:
        """Write the error with which the stream ends before its task does."""


async def send_events(request: Request, stream: OpenStream, form: EventForm) -> bool:
    """Send a stream to its end. Return False if the client left before."""
    first = await form.opening(stream)
    replayed = [REPLAYED] if stream.opening.replayed else []
    headers = [*HEADERS, *request.response_headers, *activated(request), *replayed, *form.headers]
    request.status = 200
    await request.send({"type": "http.response.start", "status": 200, "headers": headers})
    watch = ClientWatch(request, stream)
    try:
        await _send(request, first, form)
        first = b""
        stream.opening_is_sent()
        while not form.is_done() and (frames := await stream.batch()) is not None:
            chunk = form.batch(stream, frames) if frames else KEEP_ALIVE
            if not isinstance(chunk, (bytes, tuple)):
                chunk = await chunk
            if chunk:
                await _send(request, chunk, form)
            del frames, chunk  # they may be large, and the next batch may be long in coming
        if watch.gone:
            return False
        error = None if form.is_done() else stream.interruption()
        last = await form.closing(stream) if error is None else form.broken(error)
    except ClientGone:
        return False
    except StoreUnavailable as error:
        log.warning("a stream ends early because the store does not answer; its client can resume it: %s", error)
        last = form.broken(Unavailable("the store does not answer; the stream can be resumed later", retry_after=1))
    except Exception as error:
        last = form.broken(known(error, request))
    finally:
        watch.end()
    await _send(request, last, form, more=False)
    return True


async def _send(request: Request, chunk: Chunk, form: EventForm, *, more: bool = True) -> None:
    if isinstance(chunk, bytes) and len(chunk) <= PIECE:
        body = chunk if form.is_escaped else one_line(chunk)
        await request.send({"type": "http.response.body", "body": body, "more_body": more})
    else:
        parts = (chunk,) if isinstance(chunk, bytes) else chunk
        await send_body(request.send, (one_line(piece) for part in parts for piece in _pieces(part)), more=more)


def _pieces(part: bytes) -> Iterator[bytes]:
    """Divide a large chunk between characters, so that no line end is divided."""
    start = 0
    while start < len(part):
        end = start + PIECE
        while end - start > PIECE - 4 and end < len(part) and part[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        yield part[start:end]
        start = end


class ClientWatch:
    """Closes a stream when its client disconnects."""

    def __init__(self, request: Request, stream: OpenStream) -> None:
        self.gone = False
        self._task: asyncio.Task[None] | None = None
        if stream.follower is not None:
            self._task = asyncio.get_running_loop().create_task(self._watch(request, stream))

    async def _watch(self, request: Request, stream: OpenStream) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        stream.close()

    def end(self) -> None:
        task, self._task = self._task, None  # otherwise the task and this object would keep each other alive
        if task is not None:
            task.cancel()


class JSONForm:
    """StreamResponses as the bindings of A2A 1.0 send them. `prefix` and `suffix` are JSON-RPC's envelope."""

    headers: Headers = []
    is_escaped = True  # where the bytes are made, because many readers share them

    def __init__(self, prefix: bytes = b"", suffix: bytes = b"") -> None:
        self.prefix = prefix
        self.suffix = suffix

    async def opening(self, stream: OpenStream) -> Chunk:
        line = b"" if stream.position is None else b"id: %d\n" % stream.position
        if stream.opening.is_large:
            before, body, after = stream.opening.json_parts()
            return b"%bdata: %b%b" % (line, self.prefix, before), body, b"%b%b\n\n" % (after, self.suffix)
        return one_line(b"%bdata: %b%b%b\n\n" % (line, self.prefix, stream.opening.json(), self.suffix))

    def batch(self, stream: OpenStream, frames: list[StreamFrame]) -> Chunk:
        if len(frames[0].data) > PIECE:
            [(seq, data, _)] = frames
            return b"id: %d\ndata: %b" % (seq, self.prefix), data, b"%b\n\n" % self.suffix
        if self.prefix or stream.has_view:
            return _chunk(frames, self.prefix, self.suffix)
        return _shared_chunk(stream.live, frames)

    def is_done(self) -> bool:
        return False

    async def closing(self, stream: OpenStream) -> bytes:
        return b""

    def broken(self, error: A2AError) -> bytes:
        """A client of 1.0 sees the stream end, and resumes it."""
        return b""


_chunks: WeakKeyDictionary[LiveTask, tuple[int, int, bytes]] = WeakKeyDictionary()
"""The last chunk of each task: a thousand readers at the same position are sent the same bytes."""


def _shared_chunk(live: LiveTask, frames: list[StreamFrame]) -> bytes:
    first, last = frames[0].seq, frames[-1].seq
    found = _chunks.get(live)
    if found is None or found[:2] != (first, last):
        found = _chunks[live] = (first, last, _chunk(frames, b"", b""))
    return found[2]


def _chunk(frames: list[StreamFrame], prefix: bytes, suffix: bytes) -> bytes:
    return one_line(b"".join([b"id: %d\ndata: %b%b%b\n\n" % (f.seq, prefix, f.data, suffix) for f in frames]))


def one_line(chunk: bytes) -> bytes:
    if chunk.isascii():
        return chunk
    for end, escaped in LINE_ENDS:
        chunk = chunk.replace(end, escaped)
    return chunk
