"""Limits on messages and emissions. The limits that an agent sets itself are in hosted.py, quotas in identity."""

from __future__ import annotations

from typing import NamedTuple

from roost.protocol.codec import encode
from roost.protocol.errors import InvalidParams
from roost.protocol.types import SendMessageRequest

MAX_CONTEXT_ID = 256
"""Characters of a contextId."""

YIELD_EVERY = 32
"""Emissions after which an agent lets other coroutines run."""
MAX_UNCOMMITTED = 256
MAX_UNCOMMITTED_BYTES = 1024 * 1024
"""Entries and bytes of one task that may be uncommitted before its agent has to wait."""
MOST_UNCOMMITTED = 100_000
MOST_UNCOMMITTED_BYTES = 64 * 1024 * 1024
"""Entries and bytes of one task that may be uncommitted before an emission fails."""


class MessageLimits(NamedTuple):
    parts: int = 1000
    metadata: int = 64 * 1024
    """Bytes of JSON, for the metadata of the message and of the request each."""

    def check(self, request: SendMessageRequest) -> None:
        """Raise InvalidParams, which names the field, if a message is too large."""
        message = request.message
        if len(message.context_id) > MAX_CONTEXT_ID:
            raise InvalidParams(
                f"message.contextId is longer than {MAX_CONTEXT_ID} characters", field="message.contextId"
            )
        if len(message.parts) > self.parts:
            raise InvalidParams(
                f"message.parts has {len(message.parts)} parts; at most {self.parts} are accepted",
                field="message.parts",
            )
        for field, metadata in (("message.metadata", message.metadata), ("metadata", request.metadata)):
            if metadata and len(encode(metadata)) > self.metadata:
                raise InvalidParams(f"{field} is longer than {self.metadata} bytes", field=field)
