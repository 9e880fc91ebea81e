"""A message sent twice makes one task: its key, its fingerprint, and the answer to a repeat.

The key is reserved in the commit that accepts the message, so that there is no moment between
looking and taking. A repeat is answered from the journal, wherever the task runs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from roost.engine import recovery
from roost.engine.follower import SEND_ENDS
from roost.engine.responses import SendResult, TaskStream
from roost.engine.store_types import Reservation, Reserved, Scope
from roost.engine.views import splice, split, task_bytes
from roost.protocol import entries as kinds
from roost.protocol.canonical import NotCanonical, encode_sorted, is_surely_canonical, jcs
from roost.protocol.errors import IdempotencyKeyReused, MessageIdMalformed, TaskNotFound, Unavailable
from roost.protocol.states import SETTLED
from roost.protocol.types import SendMessageRequest

if TYPE_CHECKING:
    from roost.engine.engine import Engine
    from roost.engine.live import LiveTask

EXTENSION = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"
MAX_MESSAGE_ID = 256

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(?:\1[0-9a-fA-F]{4}){3}[0-9a-fA-F]{8}")


class IdempotencyRules(msgspec.Struct, frozen=True):
    """`mode` is auto, always or asked: see the setting `idempotency`."""

    mode: str = "auto"
    ttl_s: int = 86_400
    most: int = 100_000


def reservation(
    rules: IdempotencyRules, scope: Scope, request: SendMessageRequest, activated: bool
) -> Reservation | None:
    """What the message has to reserve; None if it is new whatever its id."""
    message_id = request.message.message_id
    if activated and (len(message_id) > MAX_MESSAGE_ID or not message_id.isprintable()):
        raise MessageIdMalformed(
            f"message.messageId must be at most {MAX_MESSAGE_ID} printable characters", field="message.messageId"
        )
    if not (activated or rules.mode == "always" or (rules.mode == "auto" and _UUID.fullmatch(message_id))):
        return None
    return Reservation(key(scope, message_id), fingerprint(request), rules.ttl_s)


def key(scope: Scope, message_id: str) -> bytes:
    """Of the owner's own: the same id from another principal, tenant or to another agent is another message."""
    digest = _of_scope(scope).copy()
    digest.update(message_id.encode("utf-8", "surrogatepass"))
    return digest.digest()


@lru_cache(1024)
def _of_scope(scope: Scope) -> blake2b:
    parts = [part.encode("utf-8", "surrogatepass") for part in scope]
    return blake2b(b"".join(b"%d:%b" % (len(part), part) for part in parts), digest_size=16)


def fingerprint(request: SendMessageRequest) -> str:
    """SHA-256 over RFC 8785's form of the request without its messageId, the same on every binding."""
    plain = replace(request, tenant="", message=replace(request.message, message_id=""))
    data = encode_sorted(plain).replace(b'"messageId":"",', b"", 1)
    if not is_surely_canonical(data):
        value = msgspec.json.decode(data)
        data = _canonical(value) or data
    return sha256(data).hexdigest()


def _canonical(value: Any) -> bytes | None:
    try:
        return jcs(value)
    except NotCanonical:
        return None  # an integer that no double can hold: left as it came


def check(reserved: Reserved, asked: Reservation, message_id: str) -> None:
    """The message on record must be the one that came."""
    if reserved.fingerprint != asked.fingerprint:
        raise IdempotencyKeyReused(
            f"messageId {message_id[:64]!r} was used for another message; a new message needs a new id",
            field="message.messageId",
            metadata={
                "message_id": message_id,
                "original_request_hash": reserved.fingerprint,
                "submitted_request_hash": asked.fingerprint,
            },
        )


async def answer_again(engine: Engine, reserved: Reserved, request: SendMessageRequest) -> SendResult:
    """What the first send was answered with, or will be."""
    configuration = request.configuration
    history = None if configuration is None else configuration.history_length
    live = await _load(engine, reserved)
    try:
        reply = await _direct(engine, live)
        if reply is not None:
            return SendResult(None, reply, True)
        at_once = configuration is not None and configuration.return_immediately
        seq = reserved.seq if at_once else await settled_after(engine, live, reserved.seq)
        task = await recovery.as_of(engine.store, live, seq)
        body = splice(*split(task)) if history is None and not at_once else task_bytes(task, history)
        return SendResult(body, None, True)
    finally:
        engine.unhold(live)


async def stream_again(engine: Engine, reserved: Reserved, request: SendMessageRequest) -> TaskStream:
    """The stream of the first send, from its beginning."""
    configuration = request.configuration
    history = None if configuration is None else configuration.history_length
    live = await _load(engine, reserved)
    try:
        reply = await _direct(engine, live)
        if reply is not None:
            return TaskStream(SendResult(None, reply, True), None, None)
        task = await recovery.as_of(engine.store, live, reserved.seq)
        opening = SendResult(task_bytes(task, history), None, True)
        return TaskStream(opening, reserved.seq, engine.follow(live, reserved.seq, SEND_ENDS))
    finally:
        engine.unhold(live)


async def settled_after(engine: Engine, live: LiveTask, seq: int) -> int:
    """Wait until the task ends or asks after `seq`; the seq where it did."""
    follower = engine.follow(live, seq, SETTLED)
    try:
        while await follower.batch() is not None:
            pass
        if not follower.over:
            raise Unavailable("the host is shutting down; ask again to go on", retry_after=1)
        return follower.position
    finally:
        engine.release(follower)


async def _load(engine: Engine, reserved: Reserved) -> LiveTask:
    live = await engine.load(reserved.task_id)
    if live is None:
        raise TaskNotFound(
            "The message is on record, its task is not any more: its retention is over",
            metadata={"taskId": reserved.task_id},
        )
    return live


async def _direct(engine: Engine, live: LiveTask) -> bytes | None:
    """The direct reply, where the exchange came to one; waits while that is open."""
    if not live.hidden:
        return None
    follower = engine.follow(live, live.shown_seq, SETTLED)
    try:
        ended = False
        while live.hidden:
            reply = await _reply(engine, live)
            if reply is not None:
                return reply
            if ended:
                raise Unavailable("the host is shutting down; ask again to go on", retry_after=1)
            ended = await follower.batch() is None
            await live.commit()  # a reply that was just given may be on its way to the disk
        return None
    finally:
        engine.release(follower)


async def _reply(engine: Engine, live: LiveTask) -> bytes | None:
    records = await engine.store.read_internal(live.new.id)
    return next((entry.data for entry in records if entry.kind == kinds.REPLY), None)
