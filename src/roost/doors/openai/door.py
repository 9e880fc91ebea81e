"""/openai/v1: chat completions, responses and models. A model is an agent that the caller may use."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from roost.doors.context import Context
from roost.doors.guard import check_content_type, negotiate_extensions
from roost.doors.http import NOT_KEPT, Request, Response, respond
from roost.doors.openai.chat import Chunks, completion
from roost.doors.openai.errors import failed
from roost.doors.openai.exchange import SESSION, Exchange, TurnReference, write_stream
from roost.doors.openai.requests import ChatRequest, ResponsesRequest, parse
from roost.doors.openai.responses import ResponseEvents, response
from roost.doors.openai.sending import TurnRequest, begin, place_of, reopen
from roost.doors.openai.turn import turn_of
from roost.doors.rest import Call
from roost.doors.templates import values_of
from roost.engine.hosted import Profile
from roost.engine.intake import MAX_CONTEXT_ID
from roost.protocol.codec import encode
from roost.protocol.errors import AgentNotFound, InvalidParams, MethodNotAllowed, RouteNotFound, TaskNotFound
from roost.protocol.types import CancelTaskRequest

T = TypeVar("T")

PREFIX = "/openai/v1/"
ALIAS = "/v1/chat/completions"
"""Below an agent's path: the same, whatever model is named."""


class OpenAIRoute(NamedTuple):
    method: str
    template: str
    name: str
    summary: str
    body: type[Any] | None = None


ROUTES = (
    OpenAIRoute("POST", "chat/completions", "create_chat", "OpenAI: ask an agent, as a chat completion", ChatRequest),
    OpenAIRoute("POST", "responses", "create_response", "OpenAI: ask an agent, as a response", ResponsesRequest),
    OpenAIRoute("GET", "responses/{id}", "get_response", "OpenAI: read a response, or follow it"),
    OpenAIRoute("POST", "responses/{id}/cancel", "cancel_response", "OpenAI: cancel the task of a response"),
    OpenAIRoute("GET", "models", "list_models", "OpenAI: the agents that the caller may use"),
    OpenAIRoute("GET", "models/{id}", "get_model", "OpenAI: an agent as a model"),
)
ALIAS_ROUTE = OpenAIRoute("POST", ALIAS, "create_agent_chat", "OpenAI: a chat completion of this agent", ChatRequest)


