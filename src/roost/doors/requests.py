"""Bodies of requests: read within the limits, and decoded without delaying other requests.

What is light (protocol/cost.py) is decoded on the event loop. A large message is checked, converted and fingerprinted
in a worker process, one per caller at a time; what comes back is not taken apart here (protocol/raw.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from roost.protocol.errors import InvalidParams
from roost.protocol.raw import PreparedRequest, raw_decoder
from roost.protocol.types import SendMessageRequest, Wire

T = TypeVar("T", bound=Wire)

LARGE_BODIES = 16
"""Bodies of the largest size that the host reads at the same time. A caller may use a share of that."""

read_prepared = raw_decoder(PreparedRequest)


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

    async def body(self, request: Request, principal: Principal) -> bytes:
        """Read the body of a request. A large one is read when there is room for it, until `request.let_go`."""

        async def room(size: int) -> None:
            await self.budget.take(principal.name, size, self.wait_s)
            request.held = partial(self.budget.give_back, principal.name, size)

        return await request.body(self.most, room)

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
