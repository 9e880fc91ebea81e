"""Turns a request of OpenAI into a message: finds its session, and the question that it answers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from roost.doors.access import TENANT
from roost.doors.admission import Call
from roost.doors.http import REPLAYED, Request
from roost.doors.openai.exchange import KEY, Exchange, TurnReference
from roost.doors.openai.turn import OURS, ChatTurn, NamedAnswer, beside
from roost.doors.openai.turn_reader import TurnReader, task_of_reply
from roost.engine.ids import new_id
from roost.engine.responses import TaskStream
from roost.engine.store_types import Scope
from roost.extensions import idempotency, multi_tenant
from roost.identity.principal import Principal
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError, InvalidParams, TaskNotFound
from roost.protocol.raw import raw_decoder
from roost.protocol.states import PAUSED
from roost.protocol.types import (
    JSONObject,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)

PART = re.compile(r"message\.parts\[(\d+)\][.\w]*")
FIELDS = {"message.messageId": "Idempotency-Key", multi_tenant.FIELD: "metadata.tenant_id"}
FIRST = 1
"""The sequence number of a task's first entry."""
COMPLETION = re.compile(r"chatcmpl-(.+)-\d{1,18}", re.ASCII)
"""The id of a chat completion. It names the session of its task."""
MOST_RECALLED = 50
"""The most earlier answers that are read for a request that only names them."""


class PreviousNotFound(InvalidParams):
    reason = "PREVIOUS_RESPONSE_NOT_FOUND"


class TurnRequest(NamedTuple):
    turn: ChatTurn
    metadata: dict[str, str] | None
    session: str
    """The context; empty for a new one."""
    previous: str = ""
    """The id of the response to continue from."""
    streams: bool = False


class Joined(NamedTuple):
    """The destination of a message: the caller within its tenant, a context, and the task there that waits."""

    principal: Principal
    context: str
    task: str = ""


@asynccontextmanager
async def begin(call: Call, request: Request, wanted: TurnRequest, *, cancels: bool) -> AsyncIterator[Exchange]:
    """Send the message, and follow its turn for as long as the block lasts."""
    with _in_their_words(wanted.turn):
        call, message = await _message(call, request, wanted)
    sending = SendMessageRequest(message=message, metadata=dict(wanted.metadata or {}) or None)

    async def opened() -> TaskStream:
        with _in_their_words(wanted.turn):
            engine, keyed = call.context.engine, bool(request.header(KEY).strip())
            reader = call.reader if wanted.streams else None
            return await engine.stream(
                *(call.principal, call.agent, sending, request.extensions),
                counted=wanted.streams,
                keyed=keyed,
                reader=reader,
            )

    async with call.stream(opened()) as stream:
        opening = stream.opening
        if opening.replayed and not wanted.streams:  # the writer of streams reports it
            request.response_headers.append(REPLAYED)
        if opening.task is None:
            task = task_of_reply(raw_decoder(Message)(opening.message or b""))
        else:
            task = raw_decoder(Task)(opening.task)
        place = TurnReference(call.agent, task.id, stream.position or 0)
        kept = opening.task is not None
        del opening
        stream.opening_is_sent()
        yield Exchange(call, request, place, TurnReader(task), stream, kept=kept, cancels=cancels)


async def _message(call: Call, request: Request, wanted: TurnRequest) -> tuple[Call, Message]:
    """Build the message of a turn, with its destination."""
    engine, given = call.context.engine, wanted.metadata or {}
    key = request.header(KEY).strip()
    message = Message(message_id=key or _message_id(request), role=Role.USER, parts=wanted.turn.parts)
    tenants = multi_tenant.URI in engine.extensions
    if multi_tenant.KEY in given:
        message.metadata = {multi_tenant.KEY: given[multi_tenant.KEY]}
    elif TENANT in request.headers and tenants:
        message.metadata = {multi_tenant.KEY: call.principal.tenant}
    if tenants:
        call = call._replace(principal=multi_tenant.confined(call.principal, message))
    joined = await _joined(call, wanted)
    call = call._replace(principal=joined.principal)
    if key and joined.context:
        joined = await _as_at_first(call, joined, key)
    turn = wanted.turn if joined.context else await _recalled(call, request, wanted.turn)
    message.context_id, message.task_id = joined.context, joined.task
    chosen: JSONObject = message.metadata or {}
    room = engine.limits.metadata - len(encode(chosen))
    message.metadata = {**chosen, **beside(turn, with_history=not joined.context, room=room)} or None
    return call, message


def _message_id(request: Request) -> str:
    """Name a message that has no key. Only a client that activates idempotency/v1 needs a UUID."""
    return new_id() if idempotency.URI in request.extensions else f"openai-{new_id()}"


