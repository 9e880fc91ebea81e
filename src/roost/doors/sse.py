"""Server-sent events: committed bytes, framed once more for the wire."""

from __future__ import annotations

import asyncio
import logging
import time
from weakref import WeakKeyDictionary

from roost.doors.http import REPLAYED, Headers, Request
from roost.engine.engine import Engine
from roost.engine.follower import Follower
from roost.engine.live import LiveTask, StreamFrame
from roost.engine.ports import StoreUnavailable
from roost.engine.responses import TaskStream

log = logging.getLogger("roost.doors")

HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
IDLE_S = 15.0
KEEP_ALIVE = b": keep-alive\n"
"""Without a blank line: where an id was sent before, httpx-sse makes an event without data of each."""
LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\u0085\u2028\u2029")
"""No line ends to server-sent events, but to Python's splitlines, and so to every client that reads with httpx."""


class Heartbeat:
    """One timer for all streams: nudges those that were silent for IDLE_S."""

    def __init__(self) -> None:
        self.streams: dict[Follower, float] = {}
        self.timer: asyncio.TimerHandle | None = None

    def sent(self, follower: Follower) -> None:
        self.streams[follower] = time.monotonic()
        if self.timer is None:
            self.timer = asyncio.get_running_loop().call_later(IDLE_S / 3, self._beat)

    def forget(self, follower: Follower) -> None:
        self.streams.pop(follower, None)

    def _beat(self) -> None:
        silent_since = time.monotonic() - IDLE_S
        for follower, last in self.streams.items():
            if last <= silent_since:
                follower.nudge()
        self.timer = asyncio.get_running_loop().call_later(IDLE_S / 3, self._beat) if self.streams else None


async def send_stream(
    request: Request, engine: Engine, heartbeat: Heartbeat, stream: TaskStream, prefix: bytes, suffix: bytes
) -> None:
    """`prefix` and `suffix` wrap each StreamResponse: empty for REST, a JSON-RPC envelope otherwise."""
    headers = [*HEADERS, *request.answer_headers]
    if request.extensions:
        headers.append((b"a2a-extensions", ", ".join(request.extensions).encode("latin-1", "replace")))
    opening = stream.opening
    if opening.replayed:
        headers.append(REPLAYED)
    data = b'{"task":%b}' % opening.task if opening.task is not None else b'{"message":%b}' % (opening.message or b"")
    line = b"" if stream.position is None else b"id: %d\n" % stream.position
    first = one_line(b"%bdata: %b%b%b\n\n" % (line, prefix, data, suffix))
    follower = stream.follower
    request.status = 200
    send = request.send
    watcher: asyncio.Task[None] | None = None
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": first, "more_body": follower is not None})
        if follower is None:
            return
        watcher = asyncio.get_running_loop().create_task(_close_when_gone(request, follower))
        heartbeat.sent(follower)
        while (frames := await follower.batch()) is not None:
            chunk = _chunk(frames, prefix, suffix) if prefix else _shared_chunk(follower.live, frames)
            await send({"type": "http.response.body", "body": chunk or KEEP_ALIVE, "more_body": True})
            heartbeat.sent(follower)
        await send({"type": "http.response.body", "body": b""})
    except StoreUnavailable as error:
        log.warning("a stream ends early, its reader can resume it: %s", error)
        await send({"type": "http.response.body", "body": b""})
    finally:
        if watcher is not None:
            watcher.cancel()
        if follower is not None:
            heartbeat.forget(follower)
            engine.release(follower)


_chunks: WeakKeyDictionary[LiveTask, tuple[int, int, bytes]] = WeakKeyDictionary()
"""The last chunk of each task: a thousand readers at one place of a stream are sent the same bytes."""


def _shared_chunk(live: LiveTask, frames: list[StreamFrame]) -> bytes:
    if not frames:
        return b""
    first, last = frames[0].seq, frames[-1].seq
    found = _chunks.get(live)
    if found is None or found[:2] != (first, last):
        found = _chunks[live] = (first, last, _chunk(frames, b"", b""))
    return found[2]


def _chunk(frames: list[StreamFrame], prefix: bytes, suffix: bytes) -> bytes:
    return one_line(b"".join([b"id: %d\ndata: %b%b%b\n\n" % (f.seq, prefix, f.data, suffix) for f in frames]))


def one_line(chunk: bytes) -> bytes:
    for end, escaped in LINE_ENDS:
        chunk = chunk.replace(end, escaped)
    return chunk


async def _close_when_gone(request: Request, follower: Follower) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    follower.close()
