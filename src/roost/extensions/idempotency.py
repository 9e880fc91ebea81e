"""idempotency/v1 (contract of agentic-sandbox): a message that is sent twice makes one task and gets one answer.

The key is the messageId within the owner's scope. It is reserved in the commit that accepts the message, so there is no
moment between checking and taking (docs/adr/0008-idempotency.md).
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from roost.engine.extension import Extension, Incoming
from roost.engine.hosted import Profile
from roost.engine.store_types import Reservation, Scope
from roost.protocol.canonical import NotCanonical, encode_sorted, is_surely_canonical, jcs
from roost.protocol.errors import MessageIdMalformed
from roost.protocol.raw import PreparedRequest, has_raw_data
from roost.protocol.types import AgentExtension, SendMessageRequest

URI = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"
MAX_KEY = 256

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(?:\1[0-9a-fA-F]{4}){3}[0-9a-fA-F]{8}")

Mode = Literal["auto", "always", "asked"]


class Idempotency(Extension):
    """Reserves the key of a message.

    mode: which messages have a key without the extension being activated: `auto` those whose messageId is a UUID,
    `always` all, `asked` none.
    ttl_s: how long a key is remembered, in seconds.
    most: how many keys are remembered.
    """

    uri = URI

    def __init__(self, mode: str = "auto", ttl_s: int = 86_400, most: int = 100_000) -> None:
        self.mode = mode
        self.ttl_s = ttl_s
        self.most = most

    def declaration(self, profile: Profile | None) -> AgentExtension:
        return AgentExtension(
            uri=URI,
            description="A message sent again with its messageId is answered as it was the first time, and makes no"
            " second task; with another content it is refused.",
            params={
                "ttl_seconds": self.ttl_s,
                "canonicalization": "jcs-rfc8785",
                "hash_algorithm": "sha-256",
                "max_cache_entries": self.most,
            },
        )

    def accept(self, incoming: Incoming) -> Incoming:
        message_id = incoming.request.message.message_id
        is_uuid = _UUID.fullmatch(message_id) is not None
        activated = bool(incoming.activated) and URI in incoming.activated
        if activated and not incoming.keyed and not is_uuid:
            raise MessageIdMalformed(
                "message.messageId must be a UUID, because idempotency/v1 is activated", field="message.messageId"
            )
        if incoming.keyed and (len(message_id) > MAX_KEY or not message_id.isprintable()):
            raise MessageIdMalformed(
                f"message.messageId must be at most {MAX_KEY} printable characters", field="message.messageId"
            )
        if not (activated or incoming.keyed or self.mode == "always" or (self.mode == "auto" and is_uuid)):
            return incoming
        reservation = Reservation(key(incoming.scope, message_id), fingerprint(incoming.request), self.ttl_s)
        return replace(incoming, reservation=reservation)


def key(scope: Scope, message_id: str) -> bytes:
    """Return the key of a message. The same id from another principal or tenant, or to another agent, has another."""
    digest = _scope_digest(scope).copy()
    digest.update(message_id.encode("utf-8", "surrogatepass"))
    return digest.digest()


@lru_cache(1024)
def _scope_digest(scope: Scope) -> blake2b:
    parts = [part.encode("utf-8", "surrogatepass") for part in scope]
    return blake2b(b"".join(b"%d:%b" % (len(part), part) for part in parts), digest_size=16)


def fingerprint(request: SendMessageRequest) -> str:
    """SHA-256 of the canonical request (RFC 8785) without its messageId. It is the same on every binding.

    Only the fingerprint of a request whose data is left as JSON covers that as it was sent.
    """
    if isinstance(request, PreparedRequest):
        return request.fingerprint
    message = request.message
    plain = replace(request, tenant="", message=replace(message, message_id=""))
    data = encode_sorted(plain).replace(b'"messageId":"",', b"", 1)
    if _has_json(request) and not has_raw_data(message) and not is_surely_canonical(data):
        value = msgspec.json.decode(data)
        data = _canonical(value) or data
    return sha256(data).hexdigest()


def _has_json(request: SendMessageRequest) -> bool:
    """Say whether a request has values other than A2A's own fields, which are written canonically."""
    message = request.message
    return (
        request.metadata is not None
        or message.metadata is not None
        or any(part.data is not UNSET or part.metadata is not None for part in message.parts)
    )


def _canonical(value: Any) -> bytes | None:
    try:
        return jcs(value)
    except NotCanonical:
        return None  # an integer that no double can hold stays as it was sent
