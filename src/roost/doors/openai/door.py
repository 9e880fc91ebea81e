"""/openai/v1: chat completions, responses and models. A model is an agent that the caller may use."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from roost.doors.admission import A2A, Call, speaks_any
from roost.doors.context import Context
from roost.doors.door import AGENT, CALLER, KNOWN, Door, Route, require_method
from roost.doors.guard import check_content_type
from roost.doors.http import NOT_KEPT, Connection, Request, Response, respond
from roost.doors.openai import shapes
from roost.doors.openai.chat import Chunks, completion
from roost.doors.openai.errors import failed, openai_error
from roost.doors.openai.exchange import SESSION, Exchange, TurnReference
from roost.doors.openai.input_items import MOST, items_of, page_of
from roost.doors.openai.large import LargeTurn, read_chat, read_response
from roost.doors.openai.requests import ChatRequest, ResponsesRequest, parse
from roost.doors.openai.responses import ResponseEvents, response
from roost.doors.openai.sending import TurnRequest, begin, place_of, reopen
from roost.doors.openai.turn import ChatTurn, turn_of
from roost.doors.openapi_doors import openai_route
from roost.doors.paths import OPENAI_ALIAS as ALIAS
from roost.doors.paths import Endpoint, Table, values_of
from roost.engine.hosted import Profile
from roost.engine.limits import MAX_CONTEXT_ID
from roost.identity.principal import Principal
from roost.protocol.codec import encode
from roost.protocol.cost import is_light
from roost.protocol.errors import A2AError, AgentNotFound, InvalidParams, RouteNotFound, TaskNotCancelable, TaskNotFound
from roost.protocol.types import CancelTaskRequest

PREFIX = "/openai/v1/"


class NotDeletable(TaskNotCancelable):
    """The task of a response is not over yet, or a webhook has not heard of it."""

    reason = "NOT_DELETABLE"


class OpenAIRoute(NamedTuple):
    method: str
    template: str
    """The path below /openai/v1/, or for the alias below an agent's path."""
    name: str
    """The name of the method of OpenAIDoor that serves it, without the underscore."""
    summary: str
    access: str
    result: type[Any]
    body: type[Any] | None = None
    query: dict[str, dict[str, Any]] = {}

    def described(self, prefix: str) -> Route:
        describe = openai_route(self.name, self.result, self.body, self.query)
        return Route(self.method, prefix + self.template, self.summary, self.access, describe)


FOLLOW_QUERY: dict[str, dict[str, Any]] = {
    "stream": {"type": "boolean"},
    "starting_after": {"type": "integer", "minimum": 0},
}
PAGE_QUERY: dict[str, dict[str, Any]] = {
    "order": {"type": "string", "enum": ["asc", "desc"]},
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST},
    "after": {"type": "string"},
}
ROUTES = (
    OpenAIRoute(
        "POST",
        "chat/completions",
        "create_chat",
        "OpenAI: ask an agent for a chat completion",
        CALLER,
        shapes.ChatCompletion,
        ChatRequest,
    ),
    OpenAIRoute(
        "POST",
        "responses",
        "create_response",
        "OpenAI: ask an agent for a response",
        CALLER,
        shapes.ResponseObject,
        ResponsesRequest,
    ),
    OpenAIRoute(
        "GET",
        "responses/{id}",
        "get_response",
        "OpenAI: read a response, or follow it",
        CALLER,
        shapes.ResponseObject,
        query=FOLLOW_QUERY,
    ),
    OpenAIRoute(
        "DELETE",
        "responses/{id}",
        "delete_response",
        "OpenAI: delete a response with its task",
        CALLER,
        shapes.DeletedResponse,
    ),
    OpenAIRoute(
        "GET",
        "responses/{id}/input_items",
        "list_input_items",
        "OpenAI: read what a response answers",
        CALLER,
        shapes.InputItemList,
        query=PAGE_QUERY,
    ),
    OpenAIRoute(
        "POST",
        "responses/{id}/cancel",
        "cancel_response",
        "OpenAI: cancel the task of a response",
        CALLER,
        shapes.ResponseObject,
    ),
    OpenAIRoute(
        "GET", "models", "list_models", "OpenAI: list the agents that the caller may use", KNOWN, shapes.ModelList
    ),
    OpenAIRoute("GET", "models/{id}", "get_model", "OpenAI: read an agent as a model", CALLER, shapes.Model),
)
ALIAS_ROUTE = OpenAIRoute(
    "POST",
    ALIAS,
    "create_agent_chat",
    "OpenAI: ask this agent for a chat completion",
    CALLER,
    shapes.ChatCompletion,
    ChatRequest,
)

Handler = Callable[[Request, Principal, dict[str, str]], Awaitable[None]]


