"""From a client's wish to a message in the engine: which session, which question it answers, and what goes along."""

from __future__ import annotations

import re
from typing import NamedTuple

from roost.doors.access import TENANT
from roost.doors.http import REPLAYED
from roost.doors.openai.exchange import KEY, Exchange, TurnReference
from roost.doors.openai.turn import OURS, ChatTurn, NamedAnswer, beside
from roost.doors.openai.turn_reader import TurnReader, task_of_reply
from roost.doors.rest import Call
from roost.engine import idempotency, tenancy
from roost.engine.ids import new_id
from roost.engine.ports import Scope
from roost.engine.responses import TaskStream
from roost.identity.principal import Principal
from roost.protocol.codec import decoder, encode
from roost.protocol.errors import A2AError, InvalidParams, TaskNotFound
from roost.protocol.states import PAUSED
from roost.protocol.types import (
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
FIRST = 1
"""The number of the entry that a task begins with."""
MOST_RECALLED = 50
"""Earlier answers that are read for a request that only names them."""


class PreviousNotFound(InvalidParams):
    reason = "PREVIOUS_RESPONSE_NOT_FOUND"


class TurnRequest(NamedTuple):
    turn: ChatTurn
    metadata: dict[str, str] | None
    session: str
    """Empty for a fresh one."""
    previous: str = ""
    """The id of the response to go on from."""
    streams: bool = False


class Joined(NamedTuple):
    """Where a message goes: the caller within its tenant, a context, and the task in it that waits for an answer."""

    principal: Principal
    context: str
    task: str = ""


async def begin(call: Call, wish: TurnRequest) -> Exchange:
    """The message is on record when this returns."""
    try:
        return await _begin(call, wish)
    except A2AError as error:
        _say_in_their_words(error, wish.turn)
        raise


async def _begin(call: Call, wish: TurnRequest) -> Exchange:
    engine, given = call.context.engine, wish.metadata or {}
    key = call.request.header(KEY).strip()
    message = Message(message_id=key or f"openai-{new_id()}", role=Role.USER, parts=wish.turn.parts)
    if tenancy.KEY in given:
        message.metadata = {tenancy.KEY: given[tenancy.KEY]}
    elif TENANT in call.request.headers and engine.tenancy != tenancy.OFF:
        message.metadata = {tenancy.KEY: call.principal.tenant}
    call = call._replace(principal=tenancy.confined(engine.tenancy, call.principal, message))
    joined = await _joined(call, wish)
    call = call._replace(principal=joined.principal)
    if key and joined.context:
        joined = await _as_at_first(call, joined, key)
    turn = wish.turn if joined.context else await _recalled(call, wish.turn)
    message.context_id, message.task_id = joined.context, joined.task
    chosen: JSONObject = message.metadata or {}
    room = engine.max_metadata - len(encode(chosen))
    message.metadata = {**chosen, **beside(turn, with_history=not joined.context, room=room)} or None
    request = SendMessageRequest(message=message, metadata=dict(given) or None)
    extensions = [*call.request.extensions, *([idempotency.EXTENSION] if key else [])]
    stream = await engine.stream(call.principal, call.agent, request, extensions, counted=wish.streams)
    return _opened(call, stream)


def _opened(call: Call, stream: TaskStream) -> Exchange:
    opening = stream.opening
    if opening.replayed:
        call.request.answer_headers.append(REPLAYED)
    if opening.task is None:
        task = task_of_reply(decoder(Message)(opening.message or b""))
    else:
        task = decoder(Task)(opening.task)
    exchange = Exchange(
        call, TurnReference(call.agent, task.id, stream.position or 0), TurnReader(task), stream.follower
    )
    exchange.kept = opening.task is not None
    return exchange


async def _joined(call: Call, wish: TurnRequest) -> Joined:
    engine, principal, session = call.context.engine, call.principal, wish.session
    if wish.previous:
        place = place_of(wish.previous)
        if place is None or place.agent != call.agent:
            raise _no_previous(wish.previous)
        try:
            live = await engine.find(principal, call.agent, place.task)
        except TaskNotFound:
            raise _no_previous(wish.previous) from None
        new, state = live.new, live.state
        engine.unhold(live)
        if session and session != new.context_id:
            raise InvalidParams("previous_response_id is of another session", field="previous_response_id")
        principal, session = principal.within(new.scope.tenant, "previous_response_id"), new.context_id
        if state in PAUSED:
            return Joined(principal, session, new.id)
    if not session:
        return Joined(principal, "")
    for state in (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED):
        asked = ListTasksRequest(context_id=session, status=state, page_size=1)
        page = await engine.list_tasks(principal, call.agent, asked)
        for task in decoder(ListTasksResponse)(page).tasks:
            return Joined(principal, session, task.id)
    return Joined(principal, session)


async def _as_at_first(call: Call, joined: Joined, key: str) -> Joined:
    """A message that comes again answers the question that it answered at first, or none, whatever waits now."""
    scope = Scope(joined.principal.tenant, joined.principal.owner, call.agent)
    found = await call.context.engine.store.read_reserved(idempotency.key(scope, key))
    if found is None:
        return joined
    return joined._replace(task=found.task_id if found.seq > FIRST else "")


async def _recalled(call: Call, turn: ChatTurn) -> ChatTurn:
    """With the text of answers that the client only names: the last of them, as far as they are kept."""
    history = list(turn.history)
    named = [(at, one.text.id) for at, one in enumerate(history) if isinstance(one.text, NamedAnswer)]
    for at, item in named[-MOST_RECALLED:]:
        text = await _text_of(call, item)
        if text is not None:
            history[at] = history[at]._replace(text=text)
    return turn._replace(history=history)


async def _text_of(call: Call, item: str) -> str | None:
    found = OURS.fullmatch(item)
    assert found is not None
    try:
        exchange = await reopen(call, TurnReference(call.agent, found["task"], int(found["seq"])), follow=False)
    except TaskNotFound:
        return None
    return exchange.reader.text()


def _no_previous(previous: str) -> PreviousNotFound:
    return PreviousNotFound(f"Previous response {previous[:200]!r} not found", field="previous_response_id")


def _say_in_their_words(error: A2AError, turn: ChatTurn) -> None:
    """The engine speaks of a message's parts; the client has sent something else."""
    if error.field is None:
        return
    part = PART.fullmatch(error.field)
    if part:
        named = turn.places[int(part.group(1))]
    elif error.field == "message.parts":
        named = turn.places[0].partition("[")[0]
    elif error.field == "message.metadata":
        named = turn.told_in
        said = f"{named}: the text of instructions, system and developer messages"
        error.message = error.message.replace(error.field, said) + ", the host's setting max_metadata"
    else:
        named = FIELDS.get(error.field, error.field)
    error.message, error.field = error.message.replace(error.field, named), named


# Responses that were begun before


def place_of(response_id: str) -> TurnReference | None:
    """None if it is no id of ours."""
    found = re.fullmatch(r"resp_(.+)_([^_]+)_(\d{1,18})", response_id, re.ASCII)
    return TurnReference(found[1], found[2], int(found[3])) if found else None


async def reopen(call: Call, place: TurnReference, *, follow: bool) -> Exchange:
    """A turn as it is now; with `follow`, from its beginning on."""
    engine = call.context.engine
    try:
        asked = SubscribeToTaskRequest(id=place.task)
        stream = await engine.subscribe(call.principal, call.agent, asked, place.seq, counted=follow)
    except InvalidParams:
        raise TaskNotFound from None
    follower = stream.follower
    assert follower is not None
    reader = TurnReader(decoder(Task)(stream.opening.task or b""))
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
