"""The JSON-RPC binding (specification, section 9): one path, one method per operation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from roost.doors.admission import A2A, Call, speaks_1_0
from roost.doors.context import Context
from roost.doors.door import AGENT, CALLER, Door, Route
from roost.doors.errors import known, rest_error, rpc_error
from roost.doors.guard import check_content_type
from roost.doors.http import REPLAYED, ClientGone, Connection, Place, Request, Response, respond
from roost.doors.openapi_doors import json_rpc
from roost.doors.operations import check_tenant, opening, parts_of, unary
from roost.doors.sse import JSONForm, send_events
from roost.engine.responses import SendResult
from roost.protocol.codec import decoder, invalid
from roost.protocol.cost import JSONLimits, check, is_light
from roost.protocol.errors import (
    A2AError,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    MethodNotFound,
    ParseError,
)
from roost.protocol.operations import BY_NAME, Operation

CARD_HINT = "This is the JSON-RPC path: POST to it. The card is at /.well-known/agent-card.json"
NO_ID = Raw(b"null")
MAX_ID = 1024
"""The longest id in bytes. Every event of a stream repeats it."""


class Envelope(Struct):
    jsonrpc: str
    method: str
    id: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET


class _OnlyId(Struct):
    """Reads the id of a request that is otherwise not one."""

    id: Raw | UnsetType = UNSET


class BadEnvelope(Exception):
    """The body is not a JSON-RPC request. `request_id` is its id, as far as it can be read."""

    def __init__(self, error: A2AError, request_id: Raw) -> None:
        super().__init__(error.message)
        self.error = error
        self.request_id = request_id


def is_rpc_path(place: Place) -> bool:
    """The agent's base path, with or without its tenant. `/agents/message:send` is HTTP+JSON without a tenant."""
    if not place.agent or ":" in place.agent:
        return False
    return place.below in ("", "/") or place.below == f"/{place.agent}"


class JSONRPCDoor(Door):
    """Claims the base path of every agent. Requests of A2A 0.3 have been claimed before."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def routes(self) -> Sequence[Route]:
        return [Route("POST", AGENT, "Call any operation by JSON-RPC", CALLER, json_rpc)]

    def claims(self, request: Request) -> bool:
        return is_rpc_path(request.place)

    def error(self, request: Connection, error: A2AError) -> Response:
        return rpc_error(error, NO_ID) if request.method == "POST" else rest_error(request, error)

    async def serve(self, request: Request) -> None:
        await serve_rpc(self.context, request, _serve)


RPCHandler = Callable[[Call, Request, Envelope, bytes], Awaitable[None]]


async def serve_rpc(context: Context, request: Request, serve: RPCHandler) -> None:
    """Admit and read a JSON-RPC request of any version. Errors carry the request's id as soon as it is known."""
    place = request.place
    request.route = place.prefix + "/"
    admission = context.admission
    principal = await admission.caller(request, A2A, context.agents.profile(place.agent))
    call = await admission.agent(context, request, principal, place.agent, None)
    if request.method != "POST":
        raise MethodNotAllowed(CARD_HINT, metadata={"allow": "POST"})
    request_id = NO_ID
    try:
        body = await context.requests.body(request, principal)
        check_content_type(request, body)
        envelope = envelope_of(body, context.requests.json)
        request_id = envelope.id if isinstance(envelope.id, Raw) else NO_ID
        await serve(call, request, envelope, bytes(request_id))
    except ClientGone:
        raise
    except BadEnvelope as bad:
        await respond(request, rpc_error(bad.error, bad.request_id))
    except (Exception, asyncio.CancelledError) as error:
        if request.status:
            raise
        await respond(request, rpc_error(known(error, request), request_id))


async def _serve(call: Call, request: Request, envelope: Envelope, request_id: bytes) -> None:
    call.context.admission.negotiate(call, speaks_1_0)
    operation = _operation(envelope.method, old=call.context.cards.terms.a2a_03)
    request.route = f"{request.route} {operation.name}"
    params = await call.context.requests.decode(call.principal, operation.request, params_of(envelope))
    request.let_go()
    check_tenant(call.agent, params.tenant)
    if operation.streams:
        async with call.stream(opening(operation)(call, params)) as stream:
            await send_events(request, stream, JSONForm(b'{"jsonrpc":"2.0","id":%b,"result":' % request_id, b"}"))
        return
    result = await unary(operation)(call, params)
    if isinstance(result, SendResult) and result.replayed:
        request.response_headers.append(REPLAYED)
    before, body, after = parts_of(result)
    before = b'{"jsonrpc":"2.0","id":%b,"result":%b' % (request_id, before)
    await respond(request, Response(200, body, before=before, after=after + b"}"))


def _operation(method: str, *, old: bool) -> Operation:
    operation = BY_NAME.get(method)
    if operation is None:
        is_old = method.startswith(("message/", "tasks/", "agent/"))
        served = "for which A2A-Version is 0.3 or absent" if old else "which this host does not serve"
        hint = f" in A2A 1.0: it is one of 0.3, {served}" if is_old else ""
        raise MethodNotFound(f"Method {method[:80]!r} does not exist{hint}; A2A 1.0 has {', '.join(BY_NAME)}")
    return operation


def params_of(envelope: Envelope) -> bytes:
    return bytes(envelope.params) if isinstance(envelope.params, Raw) else b"{}"


def envelope_of(body: bytes, limits: JSONLimits) -> Envelope:
    """Read the envelope. The limits on large params are checked with them, in a worker process."""
    if is_light(body):
        check(body, limits)
    try:
        envelope = decoder(Envelope)(body)
    except RecursionError:
        raise InvalidParams("nesting is too deep", field="body") from None
    except msgspec.ValidationError as error:
        if body.lstrip()[:1] == b"[":
            raise InvalidRequest("Not a JSON-RPC 2.0 request: batches are not part of A2A") from None
        wrong = invalid(error)
        refused = InvalidRequest(f"Not a JSON-RPC 2.0 request: {wrong.message}", field=wrong.field)
        raise BadEnvelope(refused, _readable_id(body)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None
    if isinstance(envelope.id, Raw):
        _check_id(bytes(envelope.id))
    if envelope.jsonrpc != "2.0":
        raise BadEnvelope(InvalidRequest('jsonrpc must be "2.0"', field="jsonrpc"), _readable_id(body))
    return envelope


def _readable_id(body: bytes) -> Raw:
    """Return the id of a request that is refused for another reason, or null if it has none that can be repeated."""
    try:
        found = decoder(_OnlyId)(body).id
        if isinstance(found, Raw):
            _check_id(bytes(found))
            return found
    except (msgspec.DecodeError, UnicodeDecodeError, A2AError):
        return NO_ID
    return NO_ID


def _check_id(request_id: bytes) -> None:
    if request_id[:1] in (b"{", b"[", b"t", b"f"):
        raise InvalidRequest("id must be a string, a number or null", field="id")
    if len(request_id) > MAX_ID:
        raise InvalidRequest(f"id is longer than {MAX_ID} bytes", field="id")
    try:
        request_id.decode()  # msgspec does not look into what it leaves raw
    except UnicodeDecodeError as error:
        raise ParseError(f"Invalid JSON payload: id: {error}") from None
