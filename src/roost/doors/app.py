"""The ASGI application: takes a request to its door.

Hand-written dispatch, because A2A's paths (`tasks/{id}:cancel`, an optional `{tenant}` in front)
are no ordinary ones and this is the hot path: see docs/adr/0003-own-dispatch.md.
"""

from __future__ import annotations

import asyncio
import logging
import time
from urllib.parse import quote

from roost.doors import index, routes
from roost.doors.context import Context
from roost.doors.errors import known, rest_error, rpc_error
from roost.doors.guard import Guard, check_version, negotiate_extensions
from roost.doors.http import ClientGone, Headers, Receive, Request, Response, Scope, Send, preferred_json, respond
from roost.doors.jsonrpc import NO_ID
from roost.doors.observability import Observability, Requests
from roost.doors.rest import Call
from roost.engine.engine import Engine
from roost.engine.ports import Profile
from roost.fleet import cards
from roost.fleet.cards import ServedCard
from roost.identity.principal import LOCAL
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError, AgentNotFound, MethodNotAllowed, RouteNotFound

log = logging.getLogger("roost.doors")

CARD_PATH = "/.well-known/agent-card.json"


class App:
    """base: the public URL, or "" to take the bound address; root: the agent that the root path serves."""

    def __init__(
        self, engine: Engine, guard: Guard, *, base: str, root: str | None, max_body: int, version: str
    ) -> None:
        self.engine = engine
        self.guard = guard
        self.base = base
        self.root = root
        self.version = version
        self.context = Context(engine, LOCAL, max_body)
        self.requests = Requests()
        self.observability = Observability(engine, self.requests, version)
        self.profiles: list[Profile] = [lane.hosted.profile for lane in engine.runner.lanes.values()]
        self.by_id = {profile.id: profile for profile in self.profiles}
        self.started_at = time.time()
        self.cards: dict[tuple[str, str], ServedCard] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        root_path: str = scope.get("root_path", "")
        if root_path and f"{path}/".startswith(f"{root_path}/"):
            path = path[len(root_path) :] or "/"
        request = Request(scope, receive, send, path)
        try:
            await self._serve(request)
        except ClientGone:
            return
        except asyncio.CancelledError as error:
            if not request.status:
                await respond(request, self._error(request, known(error, request)))
        except Exception as error:
            if request.status:
                raise
            await respond(request, self._error(request, known(error, request)))
        finally:
            self.requests.count(request.route, request.method, request.status or 499)
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s %s %d", request.method, request.path, request.status or 499)

    async def _serve(self, request: Request) -> None:
        self.guard.check(request)
        path = request.path
        if path.startswith("/agents/") and len(path) > len("/agents/"):
            agent, slash, below = path[len("/agents/") :].partition("/")
            await self._agent(request, agent, slash + below, routes.AGENT)
        elif not await self._host(request):
            if self.root is None:
                raise RouteNotFound(f"There is nothing at {request.method} {path[:200]}; GET / says what there is")
            await self._agent(request, self.root, path, "")

    async def _agent(self, request: Request, agent: str, below: str, prefix: str) -> None:
        profile = self.by_id.get(agent)
        if profile is None:
            request.route = f"{prefix}/*"
            raise AgentNotFound(f"There is no agent {agent[:128]!r} here; GET /agents/ lists those there are")
        if below == CARD_PATH:
            request.route = prefix + CARD_PATH
            _only_get(request)
            await self._card(request, agent)
            return
        if below in ("", "/") or below == f"/{agent}":
            request.route = prefix + "/"
            if request.method != "POST":
                raise MethodNotAllowed(
                    "This is the JSON-RPC path: POST to it. The card is at " + CARD_PATH, metadata={"allow": "POST"}
                )
            await routes.RPC.handler(Call(self.context, request, agent, {}))
            return
        found = routes.match(request.method, below, agent)
        if found.route is None:
            request.route = f"{prefix}/*"
            if found.allowed:
                allowed = ", ".join(found.allowed)
                raise MethodNotAllowed(
                    f"{request.method} is not for this path; {allowed} is", metadata={"allow": allowed}
                )
            raise RouteNotFound(f"There is nothing at {request.method} {below[:200]} of agent {agent!r}")
        request.route = prefix + found.route.template
        check_version(request)
        negotiate_extensions(request, profile)
        await found.route.handler(Call(self.context, request, agent, found.path))

    async def _host(self, request: Request) -> bool:
        """The host's own paths; False if it is none of them."""
        path = request.path
        base = self._base(request)
        if path == "/" and request.method == "POST" and self.root is not None:
            return False
        answers = {
            "/": lambda: self._index(request, base),
            "/agents": lambda: Response(200, cards.directory(self.profiles, base)),
            "/agents/": lambda: Response(200, cards.directory(self.profiles, base)),
            "/healthz": self.observability.alive,
            "/health": self.observability.alive,
            "/metrics": self.observability.metrics,
        }
        if path == CARD_PATH:
            request.route = path
            _only_get(request)
            await self._card(request, self.root)
        elif path in ("/readyz", "/ready"):
            request.route = path
            _only_get(request)
            await respond(request, await self.observability.ready())
        elif path in answers:
            request.route = path
            _only_get(request)
            await respond(request, answers[path]())
        else:
            return False
        return True

    def _index(self, request: Request, base: str) -> Response:
        vary: Headers = [(b"vary", b"accept")]
        if b"text/html" in request.headers.get(b"accept", b""):
            page = index.index_page(self.profiles, base)
            policy = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
            return Response(200, page, b"text/html; charset=utf-8", [*vary, policy])
        return Response(200, index.index_json(self.profiles, base), headers=vary)

    async def _card(self, request: Request, agent: str | None) -> None:
        base = self._base(request)
        key = (agent or "", base)
        card = self.cards.get(key)
        if card is None:
            if agent is None:
                body = encode(cards.fleet_card(self.profiles, base, self.version))
            else:
                body = encode(cards.agent_card(self.by_id[agent], f"{base}/agents/{agent}"))
            card = cards.served(body, self.started_at)
            if len(self.cards) < 4 * len(self.profiles) + 4:
                self.cards[key] = card
        headers: Headers = [
            (b"etag", card.etag.encode()),
            (b"last-modified", card.last_modified.encode()),
            (b"cache-control", b"public, max-age=%d" % cards.MAX_AGE_S),
            (b"vary", b"accept"),
        ]
        if _unchanged(request, card):
            await respond(request, Response(304, b"", headers=headers))
        else:
            wanted = (
                preferred_json(request) if b"a2a+json" in request.headers.get(b"accept", b"") else b"application/json"
            )
            await respond(request, Response(200, card.body, wanted, headers))

    def _base(self, request: Request) -> str:
        """From the settings or the bound address, never from what the request says."""
        if self.base:
            return self.base
        server = request.scope.get("server") or ("127.0.0.1", None)
        host, port = server[0], server[1]
        scheme = request.scope.get("scheme", "http")
        name = f"[{host}]" if ":" in host else host
        place = name if port in (None, 80 if scheme == "http" else 443) else f"{name}:{port}"
        return f"{scheme}://{place}{quote(request.scope.get('root_path', ''))}"

    def _error(self, request: Request, error: A2AError) -> Response:
        return rpc_error(error, NO_ID) if _is_rpc(request) else rest_error(request, error)


def _is_rpc(request: Request) -> bool:
    """By its form, whoever is or is not there."""
    place, _, below = request.path.removeprefix("/agents/").partition("/")
    at_agent = request.path.startswith("/agents/") and bool(place) and below in ("", place)
    return request.method == "POST" and (at_agent or "/" in (request.path, request.route))


def _only_get(request: Request) -> None:
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed(f"{request.method} is not for this path; GET is", metadata={"allow": "GET, HEAD"})


def _unchanged(request: Request, card: ServedCard) -> bool:
    tags = request.header(b"if-none-match")
    if tags:
        return tags.strip() == "*" or card.etag in [tag.strip().removeprefix("W/") for tag in tags.split(",")]
    return request.header(b"if-modified-since") == card.last_modified
