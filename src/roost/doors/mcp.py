"""/mcp: the agents as tools of the Model Context Protocol, on its official SDK.

POST /mcp -> MCPDoor           who calls, and whether what came is JSON
          -> mcp_sessions      the SDK: sessions of the versions that have them, streams, versions
          -> mcp_tools         which tools there are, and what a call of one does
          -> mcp_call          one agent at work for one client

The SDK takes a second to load, so it is loaded with the first request, beside the loop.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from roost.doors.context import Context
from roost.doors.errors import rpc_error
from roost.doors.guard import check_content_type
from roost.doors.http import Request, Response
from roost.doors.jsonrpc import NO_ID
from roost.engine.hosted import Profile
from roost.protocol.codec import check_cost
from roost.protocol.errors import A2AError, MethodNotAllowed, ParseError, RouteNotFound, Unavailable

if TYPE_CHECKING:
    from roost.doors.mcp_sessions import Sessions

PATH = "/mcp"
METHODS = ("POST", "DELETE")
ROUTES: tuple[tuple[str, str, str], ...] = (
    ("POST", PATH, "MCP: the agents that the caller may use, as tools"),
    ("DELETE", PATH, "MCP: end a session"),
)


class MCPDoor:
    """`sessions_here`: whoever opens a session comes back to this process; otherwise none is opened."""

    def __init__(self, context: Context, profiles: Sequence[Profile], version: str, *, sessions_here: bool) -> None:
        self.context = context
        self.profiles = profiles
        self.version = version
        self.sessions_here = sessions_here
        self.opening: asyncio.Task[Sessions] | None = None
        self.closing = False

    async def serve(self, request: Request) -> None:
        request.route = PATH
        context = self.context
        principal = await context.access.for_anyone(request)
        if find_spec("mcp") is None:
            raise RouteNotFound("MCP needs its SDK, which this host does not have: pip install 'roost[mcp]'")
        if request.method not in METHODS:
            raise MethodNotAllowed(
                f"{request.method} is not for this path: POST is, and DELETE to end a session. This host sends nothing"
                " that was not asked for",
                metadata={"allow": ", ".join(METHODS)},
            )
        if request.method == "DELETE":
            await (await self._opened()).serve(request, principal, b"", None)
            return
        body = await request.body(context.max_body)
        check_content_type(request, body)
        message = _parsed(body)
        if _is_request(message) and not context.engine.meter.idle:
            context.engine.meter.check_rate("", principal.name, "", "")
        await (await self._opened()).serve(request, principal, body, message)

    def drain(self) -> None:
        """Calls end with what they know; sessions end after them."""
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
        if self.closing:
            raise Unavailable("the host is shutting down; connect again to go on", retry_after=1)
        if self.opening is None:
            self.opening = asyncio.get_running_loop().create_task(self._open(), name="mcp")
        return await asyncio.shield(self.opening)

    async def _open(self) -> Sessions:
        module = await asyncio.to_thread(importlib.import_module, "roost.doors.mcp_sessions")
        sessions: Sessions = module.Sessions(self.context, self.profiles, self.version, stateful=self.sessions_here)
        await sessions.open()
        return sessions


def refusal(error: A2AError) -> Response:
    """What never reached a tool. Unlike A2A's binding, MCP's answers it with an error of HTTP, too."""
    return rpc_error(error, NO_ID)._replace(status=error.http)


def _is_request(message: Any) -> bool:
    """Answers and notifications belong to a request that was counted; without them it could not end."""
    return not isinstance(message, dict) or {"id", "method"} <= message.keys()


def _parsed(body: bytes) -> Any:
    """What the SDK's parsers let pass and no agent could be given, such as half of a surrogate pair, ends here."""
    check_cost(body)
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"Invalid JSON payload: {error}") from None
