"""Bodies of requests: read within the limits, and decoded without delaying other requests.

What is light (protocol/cost.py) is decoded on the event loop. A large message is checked, converted and fingerprinted
in a worker process, one per caller at a time; what comes back is not taken apart here (protocol/raw.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from roost.doors import large
from roost.doors.http import Request
from roost.engine.budget import ByteBudget
from roost.engine.limits import MessageLimits
from roost.identity.principal import Principal
from roost.offload import Argument, WorkerPool
from roost.protocol.codec import decode
from roost.protocol.cost import LIGHT_VALUES, JSONLimits, is_light
from roost.protocol.errors import InvalidParams, TooSlow
from roost.protocol.raw import PreparedRequest, raw_decoder
from roost.protocol.types import SendMessageRequest, Wire

T = TypeVar("T", bound=Wire)

LARGE_BODIES = 16
"""Bodies of the largest size that the host reads at the same time. A caller may use a share of that."""

SHORT = 5
"""Digits of the length of a body that may be large."""
LOOK_S = 2.0
"""Seconds between two looks at bodies that arrive while others wait for room."""
SLOWEST = 16 * 1024
"""Bytes per second below which a body is ended then."""

read_prepared = raw_decoder(PreparedRequest)


class ArrivingBody:
    """A large body that a task is reading."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.ended = False
        self.bytes = 0
        self.seen: int | None = None
        """The bytes at the last look."""

    def is_slow(self) -> bool:
        """Say whether it has grown too little since the last look, if there was one."""
        before, self.seen = self.seen, self.bytes
        return before is not None and self.bytes - before < SLOWEST * LOOK_S


class RequestReader:
    """Decodes requests.

    workers: convert what is large.
    json: limits on every JSON document.
    messages: limits on messages.
    most: the largest body, in bytes.
    wait_s: the longest time for which a large body waits to be read, in seconds.
    """

    def __init__(
        self, workers: WorkerPool, json: JSONLimits, messages: MessageLimits, most: int, wait_s: float
    ) -> None:
        self.workers = workers
        self.json = json
        self.messages = messages
        self.most = most
        self.wait_s = wait_s
        self.budget = ByteBudget(most * LARGE_BODIES, "Your requests that are being read")
        self.arriving: set[ArrivingBody] = set()
        self.timer: asyncio.TimerHandle | None = None

    def body(self, request: Request, principal: Principal) -> Awaitable[bytes]:
        """Read the body of a request. A large one is read when there is room for it, until `request.let_go`."""
        length = request.headers.get(b"content-length")
        if length is not None and len(length) < SHORT:
            return request.body(self.most)
        return self._large_body(request, principal)

    async def _large_body(self, request: Request, principal: Principal) -> bytes:
        arriving: ArrivingBody | None = None

        async def room(arrived: int, expected: int) -> None:
            nonlocal arriving
            if arriving is None:
                await self._take(principal.name, expected)
                request.held = partial(self.budget.give_back, principal.name, expected)
                task = asyncio.current_task()
                assert task is not None
                arriving = ArrivingBody(task)
                self.arriving.add(arriving)
            arriving.bytes = arrived

        try:
            return await request.body(self.most, room)
        except asyncio.CancelledError:
            if arriving is None or not arriving.ended:
                raise
            arriving.task.uncancel()
            raise TooSlow("The request arrives so slowly that others wait for its room; send it again") from None
        finally:
            if arriving is not None:
                self.arriving.discard(arriving)

    async def _take(self, account: str, size: int) -> None:
        if self.budget.try_take(account, size):
            return
        self._look_later()
        await self.budget.take(account, size, self.wait_s)

    def _look_later(self) -> None:
        if self.timer is None:
            self.timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """End the bodies that have hardly grown since the last look, for as long as others wait for room."""
        self.timer = None
        if not self.budget.waiting:
            return
        for body in [*self.arriving]:
            if body.is_slow():
                body.ended = True
                body.task.cancel()
        self._look_later()

    @contextmanager
    def room_for(self, principal: Principal, size: int) -> Iterator[None]:
        """Take room for a large request that is in memory already. It is refused if there is none."""
        if not self.budget.try_take(principal.name, size):
            raise self.budget.refusal(principal.name, size)
        try:
            yield
        finally:
            self.budget.give_back(principal.name, size)

    def light(self, kind: type[T], body: bytes) -> T | None:
        """Decode a request of A2A 1.0 in JSON; None if that belongs in a worker process."""
        return decode(kind, body, self.json) if is_light(body) else None

    async def decode(self, principal: Principal, kind: type[T], body: bytes) -> T:
        """Decode a request of A2A 1.0 in JSON."""
        if is_light(body):
            return decode(kind, body, self.json)
        if kind is not SendMessageRequest:
            raise too_large()
        made: object = await self.prepared(principal, large.from_json, body)
        assert isinstance(made, kind)
        return made

    def fields(self, body: bytes) -> dict[str, Any]:
        """Decode the members of a request that is not a message."""
        if not is_light(body):
            raise too_large()
        return decode(dict[str, Any], body, self.json)

    async def prepared(self, principal: Principal, work: Callable[..., bytes], *args: Argument) -> PreparedRequest:
        """Let a worker process make a message of a large request. `work` gets the limits after its own arguments."""
        made = read_prepared(await self.workers.run(principal.name, work, *args, *self.json, *self.messages))
        await asyncio.sleep(0)  # others come first, because what follows takes time too
        return made


def too_large() -> InvalidParams:
    return InvalidParams(
        f"the request has more than {LIGHT_VALUES} values; only messages may be that large", field="body"
    )
