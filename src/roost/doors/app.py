"""The ASGI application: takes a request to its door.

Hand-written dispatch, because A2A's paths (`tasks/{id}:cancel`, an optional `{tenant}` in front)
are no ordinary ones and this is the hot path: see docs/adr/0003-own-dispatch.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import NamedTuple

from roost.doors import index, openapi, routes, sandbox
from roost.doors.a2a_03 import door as a2a_03
from roost.doors.a2a_03.errors import rest_error as old_rest_error
from roost.doors.access import refuse_in_query
from roost.doors.admin import PREFIX as ADMIN_PREFIX
from roost.doors.admin import Admin
from roost.doors.cards import CARD_PATH, FLEET, JWKS_PATH, OLD_CARD_PATHS
from roost.doors.catalog import CATALOG_PATH, catalog
from roost.doors.context import Context
from roost.doors.errors import known, problem, rest_error, rpc_error
from roost.doors.evidence import KEYS_PATH as EVIDENCE_KEYS
from roost.doors.evidence import evidence_keys
from roost.doors.guard import Guard, admit, negotiate_extensions
from roost.doors.http import NOT_KEPT, ClientGone, Headers, Receive, Request, Response, Scope, Send, respond
from roost.doors.jsonrpc import NO_ID
from roost.doors.mcp import PATH as MCP_PATH
from roost.doors.mcp import MCPDoor
from roost.doors.mcp import refusal as mcp_refusal
from roost.doors.observability import Observability, Requests
from roost.doors.openai.door import ALIAS as OPENAI_ALIAS
from roost.doors.openai.door import PREFIX as OPENAI_PREFIX
from roost.doors.openai.door import OpenAIDoor
from roost.doors.openai.errors import openai_error
from roost.doors.openapi_components import Asked
from roost.doors.rest import Call
from roost.engine.engine import Engine
from roost.engine.hosted import Profile
from roost.fleet import cards
from roost.identity.scopes import SCHEMES
from roost.protocol.errors import A2AError, AgentNotFound, MethodNotAllowed, RouteNotFound

log = logging.getLogger("roost.doors")


class Binding(NamedTuple):
    found: routes.Match
    admit: Callable[[Request, Profile, str], None] | None
    """Checks the version and the extensions; JSON-RPC does so itself, to answer with the id of the request."""


RPC = Binding(routes.Match(routes.RPC, {}, ()), None)
OLD_RPC = Binding(a2a_03.RPC_MATCH, None)


class App:
    """root: the agent that the root path serves; headers: of every answer; a2a_03: clients of A2A 0.3 are served."""

    def __init__(
        self,
        engine: Engine,
        guard: Guard,
        context: Context,
        admin: Admin,
        *,
        root: str | None,
        version: str,
        headers: Headers,
        a2a_03: bool,
        openai: OpenAIDoor | None = None,
        mcp: MCPDoor | None = None,
    ) -> None:
        self.engine = engine
        self.guard = guard
        self.context = context
        self.access = context.access
        self.meter = engine.meter
        self.admin = admin
        self.root = root
        self.headers = headers
        self.a2a_03 = a2a_03
        self.openai = openai
        self.mcp = mcp
        self.requests = Requests()
        self.observability = Observability(engine, self.requests, context.access, version)
        self.profiles: list[Profile] = [queue.hosted.profile for queue in engine.runner.queues.values()]
        self.by_id = {profile.id: profile for profile in self.profiles}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        root_path: str = scope.get("root_path", "")
        if root_path and f"{path}/".startswith(f"{root_path}/"):
            path = path[len(root_path) :] or "/"
        request = Request(scope, receive, send, path, self.headers)
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
        self.guard.check(request, is_open=self.access.open)
        preflight = self.guard.preflight(request)
        if preflight is not None:
            request.route = "preflight"
            await respond(request, preflight)
            return
        path = request.path
        if request.scope.get("query_string"):
            refuse_in_query(request)
        if path.startswith("/agents/") and len(path) > len("/agents/"):
            agent, below = self._place(path)
            await self._agent(request, agent, below, routes.AGENT)
        elif path.startswith(ADMIN_PREFIX):
            await self.admin.serve(request)
        elif self.openai is not None and path.startswith(OPENAI_PREFIX):
            await self.openai.serve(request)
        elif self.mcp is not None and path.removesuffix("/") == MCP_PATH:
            await self.mcp.serve(request)
        elif not await self._host(request):
            if self.root is None:
                await self.access.for_anyone(request)
                raise RouteNotFound(f"There is nothing at {request.method} {path[:200]}; GET / says what there is")
            await self._agent(request, self.root, path, "")

    async def _agent(self, request: Request, agent: str, below: str, prefix: str) -> None:
        profile = self.by_id.get(agent)
        if profile is None:
            request.route = f"{prefix}/*"
            await self.access.for_anyone(request)
            raise AgentNotFound(f"There is no agent {agent[:128]!r} here; GET /agents/ lists those there are")
        if below == OPENAI_ALIAS and self.openai is not None:
            request.route = prefix + below
            await self.openai.serve_agent(request, profile)
            return
        is_old_card = self.a2a_03 and below in OLD_CARD_PATHS
        if below in (CARD_PATH, JWKS_PATH) or is_old_card:
            request.route = prefix + below
            _only_get(request)
            base, desk = self.context.base(request), self.context.cards
            is_keys = below == JWKS_PATH
            document = desk.jwks(base, agent) if is_keys else desk.card(request, base, agent, old=is_old_card)
            await respond(request, await document)
            return
        binding = self._binding(request, agent, below)
        found = binding.found
        request.route = prefix + (found.route.template if found.route is not None else "/*")
        principal = await self.access.for_agent(request, profile)
        if not self.meter.idle:
            self.meter.check_rate("a2a", principal.name, "", agent)  # a tenant's rate is of its messages
        if binding.admit is None and request.method != "POST":
            raise MethodNotAllowed(
                "This is the JSON-RPC path: POST to it. The card is at " + CARD_PATH, metadata={"allow": "POST"}
            )
        if found.route is None:
            if found.allowed:
                allowed = ", ".join(found.allowed)
                raise MethodNotAllowed(
                    f"{request.method} is not for this path; {allowed} is", metadata={"allow": allowed}
                )
            raise RouteNotFound(f"There is nothing at {request.method} {below[:200]} of agent {agent!r}")
        if binding.admit is not None:
            binding.admit(request, profile, self.engine.tenancy)
        await found.route.handler(Call(self.context, request, agent, found.path, principal))

    def _binding(self, request: Request, agent: str, below: str) -> Binding:
        """Paths below `/v1/` are the dialect's or those of 0.3; at the path of JSON-RPC the version decides."""
        if below in ("", "/") or below == f"/{agent}":
            return OLD_RPC if self.a2a_03 and a2a_03.claims_rpc(request) else RPC
        if sandbox.claims(request, agent, below):
            return Binding(sandbox.match(request.method, below), negotiate_extensions)
        if self._is_old(request, agent, below):
            return Binding(a2a_03.match(request.method, below), a2a_03.admit)
        return Binding(routes.match(request.method, below, agent), admit)

    async def _host(self, request: Request) -> bool:
        """The host's own paths; False if it is none of them."""
        path = request.path
        if path == "/" and request.method == "POST" and self.root is not None:
            return False
        answer = self.answers.get(path)
        if answer is None:
            return False
        request.route = path
        _only_get(request)
        await respond(request, await answer(request))
        return True

    @cached_property
    def answers(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        cards, look = self.context.cards, self.observability
        return {
            "/": self._index,
            "/agents": self._directory,
            "/agents/": self._directory,
            "/openapi.json": self._openapi,
            CATALOG_PATH: self._catalog,
            CARD_PATH: lambda request: cards.card(request, self.context.base(request), self.root or FLEET),
            **(dict.fromkeys(OLD_CARD_PATHS, self._old_card) if self.a2a_03 else {}),
            JWKS_PATH: lambda request: cards.jwks(self.context.base(request), None),
            EVIDENCE_KEYS: lambda request: evidence_keys(cards.keyring),
            "/healthz": look.alive,
            "/health": look.alive,
            "/readyz": look.ready,
            "/ready": look.ready,
            "/metrics": look.metrics,
        }

    async def _old_card(self, request: Request) -> Response:
        return await self.context.cards.card(request, self.context.base(request), self.root or FLEET, old=True)

    async def _callable(self, request: Request) -> list[Profile]:
        """The agents that this caller may call."""
        principal = await self.access.for_anyone(request)
        return [profile for profile in self.profiles if self.access.may_use(principal, profile)]

    async def _directory(self, request: Request) -> Response:
        base, terms = self.context.base(request), self.context.cards.terms
        return Response(200, cards.directory(await self._callable(request), base, terms))

    async def _catalog(self, request: Request) -> Response:
        return catalog(request, await self._callable(request), self.context.base(request))

    async def _openapi(self, request: Request) -> Response:
        await self.access.for_anyone(request)
        rules = self.access.rules
        asked = Asked(
            self.access.schemes_of(None),
            tuple(scheme for scheme in SCHEMES if scheme in rules.schemes),
            rules.open_metrics,
            self.context.cards.terms.openid_url,
            self.openai is not None,
            self.mcp is not None,
            self.a2a_03,
        )
        return Response(200, openapi.document(self.context.base(request), self.observability.version, asked))

    async def _index(self, request: Request) -> Response:
        profiles, base = await self._callable(request), self.context.base(request)
        vary: Headers = [(b"vary", b"accept"), *NOT_KEPT]
        if b"text/html" in request.headers.get(b"accept", b""):
            page = index.index_page(profiles, base)
            policy = (
                b"content-security-policy",
                b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
            )
            return Response(200, page, b"text/html; charset=utf-8", [*vary, policy])
        return Response(200, index.index_json(profiles, base), headers=vary)

    def _error(self, request: Request, error: A2AError) -> Response:
        if request.path.startswith(ADMIN_PREFIX):
            return problem(error)
        agent, below = self._place(request.path)
        if self.openai is not None and (request.path.startswith(OPENAI_PREFIX) or (agent and below == OPENAI_ALIAS)):
            return openai_error(error)
        if self.mcp is not None and request.path.removesuffix("/") == MCP_PATH:
            return mcp_refusal(error)
        if agent and sandbox.claims(request, agent, below):
            return sandbox.dialect_error(request, error, agent)
        if self._is_old(request, agent, below):
            return old_rest_error(error)
        return rpc_error(error, NO_ID) if _is_rpc(request) else rest_error(request, error)

    def _is_old(self, request: Request, agent: str, below: str) -> bool:
        """It is for REST of A2A 0.3, unless it is the dialect's."""
        return self.a2a_03 and bool(agent) and a2a_03.claims(request, agent, below)

    def _place(self, path: str) -> tuple[str, str]:
        """The agent that a path is below, and what it is there."""
        if not path.startswith("/agents/"):
            return self.root or "", path
        agent, slash, below = path[len("/agents/") :].partition("/")
        return agent, slash + below


def _is_rpc(request: Request) -> bool:
    """By its form, whoever is or is not there."""
    place, _, below = request.path.removeprefix("/agents/").partition("/")
    at_agent = request.path.startswith("/agents/") and bool(place) and below in ("", place)
    return request.method == "POST" and (at_agent or "/" in (request.path, request.route))


def _only_get(request: Request) -> None:
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed(f"{request.method} is not for this path; GET is", metadata={"allow": "GET, HEAD"})