class OpenAIDoor:
    """`cancels`: a client that drops its connection cancels its task."""

    def __init__(self, context: Context, profiles: Sequence[Profile], *, cancels: bool) -> None:
        self.context = context
        self.profiles = profiles
        self.by_id = {profile.id: profile for profile in profiles}
        self.cancels = cancels
        self.started = int(time.time())
        handlers: dict[str, Callable[[Request, dict[str, str]], Awaitable[None]]] = {
            "create_chat": self._create_chat,
            "create_response": self._create_response,
            "get_response": self._get_response,
            "cancel_response": self._cancel_response,
            "list_models": self._list_models,
            "get_model": self._get_model,
        }
        self.routes = [(route, route.template.split("/"), handlers[route.name]) for route in ROUTES]

    async def serve(self, request: Request) -> None:
        segments = request.path[len(PREFIX) :].split("/")
        found = [(route, values_of(template, segments), handler) for route, template, handler in self.routes]
        fitting = [(route, values, handler) for route, values, handler in found if values is not None]
        request.route = PREFIX + (fitting[0][0].template if fitting else "*")
        await self.context.access.for_anyone(request)
        for route, values, handler in fitting:
            if route.method == request.method or (route.method, request.method) == ("GET", "HEAD"):
                await handler(request, values)
                return
        if not fitting:
            raise RouteNotFound(f"There is nothing at {request.method} {request.path[:200]}; see docs/openai.md")
        _only([route.method for route, _, _ in fitting], request)

    async def serve_agent(self, request: Request, profile: Profile) -> None:
        """The alias below an agent's path."""
        await self.context.access.for_agent(request, profile)
        _only(["POST"], request)
        await self._chat(request, await self._body(request, ChatRequest), profile)

    # Chat completions

    async def _create_chat(self, request: Request, values: dict[str, str]) -> None:
        asked = await self._body(request, ChatRequest)
        await self._chat(request, asked, self._model(asked.model))

    async def _chat(self, request: Request, asked: ChatRequest, profile: Profile) -> None:
        call = await self._call(request, profile)
        asked.check()
        session = _session(request, session_id=asked.session_id)
        turn = turn_of(asked.messages, "messages", in_session=bool(session))
        exchange = await self._begin(call, TurnRequest(turn, asked.metadata, session, streams=bool(asked.stream)))
        if asked.stream:
            options = asked.stream_options
            with_usage = options is not None and bool(options.include_usage)
            await write_stream(exchange, Chunks(exchange, with_usage=with_usage))
        else:
            await self._answer(exchange, completion)

    # Responses

    async def _create_response(self, request: Request, values: dict[str, str]) -> None:
        asked = await self._body(request, ResponsesRequest)
        call = await self._call(request, self._model(asked.model))
        asked.check()
        if asked.conversation is not None and asked.previous_response_id is not None:
            raise InvalidParams(
                "previous_response_id and conversation cannot be together: either says where to go on",
                field="previous_response_id",
            )
        session = _session(request, session_id=asked.session_id, conversation=asked.conversation_id)
        previous = asked.previous_response_id or ""
        turn = turn_of(asked.said, "input", asked.instructions, in_session=bool(session or previous))
        background = bool(asked.background)
        wish = TurnRequest(turn, asked.metadata, session, previous, bool(asked.stream))
        exchange = await self._begin(call, wish)
        exchange.cancels = self.cancels and not background
        if asked.stream:
            await write_stream(exchange, ResponseEvents(exchange))
        elif background:
            exchange.release()
            await _ok(exchange, encode(response(exchange)))
        else:
            await self._answer(exchange, lambda found: encode(response(found)))

    async def _get_response(self, request: Request, values: dict[str, str]) -> None:
        call, place = await self._found(request, values["id"])
        streams = request.query.get("stream", "") in ("true", "1")
        exchange = await reopen(call, place, follow=streams)
        if streams:
            await write_stream(exchange, ResponseEvents(exchange, _after(request)))
        else:
            await _ok(exchange, encode(response(exchange)))

    async def _cancel_response(self, request: Request, values: dict[str, str]) -> None:
        call, place = await self._found(request, values["id"])
        await self.context.engine.cancel(call.principal, call.agent, CancelTaskRequest(id=place.task))
        exchange = await reopen(call, place, follow=False)
        await _ok(exchange, encode(response(exchange)))

    async def _found(self, request: Request, response_id: str) -> tuple[Call, TurnReference]:
        place = place_of(response_id)
        profile = None if place is None else self.by_id.get(place.agent)
        if place is None or profile is None:
            raise TaskNotFound(f"Response {response_id[:200]!r} not found")
        return await self._call(request, profile), place

    # Models

    async def _list_models(self, request: Request, values: dict[str, str]) -> None:
        principal = await self.context.access.for_anyone(request)
        data = [self._shown(profile) for profile in self.profiles if self.context.access.may_use(principal, profile)]
        await respond(request, Response(200, encode({"object": "list", "data": data})))

    async def _get_model(self, request: Request, values: dict[str, str]) -> None:
        profile = self._model(values["id"])
        await self.context.access.for_agent(request, profile)
        await respond(request, Response(200, encode(self._shown(profile))))

    def _shown(self, profile: Profile) -> dict[str, str | int]:
        return {"id": profile.id, "object": "model", "created": self.started, "owned_by": "roost"}

    # What they share

    async def _body(self, request: Request, kind: type[T]) -> T:
        body = await request.body(self.context.max_body)
        check_content_type(request, body)
        return parse(kind, body)

    def _model(self, name: str | None) -> Profile:
        if name is None:
            raise InvalidParams("model: missing required field `model`", field="model")
        profile = self.by_id.get(name)
        if profile is None:
            raise AgentNotFound(f"The model {name[:128]!r} does not exist; GET /openai/v1/models lists those there are")
        return profile

    async def _call(self, request: Request, profile: Profile) -> Call:
        context = self.context
        principal = await context.access.for_agent(request, profile)
        if not context.engine.meter.idle:
            context.engine.meter.check_rate("", principal.name, "", profile.id)
        negotiate_extensions(request, profile, context.engine.tenancy)
        return Call(context, request, profile.id, {}, principal)

    async def _begin(self, call: Call, wish: TurnRequest) -> Exchange:
        exchange = await begin(call, wish)
        exchange.cancels = self.cancels
        return exchange

    async def _answer(self, exchange: Exchange, write: Callable[[Exchange], bytes]) -> None:
        await exchange.finish()
        if exchange.reader.answered:
            await _ok(exchange, write(exchange))
        else:
            await respond(exchange.call.request, failed(exchange.reader, exchange.headers()))


async def _ok(exchange: Exchange, body: bytes) -> None:
    await respond(exchange.call.request, Response(200, body, headers=[*NOT_KEPT, *exchange.headers()]))


def _session(request: Request, **given: str | None) -> str:
    """The session that the request names, by whatever name; all that it gives must be the same."""
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


def _only(methods: list[str], request: Request) -> None:
    if request.method not in methods:
        allowed = ", ".join(methods)
        raise MethodNotAllowed(f"{request.method} is not for this path; {allowed} is", metadata={"allow": allowed})
