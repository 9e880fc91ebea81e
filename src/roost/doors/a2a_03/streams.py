"""Server-sent events of 0.3: what the compat layer has made of each, with the id of the entry that it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from roost.doors.a2a_03.handler import refusal
from roost.doors.http import REPLAYED, ClientGone, Request
from roost.doors.sdk import SdkCall
from roost.doors.sse import HEADERS, IDLE_S, KEEP_ALIVE, one_line
from roost.protocol.errors import A2AError


async def write_stream(
    request: Request,
    call: SdkCall,
    frames: AsyncGenerator[bytes],
    ending: Callable[[A2AError], bytes],
) -> None:
    """What goes wrong before the first frame is raised; after it, it is the last frame, as `ending` has it."""
    gone: asyncio.Task[None] | None = None
    try:
        first = await anext(frames)
        headers = [*HEADERS, *request.answer_headers, *([REPLAYED] if call.replayed else [])]
        if request.extensions:
            headers.append((b"a2a-extensions", ", ".join(request.extensions).encode("latin-1", "replace")))
        request.status = 200
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        seq = call.position
        resumed = call.last_event_id is not None
        await _write(request, _event(None if resumed else seq, first))
        gone = asyncio.create_task(_gone(request))
        try:
            while (frame := await _next(request, frames, gone)) is not None:
                seq = None if seq is None else seq + 1
                await _write(request, _event(seq, frame))
        except ClientGone:
            return
        except Exception as error:
            await _write(request, ending(refusal(error, request)))
        await request.send({"type": "http.response.body", "body": b""})
    finally:
        if gone is not None:
            gone.cancel()
        await frames.aclose()


async def _next(request: Request, frames: AsyncGenerator[bytes], gone: asyncio.Task[None]) -> bytes | None:
    """The next frame, None at the end; signs of life until it is there."""
    coming = asyncio.ensure_future(anext(frames, None))
    try:
        while not coming.done():
            await asyncio.wait((coming, gone), timeout=IDLE_S, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise ClientGone
            if not coming.done():
                await _write(request, KEEP_ALIVE)
        return await coming
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.wait((coming,))


def _event(seq: int | None, data: bytes) -> bytes:
    line = b"" if seq is None else b"id: %d\n" % seq
    return one_line(b"%bdata: %b\n\n" % (line, data))


async def _write(request: Request, chunk: bytes) -> None:
    await request.send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
