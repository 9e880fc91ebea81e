"""Limits on gRPC calls: how many there are, how long a request may take to arrive and a response to be read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc

from roost.doors.access import ended
from roost.doors.counters import REFUSED
from roost.doors.grpc_errors import Servicer, abort
from roost.engine.bodies import BodyReader
from roost.identity.principal import Principal
from roost.protocol.errors import A2AError, InvalidRequest, TooManyRequests, TooSlow, Unauthenticated

FREE = "/grpc."
"""The prefix of the methods that need no credential: health and reflection."""
FREE_STREAMS = 100
"""The most open streams of those methods. They do not count as calls of A2A."""
LOOK_S = 1.0
"""Seconds between two checks whether clients read."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


async def received(context: Servicer, head_s: float) -> Any:
    """Wait for the request's message."""
    try:
        async with asyncio.timeout(head_s):
            found = await context.read()
    except TimeoutError:
        REFUSED["body_time"] += 1
        raise TooSlow(f"The request's message did not arrive within {head_s:g} s") from None
    if found is grpc.aio.EOF:
        raise InvalidRequest("The request has no message")
    return found


class GrpcReader:
    """The client of a stream. `since` is the time when a write began to wait for it; None while none waits."""

    __slots__ = ("limit", "principal", "since")

    def __init__(self, principal: Principal, limit: asyncio.Timeout) -> None:
        self.principal = principal
        self.limit = limit
        self.since: float | None = None

    def is_written_to(self) -> None:
        self.since = time.monotonic()

    def has_read(self) -> None:
        self.since = None


class GrpcCalls:
    """The calls of A2A in progress by authenticated callers: at most `most`."""

    def __init__(self, most: int, head_s: float, write_s: float, holds: Callable[[Principal], bool]) -> None:
        self.most = most
        self.head_s = head_s
        self.write_s = write_s
        self.holds = holds
        """Says whether a caller who was let in still would be."""
        self.places: set[asyncio.Task[Any] | None] = set()
        self.readers: set[GrpcReader] = set()
        self.timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Count the running asyncio task as a call until its response has been sent."""
        if len(self.places) >= self.most:
            raise TooManyRequests(f"The host has reached its limit of {self.most} calls; try again", retry_after=1)
        task = asyncio.current_task()
        assert task is not None
        self.places.add(task)
        task.add_done_callback(self.places.discard)

    def keep_until_sent(self, reader: BodyReader) -> None:
        """Count the large bodies of the running asyncio task until gRPC's library is done with them.

        The library has a copy of what it has not sent, which it drops only when the call ends.
        """
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: reader.release())

    @asynccontextmanager
    async def reading(self, principal: Principal) -> AsyncGenerator[GrpcReader]:
        """End the block when the client has read nothing for `write_s`, or does not read and its credential has ended.

        gRPC's library cannot end such a call, but it no longer counts and no longer follows a task.
        """
        limit = asyncio.timeout(None)
        reader = GrpcReader(principal, limit)
        self.readers.add(reader)
        if self.timer is None:
            self._look_later()
        try:
            async with limit:
                yield reader
        except TimeoutError:
            if not limit.expired():
                raise
            self.places.discard(asyncio.current_task())
            raise self._end(principal) from None
        finally:
            self.readers.discard(reader)

    def _end(self, principal: Principal) -> A2AError:
        if not self.holds(principal):
            return Unauthenticated(ended(principal, "stream"))
        REFUSED["write_time"] += 1
        return TooSlow(f"The client has read nothing of this stream for {self.write_s:g} s")

    def _look_later(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(min(LOOK_S, self.write_s), self._look)

    def _look(self) -> None:
        late = time.monotonic() - self.write_s
        for reader in self.readers:
            if reader.since is not None and (reader.since <= late or not self.holds(reader.principal)):
                reader.limit.reschedule(0)
        self.timer = None
        if self.readers:
            self._look_later()


class FreeMethodLimits(grpc.aio.ServerInterceptor):
    """Limits calls of health and reflection, which need no credential."""

    def __init__(self, head_s: float) -> None:
        self.head_s = head_s
        self.streams: set[asyncio.Task[Any]] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if not handler_call_details.method.startswith(FREE) or handler is None:
            return handler
        if not handler.response_streaming:
            return self._unary(handler)
        if len(self.streams) >= FREE_STREAMS:
            return grpc.stream_stream_rpc_method_handler(_refuse)
        task = asyncio.current_task()
        assert task is not None
        self.streams.add(task)
        task.add_done_callback(self.streams.discard)
        return handler

    def _unary(self, handler: Handler) -> Handler:
        serve: Any = handler.unary_unary

        async def asked(_: Any, context: Servicer) -> Any:
            try:
                request = await received(context, self.head_s)
            except A2AError as error:
                await abort(context, error, error.message)
            return await serve(request, context)

        return grpc.stream_unary_rpc_method_handler(asked, handler.request_deserializer, handler.response_serializer)


async def _refuse(_: Any, context: Servicer) -> None:
    error = TooManyRequests(f"The host has reached its limit of {FREE_STREAMS} such streams; try again", retry_after=1)
    await abort(context, error, error.message)
