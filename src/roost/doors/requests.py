"""Bodies of requests: read within the limits, and decoded without delaying other requests.

What is light (protocol/cost.py) is decoded on the event loop. A large message is checked, converted and fingerprinted
in a worker process, one per caller at a time; what comes back is not taken apart here (protocol/raw.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from roost.doors import large
from roost.engine.limits import MessageLimits
from roost.identity.principal import Principal
from roost.offload import Argument, WorkerPool
from roost.protocol.codec import decode
from roost.protocol.cost import LIGHT_VALUES, JSONLimits, is_light
from roost.protocol.errors import InvalidParams
from roost.protocol.raw import PreparedRequest, raw_decoder
from roost.protocol.types import SendMessageRequest, Wire

T = TypeVar("T", bound=Wire)

read_prepared = raw_decoder(PreparedRequest)


class RequestReader:
    """Decodes requests.

    workers: convert what is large.
    json: limits on every JSON document.
    messages: limits on messages.
    most: the largest body, in bytes.
    """

    def __init__(self, workers: WorkerPool, json: JSONLimits, messages: MessageLimits, most: int) -> None:
        self.workers = workers
        self.json = json
        self.messages = messages
        self.most = most

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
        return read_prepared(await self.workers.run(principal.name, work, *args, *self.json, *self.messages))


def too_large() -> InvalidParams:
    return InvalidParams(
        f"the request has more than {LIGHT_VALUES} values; only messages may be that large", field="body"
    )
