"""The HTTP+JSON binding (specification, section 11), below an agent's own path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from roost.doors.admission import A2A, Call, speaks_1_0
from roost.doors.context import Context
from roost.doors.door import AGENT, CALLER, Door, Route
from roost.doors.errors import rest_error
from roost.doors.guard import check_content_type
from roost.doors.http import REPLAYED, Connection, Request, Response, preferred_json, respond
from roost.doors.openapi_doors import rest_operation
from roost.doors.operations import check_tenant, opening, parts_of, unary
from roost.doors.paths import NOTHING, Endpoint, Match, Table
from roost.doors.sse import JSONForm, send_events
from roost.engine.responses import SendResult
from roost.protocol.codec import convert
from roost.protocol.errors import A2AError, MethodNotAllowed, RouteNotFound
from roost.protocol.operations import OPERATIONS, Operation
from roost.protocol.types import SendMessageRequest

Handler = Callable[[Call, Request, dict[str, str]], Awaitable[None]]


async def serve_operation(operation: Operation, call: Call, request: Request, path: dict[str, str]) -> None:
    """Decode the parameters from body, query and path, and carry the operation out."""
    if request.method == "POST":
        body = await read_body(call, request)
        params = None
        if operation.request is SendMessageRequest:
            params = call.context.requests.light(SendMessageRequest, body)
        if params is None:
            params = await params_of(operation, call, body, path)
        request.let_go()
    else:
        params = convert(operation.request, {**request.query, **path}, strict=False)
    check_tenant(call.agent, path.get("tenant", ""))
    await carry_out(operation, call, request, params)


async def read_body(call: Call, request: Request) -> bytes:
    body = await call.context.requests.body(request, call.principal)
    check_content_type(request, body)
    return body


async def params_of(operation: Operation, call: Call, body: bytes, path: dict[str, str]) -> Any:
    bodies = call.context.requests
    if operation.request is SendMessageRequest:
        return await bodies.decode(call.principal, SendMessageRequest, body)
    return convert(operation.request, {**(bodies.fields(body) if body.strip() else {}), **path})


async def carry_out(operation: Operation, call: Call, request: Request, params: Any) -> None:
    """Carry an operation out, and send its result or its stream."""
    check_tenant(call.agent, params.tenant)
    if operation.streams:
        async with call.stream(opening(operation)(call, params)) as stream:
            await send_events(request, stream, JSONForm())
        return
    result = await unary(operation)(call, params)
    if isinstance(result, SendResult) and result.replayed:
        request.response_headers.append(REPLAYED)
    before, body, after = parts_of(result)
    await respond(request, Response(200, body, preferred_json(request), before=before, after=after))


TABLE: Table[Handler] = Table(
    Endpoint(route.method, route.template, partial(serve_operation, operation), operation.summary)
    for operation in OPERATIONS
    for route in operation.rest
)
"""The endpoints of the binding, which are served below an agent's path, and below `{path}/{tenant}` too."""


def match(method: str, path: str, agent: str) -> Match[Handler]:
    """Find the operation for the path below an agent.

    A first segment that is the agent's id is its tenant, even where the id reads like a path (`tasks`).
    """
    tenant, slash, below = path[1:].partition("/")
    found = TABLE.match(method, path) if tenant != agent else NOTHING
    if found is NOTHING and slash and tenant:
        inner = TABLE.match(method, slash + below)
        if inner is not NOTHING:
            return Match(inner.endpoint, {**inner.path, "tenant": tenant}, inner.allowed)
    return TABLE.match(method, path) if tenant == agent else found


class AgentDoor(Door):
    """A door whose paths are below an agent's. Subclasses say which endpoint a request is for."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def negotiate(self, call: Call, request: Request) -> None:
        """Check the version, and activate the extensions."""
        self.context.admission.negotiate(call, speaks_1_0)

    def match(self, request: Request) -> Match[Handler]:
        raise NotImplementedError

    async def serve(self, request: Request) -> None:
        context, place = self.context, request.place
        found = self.match(request)
        request.route = place.prefix + (found.endpoint.template if found.endpoint is not None else "/*")
        admission = context.admission
        principal = await admission.caller(request, A2A, context.agents.profile(place.agent))
        call = await admission.agent(context, request, principal, place.agent, None)
        if found.endpoint is None:
            if found.allowed:
                allowed = ", ".join(found.allowed)
                raise MethodNotAllowed(
                    f"{request.method} is not allowed on this path; use {allowed}", metadata={"allow": allowed}
                )
            raise RouteNotFound(
                f"There is nothing at {request.method} {place.below[:200]} of the agent {place.agent!r}"
            )
        self.negotiate(call, request)
        await found.endpoint.handler(call, request, found.path)


class RestDoor(AgentDoor):
    """Claims every path below an agent that no other door has claimed."""

    def routes(self) -> Sequence[Route]:
        return [
            Route(route.method, AGENT + route.template, operation.summary, CALLER, rest_operation(operation))
            for operation in OPERATIONS
            for route in operation.rest
        ]

    def claims(self, request: Request) -> bool:
        return bool(request.place.agent)

    def match(self, request: Request) -> Match[Handler]:
        return match(request.method, request.place.below, request.place.agent)

    def error(self, request: Connection, error: A2AError) -> Response:
        return rest_error(request, error)