class OpenAIDoor(Door):
    """Serves agents as models. With `cancels`, a client that drops its connection cancels its task."""

    def __init__(self, context: Context, *, cancels: bool) -> None:
        self.context = context
        self.admission = context.admission
        self.cancels = cancels
        self.started = int(time.time())
        self.table: Table[Handler] = Table(
            Endpoint(route.method, PREFIX + route.template, getattr(self, f"_{route.name}"), route.summary)
            for route in ROUTES
        )

    def routes(self) -> Sequence[Route]:
        return [*(route.described(PREFIX) for route in ROUTES), ALIAS_ROUTE.described(AGENT)]

    def claims(self, request: Request) -> bool:
        return request.path.startswith(PREFIX) or (bool(request.place.agent) and request.place.below == ALIAS)

    def error(self, request: Connection, error: A2AError) -> Response:
        return openai_error(error)

    async def serve(self, request: Request) -> None:
        if not request.path.startswith(PREFIX):
            await self._serve_alias(request)
            return
        method = "GET" if request.method == "HEAD" else request.method
        found = self.table.match(method, request.path)
        templates = [one.template for one in self.table.endpoints if _fits(one.template, request.path)]
        request.route = templates[0] if templates else PREFIX + "*"
        principal = await self.admission.caller(request, A2A)
        if found.endpoint is not None:
            await found.endpoint.handler(request, principal, found.path)
            return
        if found.allowed:
            require_method(request, *found.allowed)
        raise RouteNotFound(f"There is nothing at {request.method} {request.path[:200]}; see docs/openai.md")

    async def _serve_alias(self, request: Request) -> None:
        """Serve the path below an agent, whatever model the body names."""
        place = request.place
        request.route = place.prefix + place.below
        principal = await self.admission.caller(request, A2A, self.context.agents.profile(place.agent))
        call = await self._call(request, principal, place.agent)
        require_method(request, "POST")
        await self._chat(call, request, await self._read_chat(request, principal))

    # Chat completions

    async def _create_chat(self, request: Request, principal: Principal, path: dict[str, str]) -> None:
        read = await self._read_chat(request, principal)
        await self._chat(await self._call_model(request, principal, read.asked.model), request, read)

    async def _chat(self, call: Call, request: Request, read: LargeTurn[ChatRequest]) -> None:
        request.let_go()
        asked = read.asked
        asked.check()
        session = _session(request, session_id=asked.session_id)
        turn = _made(read) or turn_of(asked.messages, "messages", in_session=bool(session))
        wanted = TurnRequest(turn, asked.metadata, session, streams=bool(asked.stream))
        async with begin(call, request, wanted, cancels=self.cancels) as exchange:
            if asked.stream:
                options = asked.stream_options
                with_usage = options is not None and bool(options.include_usage)
                await exchange.write(Chunks(exchange, with_usage=with_usage))
            else:
                await _answer(exchange, completion)

    # Responses

    async def _create_response(self, request: Request, principal: Principal, path: dict[str, str]) -> None:
        read = await self._read_response(request, principal)
        request.let_go()
        asked = read.asked
        call = await self._call_model(request, principal, asked.model)
        asked.check()
        if asked.conversation is not None and asked.previous_response_id is not None:
            raise InvalidParams(
                "previous_response_id and conversation exclude each other: each names where to continue",
                field="previous_response_id",
            )
        session = _session(request, session_id=asked.session_id, conversation=asked.conversation_id)
        previous = asked.previous_response_id or ""
        turn = _made(read) or turn_of(asked.said, "input", asked.instructions, in_session=bool(session or previous))
        background = bool(asked.background)
        wanted = TurnRequest(turn, asked.metadata, session, previous, bool(asked.stream))
        async with begin(call, request, wanted, cancels=self.cancels and not background) as exchange:
            if asked.stream:
                await exchange.write(ResponseEvents(exchange))
            elif background:
                await _ok(exchange, encode(response(exchange)))
            else:
                await _answer(exchange, lambda found: encode(response(found)))

    async def _get_response(self, request: Request, principal: Principal, path: dict[str, str]) -> None:
        call, place = await self._find(request, principal, path["id"])
        streams = request.query.get("stream", "") in ("true", "1")
        async with reopen(call, request, place, follow=streams) as exchange:
            if streams:
                await exchange.write(ResponseEvents(exchange, _after(request)))
            else:
                await _ok(exchange, encode(response(exchange)))

    async def _cancel_response(self, request: Request, principal: Principal, path: dict[str, str]) -> None:
        call, place = await self._find(request, principal, path["id"])
        await self.context.engine.cancel(call.principal, call.agent, CancelTaskRequest(id=place.task))
        async with reopen(call, request, place, follow=False) as exchange:
            await _ok(exchange, encode(response(exchange)))

    async def _delete_response(self, request: Request, principal: Principal, path: dict[str, str]) -> None:
        """Delete the task of a response. It is canceled first if it is not over."""
        call, place = await self._find(request, principal, path["id"])
        async with reopen(call, request, place, follow=False):
            pass  # the response exists
        if not await self.context.engine.delete(call.principal, call.agent, place.task):
            raise NotDeletable(
                "The response cannot be deleted yet: its task is still ending, or a webhook has to hear of it"
            )
        access = self.context.access
        await access.audit.record(call.principal.name, "task.delete", place.task, address=access.address(request))
        await respond(request, Response(200, encode(shapes.DeletedResponse(place.response, "response", True))))

    async def _list_input_items(self, request: Request, principal: Principal, path: dict[str, str]) -> None:
        call, place = await self._find(request, principal, path["id"])
        async with reopen(call, request, place, follow=False) as exchange:
            await _ok(exchange, encode(page_of(request, items_of(exchange))))

    async def _find(self, request: Request, principal: Principal, response_id: str) -> tuple[Call, TurnReference]:
        place = place_of(response_id)
        if place is None or not await self.context.engine.knows(place.agent):
            raise TaskNotFound(f"Response {response_id[:200]!r} not found")
        return await self._call(request, principal, place.agent), place

    # Models

    async def _list_models(self, request: Request, principal: Principal, path: dict[str, str]) -> None:
        access = self.context.access
        profiles = [profile for profile in self.context.agents.profiles() if access.may_use(principal, profile)]
        data = [self._shown(profile) for profile in profiles]
        await respond(request, Response(200, encode({"object": "list", "data": data})))

    async def _get_model(self, request: Request, principal: Principal, path: dict[str, str]) -> None:
        call = await self._call_model(request, principal, path["id"])
        assert call.profile is not None
        await respond(request, Response(200, encode(self._shown(call.profile))))

    def _shown(self, profile: Profile) -> dict[str, str | int]:
        return {"id": profile.id, "object": "model", "created": self.started, "owned_by": "roost"}

    # The common part

    async def _read_chat(self, request: Request, principal: Principal) -> LargeTurn[ChatRequest]:
        body = await self._body(request, principal)
        if is_light(body):
            return LargeTurn(parse(ChatRequest, body, self.context.requests.json))
        return _decode_chat(await self._read_large(request, principal, read_chat, body))

    async def _read_response(self, request: Request, principal: Principal) -> LargeTurn[ResponsesRequest]:
        body = await self._body(request, principal)
        if is_light(body):
            return LargeTurn(parse(ResponsesRequest, body, self.context.requests.json))
        return _decode_response(await self._read_large(request, principal, read_response, body))

    async def _body(self, request: Request, principal: Principal) -> bytes:
        body = await self.context.requests.body(request, principal)
        check_content_type(request, body)
        return body

    async def _read_large(
        self, request: Request, principal: Principal, work: Callable[..., bytes], body: bytes
    ) -> bytes:
        bodies, in_session = self.context.requests, SESSION in request.headers
        return await bodies.workers.run(principal.name, work, body, in_session, *bodies.json, *bodies.messages)

    async def _call_model(self, request: Request, principal: Principal, name: str | None) -> Call:
        if name is None:
            raise InvalidParams("model: missing required field `model`", field="model")
        if name not in self.context.agents:
            raise AgentNotFound(
                f"The model {name[:128]!r} does not exist; GET /openai/v1/models lists the models of this host"
            )
        return await self._call(request, principal, name)

    async def _call(self, request: Request, principal: Principal, agent: str) -> Call:
        call = await self.admission.agent(self.context, request, principal, agent, speaks_any)
        return call._replace(converts=True)


