"""Limits on messages and emissions. The limits that an agent sets itself are in hosted.py, quotas in identity."""

from __future__ import annotations

from typing import NamedTuple

from roost.protocol.codec import encode
from roost.protocol.errors import InvalidParams
from roost.protocol.types import JSONObject, SendMessageRequest

MAX_CONTEXT_ID = 256
"""Characters of a contextId."""
MAX_MESSAGE_ID = 1024
"""Characters of a messageId."""
MAX_LISTED = 1000
"""Items in a list of names: extensions, reference tasks, accepted output modes."""

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
    """Bytes of JSON, for the metadata of the request, of the message, and of each part."""
    task: int = 24 * 1024 * 1024
    """Bytes of a task beyond which it takes no more messages."""

    def check(self, request: SendMessageRequest) -> None:
        """Raise InvalidParams, which names the field, if a message is too large."""
        message = request.message
        if len(message.context_id) > MAX_CONTEXT_ID:
            raise InvalidParams(
                f"message.contextId is longer than {MAX_CONTEXT_ID} characters", field="message.contextId"
            )
        if len(message.message_id) > MAX_MESSAGE_ID:
            raise InvalidParams(
                f"message.messageId is longer than {MAX_MESSAGE_ID} characters", field="message.messageId"
            )
        if len(message.parts) > self.parts:
            raise InvalidParams(
                f"message.parts has {len(message.parts)} parts; at most {self.parts} are accepted, the host's setting"
                " max_parts",
                field="message.parts",
            )
        self._check_metadata("metadata", request.metadata)
        self._check_metadata("message.metadata", message.metadata)
        for index, part in enumerate(message.parts):
            if part.metadata:
                self._check_metadata(f"message.parts[{index}].metadata", part.metadata)
        _check_list("message.extensions", message.extensions)
        _check_list("message.referenceTaskIds", message.reference_task_ids)
        if request.configuration is not None:
            _check_list("configuration.acceptedOutputModes", request.configuration.accepted_output_modes)

    def _check_metadata(self, field: str, metadata: JSONObject | None) -> None:
        if metadata and len(encode(metadata)) > self.metadata:
            raise InvalidParams(
                f"{field} is longer than {self.metadata} bytes, the host's setting max_metadata", field=field
            )


def _check_list(field: str, items: list[str]) -> None:
    if len(items) > MAX_LISTED:
        raise InvalidParams(f"{field} has {len(items)} items; at most {MAX_LISTED} are accepted", field=field)
