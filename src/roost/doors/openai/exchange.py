"""One turn on its way: the agent's stream followed until the turn is over, or its client is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple, Protocol

from roost.doors.http import ClientGone, Headers
from roost.doors.openai.errors import NO_RETRY
from roost.doors.openai.turn_reader import Piece, TurnReader, word
from roost.doors.rest import Call
from roost.doors.sse import HEADERS, KEEP_ALIVE, one_line
from roost.engine.follower import Follower
from roost.engine.ports import StoreUnavailable
from roost.protocol.codec import decoder
from roost.protocol.errors import A2AError, Unavailable
from roost.protocol.types import CancelTaskRequest, StreamResponse

log = logging.getLogger("roost.doors")

SESSION, TASK = b"x-session-id", b"x-task-id"
KEY = b"idempotency-key"


class TurnReference(NamedTuple):
    """Of a turn: its task, and the entry that it began with."""

    agent: str
    task: str
    seq: int

    @property
    def response(self) -> str:
        return f"resp_{self.agent}_{self.task}_{self.seq}"


class Exchange:
    """`cancels`: the task ends with a client that leaves early. `kept`: there is a task that can be read again."""

    def __init__(self, call: Call, place: TurnReference, reader: TurnReader, follower: Follower | None) -> None:
        self.call = call
        self.place = place
        self.reader = reader
        self.follower = follower
        self.cancels = False
        self.kept = True
        self.gone = False

    def headers(self) -> Headers:
        """Where the turn belongs, for clients that look at headers."""
        session = self.reader.task.context_id
        found: Headers = []
        if session.isascii() and session.isprintable():
            found.append((SESSION, session.encode()))
        if self.kept:
            found.append((TASK, self.place.task.encode()))
        return found

    def metadata(self) -> dict[str, str]:
        task = self.reader.task
        ids = {"task_id": task.id} if self.kept else {}
        return {**ids, "session_id": task.context_id, "state": word(self.reader.state)}

    async def pieces(self) -> AsyncGenerator[list[Piece]]:
        """What is new, until the turn is over or the stream breaks off; [] is a sign of life."""
        follower = self.follower
        if follower is None:
            return
        context = self.call.context
        context.access.watch(follower, self.call.principal)
        watcher = asyncio.get_running_loop().create_task(self._watch(follower))
        try:
            context.heartbeat.sent(follower)
            while not self.reader.settled and (frames := await follower.batch()) is not None:
                events = [decoder(StreamResponse)(frame.data) for frame in frames]
                found = [piece for event in events for piece in self.reader.feed(event)]
                if found or not frames:
                    yield found
                context.heartbeat.sent(follower)
        finally:
            watcher.cancel()
            context.access.unwatch(follower)
            self.release()

    def release(self) -> None:
        follower, self.follower = self.follower, None
        if follower is not None:
            self.call.context.heartbeat.forget(follower)
            self.call.context.engine.release(follower)

    async def finish(self) -> None:
        """Wait for the end of the turn."""
        request = self.call.request
        try:
            async with aclosing(self.pieces()) as pieces:
                async for _ in pieces:
                    pass
            await self.leave()
            if not self.reader.settled:
                raise ClientGone if self.gone else self.broken()
        except BaseException:
            keyed = bool(request.header(KEY).strip())  # what comes again begins nothing new
            request.answer_headers += self.headers() if keyed else [*NO_RETRY, *self.headers()]
            raise

    async def leave(self) -> None:
        """Where the client is gone, by the operator's setting the task goes too."""
        if self.gone and self.cancels and not self.reader.settled:
            call = self.call
            try:
                await call.context.engine.cancel(call.principal, call.agent, CancelTaskRequest(id=self.place.task))
            except A2AError as error:
                log.info("task %s of a client that left was not canceled: %s", self.place.task, error)

    def broken(self) -> Unavailable:
        return Unavailable(f"The answer broke off; task {self.place.task} goes on and can be read later", retry_after=1)

    async def _watch(self, follower: Follower) -> None:
        while (await self.call.request.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        follower.close()


class TurnWriter(Protocol):
    """How an API writes the events of a turn: each as one server-sent event, or several."""

    def opening(self) -> bytes: ...
    def piece(self, piece: Piece) -> bytes: ...
    def closing(self) -> bytes: ...
    def broken(self, error: A2AError) -> bytes: ...


async def write_stream(exchange: Exchange, writer: TurnWriter) -> None:
    request, reader = exchange.call.request, exchange.reader
    request.status = 200

    async def send(body: bytes, more: bool = True) -> None:
        await request.send({"type": "http.response.body", "body": one_line(body), "more_body": more})

    headers = [*HEADERS, *request.answer_headers, *exchange.headers()]
    if request.extensions:
        headers.append((b"a2a-extensions", ", ".join(request.extensions).encode("latin-1", "replace")))
    try:
        await request.send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(writer.opening())
        async with aclosing(exchange.pieces()) as pieces:
            async for found in pieces:
                await send(b"".join(map(writer.piece, found)) if found else KEEP_ALIVE)
        await exchange.leave()
        await send(writer.closing() if reader.settled else writer.broken(exchange.broken()), more=False)
    except StoreUnavailable as error:
        log.warning("a stream ends early, its reader can ask again: %s", error)
        await send(writer.broken(exchange.broken()), more=False)
    finally:
        exchange.release()
