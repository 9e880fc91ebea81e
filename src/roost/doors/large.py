"""The work on large requests and responses that runs in a worker process (roost.offload). Bytes in, bytes out."""

from __future__ import annotations

from roost.engine.limits import MessageLimits
from roost.extensions.idempotency import fingerprint
from roost.protocol.codec import decode, encode
from roost.protocol.cost import JSONLimits, check
from roost.protocol.raw import PreparedRequest
from roost.protocol.types import SendMessageRequest


def from_json(body: bytes, *limits: int) -> bytes:
    """Convert a SendMessageRequest in JSON. Return a PreparedRequest."""
    return prepare(decode(SendMessageRequest, body, JSONLimits(*limits[:3])), *limits)


def prepare(request: SendMessageRequest, *limits: int) -> bytes:
    """Check and fingerprint a message. `limits` are the fields of JSONLimits and MessageLimits."""
    MessageLimits(*limits[3:]).check(request)
    check(encode(request), JSONLimits(*limits[:3]))
    return encode(
        PreparedRequest(
            message=request.message,
            tenant=request.tenant,
            configuration=request.configuration,
            metadata=request.metadata,
            fingerprint=fingerprint(request),
        )
    )
