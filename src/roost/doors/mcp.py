"""/mcp: the agents as tools of the Model Context Protocol, on its official SDK.

POST /mcp -> MCPDoor           authenticates the caller and parses the JSON
          -> mcp_sessions      the SDK: sessions (in versions of MCP that have them), streams, versions
          -> mcp_tools         the tools, and what a call of each does
          -> mcp_call          one call of an agent, for one client
          -> mcp_subscriptions the streams of clients that listen for changes of the list of tools

The SDK takes a second to load, so it is loaded with the first request, in a thread.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from roost.doors.admission import A2A
from roost.doors.context import Context
from roost.doors.door import KNOWN, Door, Route
from roost.doors.errors import rpc_error
from roost.doors.guard import check_content_type
from roost.doors.http import Connection, Request, Response
from roost.doors.jsonrpc import NO_ID
from roost.doors.openapi_doors import mcp as describe
from roost.identity.principal import Principal
from roost.protocol.codec import encode
from roost.protocol.cost import LIGHT_VALUES, JSONLimits, check, has_few_values_outside_strings, is_light
from roost.protocol.errors import (
    A2AError,
    InvalidParams,
    MethodNotAllowed,
    ParseError,
    PayloadTooLarge,
    RouteNotFound,
    Unavailable,
)

if TYPE_CHECKING:
    from roost.doors.mcp_sessions import Sessions

PATH = "/mcp"
METHODS = ("POST", "DELETE")
DATA = "roost.mcp.data"
"""The key in a request's scope of the argument `data` of its call, where that is large."""
UNCOUNTED_BYTES = 64 * 1024
"""The longest body that is read of a caller who is over the rate."""


class MCPDoor(Door):
    """Serves /mcp. Sessions are opened only with `sessions_here`: their clients come back to this process."""

    def __init__(self, context: Context, version: str, *, sessions_here: bool) -> None:
        self.context = context
        self.version = version
        self.sessions_here = sessions_here
        self.opening: asyncio.Task[Sessions] | None = None
        self.closing = False

    def routes(self) -> Sequence[Route]:
        return [
            Route("POST", PATH, "MCP: the agents that the caller may use, as tools", KNOWN, describe),
            Route("DELETE", PATH, "MCP: end a session", KNOWN, describe),
        ]

    def claims(self, request: Request) -> bool:
        return request.path == PATH or request.path == PATH + "/"

    def error(self, request: Connection, error: A2AError) -> Response:
        """Write an error of a request that reached no tool. Unlike A2A's binding, MCP also gives it an HTTP status."""
        return rpc_error(error, NO_ID)._replace(status=error.http)

    async def serve(self, request: Request) -> None:
        request.route = PATH
        context = self.context
        principal = await context.access.caller(request)
        if find_spec("mcp") is None:
            raise RouteNotFound("MCP needs its SDK, which this host does not have: pip install mcp")
        if request.method not in METHODS:
            raise MethodNotAllowed(
                f"{request.method} is not allowed on this path: use POST, or DELETE to end a session. This host sends"
                " no messages of its own accord",
                metadata={"allow": ", ".join(METHODS)},
            )
        if request.method == "DELETE":
            await (await self._opened()).serve(request, principal, b"", None)
            return
        body, message = await self._read(request, principal)
        request.let_go()
        await (await self._opened()).serve(request, principal, body, message)

    async def _read(self, request: Request, principal: Principal) -> tuple[bytes, Any]:
        """Read a message, and count it. A caller over its rate can still send what belongs to a counted request."""
        admission = self.context.admission
        exceeded = admission.exhausted(A2A, principal)
        try:
            if exceeded is None:
                body = await self.context.requests.body(request, principal)
            else:
                body = await request.body(UNCOUNTED_BYTES)
        except PayloadTooLarge as error:
            raise exceeded or error from None
        check_content_type(request, body)
        try:
            if is_light(body):
                message = parsed(body, self.context.requests.json)
            else:
                body = await self._without_data(request, principal, body)
                message = parsed(body, self.context.requests.json)
        except A2AError:
            admission.count(A2A, principal)
            raise
        if not _belongs_to_another(message):
            admission.count(A2A, principal)
        return body, message

    async def _without_data(self, request: Request, principal: Principal, body: bytes) -> bytes:
        """Take the large argument `data` out of a call, which the SDK would convert many times, and set it aside."""
        bodies = self.context.requests
        found = await bodies.workers.run(principal.name, split_data, body, *bodies.json)
        kept, data = msgspec.msgpack.decode(found, type=tuple[bytes, bytes])
        if data:
            request.scope[DATA] = Raw(data)
        return kept

    def drain(self) -> None:
        """Let calls in progress return what they have so far. Sessions end after them."""
        self.closing = True
        if self.opening is not None and self.opening.done() and not self.opening.exception():
            self.opening.result().drain()

    async def close(self) -> None:
        self.closing = True
        if self.opening is None:
            return
        await asyncio.wait([self.opening])
        if not self.opening.exception():
            await self.opening.result().close()

    async def _opened(self) -> Sessions:
        if self.opening is None and not self.closing:
            self.opening = asyncio.get_running_loop().create_task(self._open(), name="mcp")
        sessions = None if self.opening is None else await asyncio.shield(self.opening)
        if sessions is None or self.closing:
            raise Unavailable("the host is shutting down; connect again to continue", retry_after=1)
        return sessions

    async def _open(self) -> Sessions:
        module = await asyncio.to_thread(importlib.import_module, "roost.doors.mcp_sessions")
        sessions: Sessions = module.Sessions(self.context, self.version, stateful=self.sessions_here)
        await sessions.open()
        return sessions


def _belongs_to_another(message: Any) -> bool:
    """Say whether a message is not counted: responses and notifications belong to a request that was counted."""
    if not isinstance(message, dict):
        return False
    return "id" not in message if "method" in message else "result" in message or "error" in message


def split_data(body: bytes, *limits: int) -> bytes:
    """Split a call into the message without its argument `data`, and the data. Runs in a worker process."""
    message, data = parsed(body, JSONLimits(*limits)), b""
    match message:
        case {"method": "tools/call", "params": {"arguments": {"data": found, **rest}, **params}}:
            message = {**message, "params": {**params, "arguments": rest}}
            data = encode(found)
    kept = encode(message)
    if not has_few_values_outside_strings(kept):
        raise InvalidParams(
            f"the request has more than {LIGHT_VALUES} values; only the argument `data` may be that large",
            field="body",
        )
    return msgspec.msgpack.encode((kept, data))


def parsed(body: bytes, limits: JSONLimits) -> Any:
    """Parse a message. Refuse what the SDK's parser accepts but no agent can take, such as half a surrogate pair."""
    check(body, limits)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None
