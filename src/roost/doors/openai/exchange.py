"""One turn in progress: the agent's stream followed until the turn is over, or its client is gone."""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from roost.doors.admission import Call, OpenStream
from roost.doors.http import ClientGone, Headers, Request
from roost.doors.openai.errors import NO_RETRY
from roost.doors.openai.turn_reader import Piece, TurnReader, word
from roost.doors.sse import ClientWatch, send_events
from roost.engine.ring import StreamFrame
from roost.protocol.errors import A2AError, Unavailable
from roost.protocol.raw import raw_decoder
from roost.protocol.types import CancelTaskRequest, StreamResponse

log = logging.getLogger("roost.doors")

SESSION, TASK = b"x-session-id", b"x-task-id"
KEY = b"idempotency-key"


class TurnReference(NamedTuple):
    """Identifies a turn by its task and the journal entry that it began with."""

    agent: str
    task: str
    seq: int

    @property
    def response(self) -> str:
        return f"resp_{self.agent}_{self.task}_{self.seq}"

    @property
    def completion(self) -> str:
        return f"chatcmpl-{self.task}-{self.seq}"


class Exchange:
    """A turn of an admitted call.

    kept: there is a task that can be read again; a direct reply leaves none.
    cancels: the task is canceled when its client leaves early.
    """

    def __init__(
        self,
        call: Call,
        request: Request,
        place: TurnReference,
        reader: TurnReader,
        stream: OpenStream,
        *,
        kept: bool = True,
        cancels: bool = False,
    ) -> None:
        self.call = call
        self.request = request
        self.place = place
        self.reader = reader
        self.stream = stream
        self.kept = kept
        self.cancels = cancels

    def headers(self) -> Headers:
        """The headers with the session and the task of the turn."""
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

    def feed(self, frames: list[StreamFrame]) -> list[Piece]:
        """Read a batch of events, and return what is new to the client."""
        events = [raw_decoder(StreamResponse)(frame.data) for frame in frames]
        return [piece for event in events for piece in self.reader.feed(event)]

    async def finish(self) -> None:
        """Wait for the end of the turn. Raise if there is none."""
        watch = ClientWatch(self.request, self.stream)
        try:
            while not self.reader.settled and (frames := await self.stream.batch()) is not None:
                self.feed(frames)
            if watch.gone:
                await self.abandon()
            if not self.reader.settled:
                raise ClientGone if watch.gone else self.interrupted()
        except BaseException:
            keyed = bool(self.request.header(KEY).strip())  # a repeat with a key begins nothing new
            self.request.response_headers += self.headers() if keyed else [*NO_RETRY, *self.headers()]
            raise
        finally:
            watch.end()

    async def write(self, writer: TurnWriter) -> None:
        """Stream the turn to the client."""
        if not await send_events(self.request, self.stream, _TurnForm(self, writer)):
            await self.abandon()

    async def abandon(self) -> None:
        """Cancel the task of a client that has left, if the operator's setting says so."""
        if self.cancels and not self.reader.settled:
            call = self.call
            try:
                await call.context.engine.cancel(call.principal, call.agent, CancelTaskRequest(id=self.place.task))
            except A2AError as error:
                log.info("task %s of a client that left was not canceled: %s", self.place.task, error)

    def interrupted(self) -> Unavailable:
        return Unavailable(
            f"The response broke off; task {self.place.task} goes on and can be read later", retry_after=1
        )


class TurnWriter(Protocol):
    """The form in which an API writes the events of a turn, each as one or several server-sent events."""

    def opening(self) -> bytes: ...
    def piece(self, piece: Piece) -> bytes: ...
    def closing(self) -> bytes: ...
    def broken(self, error: A2AError) -> bytes: ...


class _TurnForm:
    """A turn as a form of server-sent events."""

    is_escaped = False

    def __init__(self, exchange: Exchange, writer: TurnWriter) -> None:
        self.exchange = exchange
        self.writer = writer
        self.headers = exchange.headers()

    async def opening(self, stream: OpenStream) -> bytes:
        return self.writer.opening()

    async def batch(self, stream: OpenStream, frames: list[StreamFrame]) -> bytes:
        return b"".join(map(self.writer.piece, self.exchange.feed(frames)))

    def is_done(self) -> bool:
        return self.exchange.reader.settled

    async def closing(self, stream: OpenStream) -> bytes:
        if self.exchange.reader.settled:
            return self.writer.closing()
        return self.writer.broken(self.exchange.interrupted())

    def broken(self, error: A2AError) -> bytes:
        return self.writer.broken(self.exchange.interrupted())
