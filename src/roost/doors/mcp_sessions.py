"""The SDK's side of /mcp: its server, its sessions, and the path of requests and responses through them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import MutableMapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import mcp_types as mcp
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from sse_starlette.sse import AppStatus

from roost.doors.context import Context
from roost.doors.http import NOT_KEPT, Request, paced
from roost.doors.mcp_subscriptions import Subscription, Subscriptions
from roost.doors.mcp_tools import ASKED, SESSION, Tools, key_of
from roost.identity.principal import Principal
from roost.protocol.errors import InvalidRequest, TooManyRequests

MAX_SESSIONS = 1000
"""The most sessions, and the most subscriptions."""
OWN_SESSIONS = 250
"""The most sessions of one principal, and the most subscriptions, so that it cannot take them all."""
IDLE_S = 30 * 60.0
LAST_RESULTS_S = 1.0
"""Seconds that calls have to return their results when the host stops, and notifications to arrive before a session
ends."""
OPENING, CANCELLED, LISTEN = "initialize", "notifications/cancelled", "subscriptions/listen"
STREAM = "roost.subscription"
"""The key under which the scope of a request to listen carries its stream."""
INSTRUCTIONS = (
    "Each agent of this host is a tool that takes a text. A call starts a task with an id, which continues by itself:"
    " get_task reads it, list_tasks lists your tasks, cancel_task ends one. If an agent asks a question, call its tool"
    " again with the taskId and the answer as text. To continue a conversation with a new task, pass the contextId of"
    " an earlier result."
)

logging.getLogger("mcp").setLevel(logging.WARNING)  # at level info it reports every request
logging.getLogger("mcp.server.streamable_http_manager").setLevel(logging.ERROR)  # refusals are normal responses

AppStatus.enable_automatic_graceful_drain = False  # it would cut off the last results; streams end with their sessions


class SessionRecord(NamedTuple):
    principal: str
    seen: float


class Sessions:
    """The sessions of MCP. Each belongs to one principal; for everyone else it does not exist."""

    def __init__(self, context: Context, version: str, *, stateful: bool) -> None:
        self.tools = Tools(context)
        self.subscriptions = Subscriptions(context, most=MAX_SESSIONS, most_own=OWN_SESSIONS)
        server: Server[Any] = Server(
            "roost",
            version=version,
            title="Roost",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=lambda name: None,  # no argument is a header: the SDK need not look for one
            on_list_tools=self.tools.list,
            on_call_tool=self.tools.call,
            on_subscriptions_listen=_listen,
        )
        self.manager = StreamableHTTPSessionManager(
            server,
            stateless=not stateful,
            session_idle_timeout=IDLE_S,
            max_sessions=MAX_SESSIONS,
            max_request_body_size=context.requests.most,
        )
        self.held: dict[str, SessionRecord] = {}
        """Sessions by their id."""
        self.opening: dict[asyncio.Task[Any], str] = {}
        """Principals whose session is being opened, by the request that opens it."""
        self.served: dict[asyncio.Task[Any], bytes] = {}
        """Requests that are being served. A notification has the id of its session, everything else nothing."""
        self.ended = asyncio.Event()
        self.running: asyncio.Task[None] | None = None
        self.draining: asyncio.Task[None] | None = None

    async def open(self) -> None:
        started = asyncio.Event()
        self.running = asyncio.get_running_loop().create_task(self._run(started), name="mcp sessions")
        await started.wait()

    async def _run(self, started: asyncio.Event) -> None:
        async with self.manager.run():
            publishing = asyncio.get_running_loop().create_task(self.subscriptions.publish())
            started.set()
            await self.ended.wait()
            publishing.cancel()

    def drain(self) -> None:
        self.tools.closing = True
        self.subscriptions.close()
        if self.draining is None:
            self.draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        if self.served:
            await asyncio.wait({*self.served}, timeout=LAST_RESULTS_S)
        self.ended.set()

    async def close(self) -> None:
        self.drain()
        if self.draining is not None:
            await self.draining
        if self.running is not None:
            await asyncio.wait([self.running])
        await self.tools.close()

    async def serve(self, request: Request, principal: Principal, body: bytes, message: Any) -> None:
        """Pass a request to the SDK. `message` is its parsed body, which the SDK parses again."""
        method = message.get("method") if isinstance(message, dict) else None
        if method == CANCELLED:
            self._cancelled(request, principal, message.get("params"))
        elif method is not None:
            self._check_id(request, principal, message.get("id"))
        serving = asyncio.current_task()
        assert serving is not None
        if method == OPENING and SESSION not in request.headers:
            self._check_room(principal)
            self.opening[serving] = principal.name
        session = request.headers.get(SESSION, b"")
        if request.method == "DELETE":
            await self._notified(session)
        user = AuthenticatedUser(AccessToken(token="", client_id=principal.name, scopes=[]))
        left, write = [body], paced(request.send)

        async def receive() -> MutableMapping[str, Any]:
            if left:
                return {"type": "http.request", "body": left.pop(), "more_body": False}
            return await request.receive()

        async def send(sent: MutableMapping[str, Any]) -> None:
            if sent["type"] == "http.response.start":
                request.status = sent["status"]
                self.opening.pop(serving, None)
                named = {name.lower(): value for name, value in sent["headers"]}
                self._note(request, principal, named.get(SESSION, request.headers.get(SESSION, b"")).decode("latin-1"))
                kept = [] if b"cache-control" in named else NOT_KEPT
                sent = {**sent, "headers": [*sent["headers"], *kept, *request.response_headers]}
            await write(sent)

        is_call = method is not None and "id" in message
        listening = self.subscriptions.opened(request, principal) if method == LISTEN else nullcontext()
        self.served[serving] = b"" if is_call or request.method == "DELETE" else session
        try:
            with listening as stream:
                scope = {**request.scope, "user": user, ASKED: request, STREAM: stream}
                await self.manager.handle_request(scope, receive, send)
        finally:
            del self.served[serving]
            self.opening.pop(serving, None)

    async def _notified(self, session: bytes) -> None:
        """Wait until a session has received its notifications, which the SDK confirms before it passes them on.

        It fails to pass on what is left when the session ends.
        """
        left = [serving for serving, notified in self.served.items() if session and notified == session]
        if left:
            await asyncio.wait(left, timeout=LAST_RESULTS_S)

    def _check_room(self, principal: Principal) -> None:
        old = time.monotonic() - IDLE_S
        self.held = {session: held for session, held in self.held.items() if held.seen > old}
        own = [*(held.principal for held in self.held.values()), *self.opening.values()].count(principal.name)
        if own >= OWN_SESSIONS:
            raise TooManyRequests(
                f"you have {OWN_SESSIONS} open sessions, which is the limit: end some with DELETE /mcp", retry_after=60
            )

    def _note(self, request: Request, principal: Principal, session: str) -> None:
        """Note which sessions exist, from the responses. An idle session is forgotten when the next one is opened."""
        held = self.held.get(session)
        if request.status >= 400 or request.method == "DELETE":
            if held is not None and held.principal == principal.name and request.status in (200, 404):
                del self.held[session]
        elif session and (held is not None or len(self.held) < MAX_SESSIONS):
            self.held[session] = SessionRecord(principal.name, time.monotonic())

    def _cancelled(self, request: Request, principal: Principal, params: Any) -> None:
        """Mark a cancelled call. The SDK stops it as if its session had ended, so the call must know the reason."""
        asked = params.get("requestId") if isinstance(params, dict) else None
        call = self.tools.calls.get(key_of(request, principal, asked))
        if call is not None:
            call.given_up = True

    def _check_id(self, request: Request, principal: Principal, asked: Any) -> None:
        """Refuse a second call with the same id: the SDK would mix up the answers and the cancellation of the two."""
        if key_of(request, principal, asked) in self.tools.calls:
            raise InvalidRequest("this session has a call with this id in progress: give each request an id of its own")


async def _listen(
    asked: ServerRequestContext[Any, Any], params: mcp.SubscriptionsListenRequestParams
) -> mcp.SubscriptionsListenResult:
    assert asked.request is not None
    stream: Subscription = asked.request.scope[STREAM]
    return await stream.serve(asked, params)
