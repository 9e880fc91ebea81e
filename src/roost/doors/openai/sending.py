"""From a client's wish to a message in the engine: which session, which question it answers, and what goes along."""

from __future__ import annotations

import re
from typing import NamedTuple

from roost.doors.http import REPLAYED
from roost.doors.openai.exchange import Exchange, Place
from roost.doors.openai.reading import Reader, task_of_reply
from roost.doors.openai.turn import Turn, beside
from roost.doors.rest import Call
from roost.engine import tenancy
from roost.engine.answers import Stream
from roost.engine.idempotency import EXTENSION
from roost.engine.ids import new_id
from roost.protocol.codec import decoder, encode
from roost.protocol.errors import A2AError, InvalidParams, TaskNotFound
from roost.protocol.states import PAUSED
from roost.protocol.types import (
    GetTaskRequest,
    JSONObject,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

PART = re.compile(r"message\.parts\[(\d+)\][.\w]*")
FIELDS = {"message.messageId": "Idempotency-Key", tenancy.FIELD: "metadata.tenant_id"}
KEY = b"idempotency-key"


class PreviousNotFound(InvalidParams):
    reason = "PREVIOUS_RESPONSE_NOT_FOUND"


class Wish(NamedTuple):
    turn: Turn
    metadata: dict[str, str] | None
    session: str
    """Empty for a fresh one."""
    previous: str = ""
    """The id of the response to go on from."""


class Joined(NamedTuple):
    """Where a message goes: a context, and the task in it that waits for an answer."""

    context: str
    task: str = ""


async def begin(call: Call, wish: Wish) -> Exchange:
    """The message is on record when this returns."""
    try:
        return await _begin(call, wish)
    except A2AError as error:
        _say_in_their_words(error, wish.turn)
        raise


async def _begin(call: Call, wish: Wish) -> Exchange:
    engine, given = call.context.engine, wish.metadata or {}
    key = call.request.header(KEY).strip()
    message = Message(message_id=key or f"openai-{new_id()}", role=Role.USER, parts=wish.turn.parts)
    if tenancy.KEY in given:
        message.metadata = {tenancy.KEY: given[tenancy.KEY]}
    call = call._replace(principal=tenancy.confined(engine.tenancy, call.principal, message))
    joined = await _joined(call, wish)
    message.context_id, message.task_id = joined.context, joined.task
    chosen: JSONObject = message.metadata or {}
    room = engine.max_metadata - len(encode(chosen))
    message.metadata = {**chosen, **beside(wish.turn, with_history=not joined.context, room=room)} or None
    request = SendMessageRequest(message=message, metadata=dict(given) or None)
    extensions = [*call.request.extensions, *([EXTENSION] if key else [])]
    return _opened(call, await engine.stream(call.principal, call.agent, request, extensions))


def _opened(call: Call, stream: Stream) -> Exchange:
    opening = stream.opening
    if opening.replayed:
        call.request.answer_headers.append(REPLAYED)
    if opening.task is None:
        task = task_of_reply(decoder(Message)(opening.message or b""))
    else:
        task = decoder(Task)(opening.task)
    exchange = Exchange(call, Place(call.agent, task.id, stream.position or 0), Reader(task), stream.follower)
    exchange.kept = opening.task is not None
    return exchange


async def _joined(call: Call, wish: Wish) -> Joined:
    session = wish.session
    if wish.previous:
        place = place_of(wish.previous)
        if place is None or place.agent != call.agent:
            raise _no_previous(wish.previous)
        try:
            found = await call.context.engine.get(call.principal, call.agent, GetTaskRequest(id=place.task))
        except TaskNotFound:
            raise _no_previous(wish.previous) from None
        task = decoder(Task)(found)
        if session and session != task.context_id:
            raise InvalidParams("previous_response_id is of another session", field="previous_response_id")
        if task.status.state in PAUSED:
            return Joined(task.context_id, task.id)
        session = task.context_id
    if not session:
        return Joined("")
    for state in (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED):
        asked = ListTasksRequest(context_id=session, status=state, page_size=1)
        page = await call.context.engine.list_tasks(call.principal, call.agent, asked)
        for task in decoder(ListTasksResponse)(page).tasks:
            return Joined(session, task.id)
    return Joined(session)


def _no_previous(previous: str) -> PreviousNotFound:
    return PreviousNotFound(f"Previous response {previous[:200]!r} not found", field="previous_response_id")


def _say_in_their_words(error: A2AError, turn: Turn) -> None:
    """The engine speaks of a message's parts; the client has sent something else."""
    if error.field is None:
        return
    part = PART.fullmatch(error.field)
    if part:
        named = turn.places[int(part.group(1))]
    elif error.field in ("message.parts", "message.metadata"):  # there are instructions in the latter
        named = turn.places[0].partition("[")[0]
    else:
        named = FIELDS.get(error.field, error.field)
    error.message, error.field = error.message.replace(error.field, named), named


# Responses that were begun before


def place_of(response_id: str) -> Place | None:
    """None if it is no id of ours."""
    found = re.fullmatch(r"resp_(.+)_([^_]+)_(\d{1,18})", response_id, re.ASCII)
    return Place(found[1], found[2], int(found[3])) if found else None


async def reopen(call: Call, place: Place, *, follow: bool) -> Exchange:
    """A turn as it is now; with `follow`, from its beginning on."""
    engine = call.context.engine
    try:
        stream = await engine.subscribe(call.principal, call.agent, SubscribeToTaskRequest(id=place.task), place.seq)
    except InvalidParams:
        raise TaskNotFound from None
    follower = stream.follower
    assert follower is not None
    reader = Reader(decoder(Task)(stream.opening.task or b""))
    exchange = Exchange(call, place, reader, follower)
    if follow:
        return exchange
    try:
        while not reader.settled and follower.position < follower.live.shown_seq:
            frames = await follower.batch()
            if frames is None:
                break
            for frame in frames:
                reader.feed(decoder(StreamResponse)(frame.data))
    finally:
        exchange.release()
    return exchange