async def _joined(call: Call, wanted: TurnRequest) -> Joined:
    engine, principal, session = call.context.engine, call.principal, wanted.session
    if wanted.previous:
        place = place_of(wanted.previous)
        if place is None or place.agent != call.agent:
            raise _no_previous(wanted.previous)
        try:
            new, state = await engine.locate(principal, call.agent, place.task)
        except TaskNotFound:
            raise _no_previous(wanted.previous) from None
        if session and session != new.context_id:
            raise InvalidParams("previous_response_id is of another session", field="previous_response_id")
        principal, session = principal.within(new.scope.tenant, "previous_response_id"), new.context_id
        if state in PAUSED:
            return Joined(principal, session, new.id)
    if not session:
        return Joined(principal, "")
    principal, session = await _session_of(call, principal, session)
    for state in (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED):
        asked = ListTasksRequest(context_id=session, status=state, page_size=1)
        page = await engine.list_tasks(principal, call.agent, asked)
        for task in raw_decoder(ListTasksResponse)(page).tasks:
            return Joined(principal, session, task.id)
    return Joined(principal, session)


async def _session_of(call: Call, principal: Principal, name: str) -> tuple[Principal, str]:
    """Return the session that a name stands for: that of a chat completion for its id, otherwise the name itself."""
    found, engine = COMPLETION.fullmatch(name), call.context.engine
    if found is None:
        return principal, name
    try:
        new, _ = await engine.locate(principal, call.agent, found[1])
    except TaskNotFound:
        return principal, name
    return principal.within(new.scope.tenant, "session_id"), new.context_id


async def _as_at_first(call: Call, joined: Joined, key: str) -> Joined:
    """Let a repeated message answer the question that it answered the first time, or none, whatever waits now."""
    scope = Scope(joined.principal.tenant, joined.principal.owner, call.agent)
    found = await call.context.engine.reserved(idempotency.key(scope, key))
    if found is None:
        return joined
    return joined._replace(task=found.task_id if found.seq > FIRST else "")


async def _recalled(call: Call, request: Request, turn: ChatTurn) -> ChatTurn:
    """Add the text of the last answers that the client only names, as far as they are kept."""
    history = list(turn.history)
    named = [(at, one.text.id) for at, one in enumerate(history) if isinstance(one.text, NamedAnswer)]
    for at, item in named[-MOST_RECALLED:]:
        text = await _text_of(call, request, item)
        if text is not None:
            history[at] = history[at]._replace(text=text)
    return turn._replace(history=history)


async def _text_of(call: Call, request: Request, item: str) -> str | None:
    found = OURS.fullmatch(item)
    assert found is not None
    place = TurnReference(call.agent, found["task"], int(found["seq"]))
    try:
        async with reopen(call, request, place, follow=False) as exchange:
            return exchange.reader.text()
    except TaskNotFound:
        return None


def _no_previous(previous: str) -> PreviousNotFound:
    return PreviousNotFound(f"Previous response {previous[:200]!r} not found", field="previous_response_id")


@contextmanager
def _in_their_words(turn: ChatTurn) -> Iterator[None]:
    """Reword errors of the engine, which name fields of an A2A message, in terms of the client's request."""
    try:
        yield
    except A2AError as error:
        _reword(error, turn)
        raise


def _reword(error: A2AError, turn: ChatTurn) -> None:
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
        error.message = error.message.replace(error.field, said)
    else:
        named = FIELDS.get(error.field, error.field)
    error.message, error.field = error.message.replace(error.field, named), named


# Responses that were begun before


def place_of(response_id: str) -> TurnReference | None:
    """Parse the id of a response. None if it is not one of ours."""
    found = re.fullmatch(r"resp_(.+)_([^_]+)_(\d{1,18})", response_id, re.ASCII)
    return TurnReference(found[1], found[2], int(found[3])) if found else None


@asynccontextmanager
async def reopen(call: Call, request: Request, place: TurnReference, *, follow: bool) -> AsyncIterator[Exchange]:
    """Read a turn again as it is now; with `follow`, from its beginning on and for as long as the block lasts."""
    asked = SubscribeToTaskRequest(id=place.task)

    async def opened() -> TaskStream:
        try:
            engine = call.context.engine
            reader = call.reader if follow else None
            return await engine.subscribe(call.principal, call.agent, asked, place.seq, counted=follow, reader=reader)
        except InvalidParams:
            raise TaskNotFound from None

    async with call.stream(opened()) as stream:
        reader = TurnReader(raw_decoder(Task)(stream.opening.task or b""))
        exchange = Exchange(call, request, place, reader, stream)
        follower = stream.follower
        while not follow and not reader.settled and follower is not None:
            frames = await stream.batch() if follower.position < follower.live.shown_seq else None
            if frames is None:
                break
            exchange.feed(frames)
        yield exchange