_decode_chat = msgspec.msgpack.Decoder(LargeTurn[ChatRequest]).decode
_decode_response = msgspec.msgpack.Decoder(LargeTurn[ResponsesRequest]).decode


def _made(read: LargeTurn[Any]) -> ChatTurn | None:
    """Return the turn of a large request; None if the request is not large."""
    if read.refusal:
        raise InvalidParams(read.refusal, field=read.field)
    return read.turn


def _fits(template: str, path: str) -> bool:
    return values_of(template.split("/"), path.split("/")) is not None


async def _answer(exchange: Exchange, write: Callable[[Exchange], bytes]) -> None:
    await exchange.finish()
    if exchange.reader.answered:
        await _ok(exchange, write(exchange))
    else:
        await respond(exchange.request, failed(exchange.reader, exchange.headers()))


async def _ok(exchange: Exchange, body: bytes) -> None:
    exchange.call.reader.admit(len(body))
    await respond(exchange.request, Response(200, body, headers=[*NOT_KEPT, *exchange.headers()]))


def _session(request: Request, **given: str | None) -> str:
    """Return the session that the request names. Where it names several, they must be the same."""
    named = {name: value for name, value in given.items() if value is not None}
    if SESSION in request.headers:
        named["X-Session-ID"] = request.header(SESSION)
    for name, value in named.items():
        if not value or len(value) > MAX_CONTEXT_ID:
            raise InvalidParams(f"{name} must have 1 to {MAX_CONTEXT_ID} characters", field=name)
    if len({*named.values()}) > 1:
        raise InvalidParams(f"{' and '.join(named)} name different sessions", field=next(iter(named)))
    return next(iter(named.values()), "")


def _after(request: Request) -> int:
    raw = request.query.get("starting_after")
    if raw is None:
        return -1
    if not (raw.isascii() and raw.isdigit()) or len(raw) > 18:
        raise InvalidParams("starting_after must be the sequence_number of an event", field="starting_after")
    return int(raw)
