"""The ASGI application: finds the door that claims a request or a WebSocket connection, and lets it serve it.

Dispatch is written by hand, because A2A's paths (`tasks/{id}:cancel`, an optional `{tenant}` in front) are no ordinary
templates and this is the hot path: see docs/adr/0003-own-dispatch.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from roost.doors.access import Access, refuse_in_query
from roost.doors.counters import RequestCounts
from roost.doors.door import AGENT, Door
from roost.doors.errors import known, rest_error
from roost.doors.guard import Guard
from roost.doors.http import (
    ClientGone,
    Connection,
    Headers,
    Place,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    WebSocket,
    respond,
)
from roost.protocol.errors import A2AError, RouteNotFound

log = logging.getLogger("roost.doors")

AGENTS = "/agents/"
GONE = 499
"""The status that is counted for a client that left before its response began."""
INTERNAL, TRY_AGAIN_LATER = 1011, 1013
"""WebSocket close codes."""


class App:
    """Serves HTTP requests and WebSocket connections.

    doors: asked in this order; the first that claims a request serves it.
    root: the agent that the root path serves, or "".
    closed: a prefix of paths that are not the root agent's, or "".
    headers: added to every response.
    """

    def __init__(
        self,
        doors: Sequence[Door],
        guard: Guard,
        access: Access,
        counts: RequestCounts,
        *,
        root: str,
        closed: str,
        headers: Headers,
    ) -> None:
        self.doors = doors
        self.guard = guard
        self.access = access
        self.counts = counts
        self.root = root
        self.closed = closed
        self.headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        root_path: str = scope.get("root_path", "")
        if root_path and f"{path}/".startswith(f"{root_path}/"):
            path = path[len(root_path) :] or "/"
        place = self._place(path)
        if scope["type"] == "websocket":
            await self._serve_socket(WebSocket(scope, receive, send, path, place, self.headers, "GET"))
        else:
            await self._serve(Request(scope, receive, send, path, place, self.headers, scope["method"]))

    def _place(self, path: str) -> Place:
        if not path.startswith(AGENTS) or path == AGENTS:
            is_closed = bool(self.closed) and path.startswith(self.closed)
            return Place("" if is_closed else self.root, path, "")
        agent, slash, below = path[len(AGENTS) :].partition("/")
        return Place(agent, slash + below, AGENT)

    async def _serve(self, request: Request) -> None:
        door: Door | None
        for door in self.doors:
            if door.claims(request):
                break
        else:
            door = None
        try:
            answer = self._check(request)
            if answer is not None:
                await respond(request, answer)
            elif door is not None:
                await door.serve(request)
            else:
                await self.access.caller(request)
                raise RouteNotFound(
                    f"There is nothing at {request.method} {request.path[:200]}; GET / lists what there is"
                )
        except ClientGone:
            return
        except (Exception, asyncio.CancelledError) as error:
            if request.status:
                if isinstance(error, asyncio.CancelledError):
                    return
                raise
            await respond(request, _error(door, request, known(error, request)))
        finally:
            if request.held is not None:
                request.let_go()
            if request.reader is not None:
                request.reader.release()
            self._count(request)

    def _check(self, request: Request) -> Response | None:
        """Raise unless the request may reach a door. Return the response to a browser's preflight request."""
        self.guard.check(request, is_open=self.access.open)
        preflight = self.guard.preflight(request)
        if preflight is not None:
            request.route = "preflight"
        elif request.scope.get("query_string"):
            refuse_in_query(request)
        return preflight

    async def _serve_socket(self, socket: WebSocket) -> None:
        door = next((door for door in self.doors if door.claims_socket(socket)), None)
        try:
            self.guard.check(socket, is_open=self.access.open)
            if socket.scope.get("query_string"):
                refuse_in_query(socket)
            if door is None:
                await self.access.caller(socket)
                raise RouteNotFound(f"There is no WebSocket at {socket.path[:200]}")
            await door.serve_socket(socket)
            await socket.close()
        except ClientGone:
            return
        except (Exception, asyncio.CancelledError) as error:
            await _refuse(socket, door, known(error, socket))
        finally:
            if socket.reader is not None:
                socket.reader.release()
            self._count(socket)

    def _count(self, request: Connection) -> None:
        status = request.status or GONE
        self.counts.count(request.route, request.method, status)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s %s %d", request.method, request.path, status)


def _error(door: Door | None, request: Connection, error: A2AError) -> Response:
    return rest_error(request, error) if door is None else door.error(request, error)


async def _refuse(socket: WebSocket, door: Door | None, error: A2AError) -> None:
    """Answer a handshake with the error as an HTTP response, or close a connection that was accepted."""
    if socket.status:
        await socket.close(TRY_AGAIN_LATER if error.http == 503 else INTERNAL, error.message)
    else:
        await socket.deny(_error(door, socket, error))
