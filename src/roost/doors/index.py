"""The host's own pages: the index for people and programs, the directory, the catalog and the OpenAPI document."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from html import escape

from roost.doors import openapi
from roost.doors import openapi_schemas as schemas
from roost.doors.admission import A2A
from roost.doors.cards import CARD_PATH
from roost.doors.context import Context
from roost.doors.door import KNOWN, Door, Route, require_method
from roost.doors.errors import rest_error, rpc_error
from roost.doors.http import NOT_KEPT, Connection, Headers, Request, Response, respond
from roost.doors.jsonrpc import NO_ID
from roost.doors.openapi_components import JSON
from roost.doors.openapi_doors import page
from roost.engine.hosted import Profile
from roost.fleet import cards
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError

CATALOG_PATH = "/.well-known/ai-catalog.json"
CATALOG_TYPE = "application/ai-catalog+json"
CATALOG_VERSION = "1.0"
CARD_TYPE = "application/a2a-agent-card+json"

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Roost</title><style>
:root {{ color-scheme: light dark; --line: #8884; --soft: #8882; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2.5rem auto; padding: 0 1rem; }}
h1 {{ margin-bottom: 0; }} h2 {{ margin: 0; font-size: 1.1rem; }}
article {{ border: 1px solid var(--line); border-radius: .6rem; padding: 1rem 1.2rem; margin: 1rem 0; }}
pre {{ background: var(--soft); border-radius: .4rem; padding: .7rem; overflow-x: auto; margin: .6rem 0 0; }}
code {{ font: 13px/1.45 ui-monospace, monospace; }} p {{ margin: .3rem 0; }}
</style></head><body>
<h1>Roost</h1><p>{count} behind one A2A 1.0 door. <a href="{base}/agents/">Directory</a> ·
<a href="{base}/.well-known/agent-card.json">card</a> · <a href="{base}/readyz">ready?</a> ·
<a href="{base}/metrics">metrics</a></p>
{agents}
</body></html>
"""

_AGENT = """<article id="{id}"><h2>{name}</h2><p>{description}</p>
<p><a href="{base}/agents/{id}/.well-known/agent-card.json">card</a></p>
<pre><code>{curl}</code></pre>
<pre><code>{cli}</code></pre></article>
"""


def curl(base: str, agent: str) -> str:
    body = '{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"text":"hello"}]}}'
    return (
        f"curl -s {base}/agents/{agent}/message:send -H 'A2A-Version: 1.0'"
        f" -H 'Content-Type: application/json' -d '{body}'"
    )


def cli(base: str, agent: str) -> str:
    return f"roost send --url {base} {agent} 'hello'"


def index_json(profiles: list[Profile], base: str) -> bytes:
    agents = [
        {
            "id": profile.id,
            "name": profile.name,
            "description": profile.description,
            "url": f"{base}/agents/{profile.id}",
            "card": f"{base}/agents/{profile.id}/.well-known/agent-card.json",
            "try": {"curl": curl(base, profile.id), "cli": cli(base, profile.id)},
        }
        for profile in profiles
    ]
    return encode({"agents": agents, "directory": f"{base}/agents/"})


def index_page(profiles: list[Profile], base: str) -> bytes:
    agents = "".join(
        _AGENT.format(
            id=escape(profile.id),
            base=escape(base),
            name=escape(profile.name),
            description=escape(profile.description),
            curl=escape(curl(base, profile.id)),
            cli=escape(cli(base, profile.id)),
        )
        for profile in profiles
    )
    count = "1 agent" if len(profiles) == 1 else f"{len(profiles)} agents"
    return _PAGE.format(base=escape(base), count=count, agents=agents).encode()


def catalog(request: Request, profiles: list[Profile], base: str) -> Response:
    """List the agents that the caller may use, as an AI Catalog: see docs/adr/0017-ai-catalog.md."""
    entries = [
        {
            "identifier": f"{base}/agents/{profile.id}",
            "type": CARD_TYPE,
            "url": f"{base}/agents/{profile.id}{CARD_PATH}",
            "displayName": profile.name,
            "description": profile.description,
        }
        for profile in profiles
    ]
    body = encode({"specVersion": CATALOG_VERSION, "host": {"displayName": "Roost fleet"}, "entries": entries})
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers: Headers = [
        (b"etag", etag.encode()),
        (b"cache-control", b"private, no-cache"),  # each caller has its own
        (b"vary", b"authorization, x-api-key"),
    ]
    known = [tag.strip().removeprefix("W/") for tag in request.header(b"if-none-match").split(",")]
    if etag in known or known == ["*"]:
        return Response(304, b"", headers=headers)
    return Response(200, body, CATALOG_TYPE.encode(), headers)


class HostDoor(Door):
    """Serves what belongs to the host as a whole. `doors` are the others, which the OpenAPI document describes too."""

    def __init__(self, context: Context, doors: Sequence[Door], *, version: str, root: str) -> None:
        self.context = context
        self.doors = doors
        self.version = version
        self.root = root
        self._known_routes: tuple[Route, ...] = ()
        self.pages = {
            "/": self._index,
            "/agents": self._directory,
            "/agents/": self._directory,
            "/openapi.json": self._openapi,
            CATALOG_PATH: self._catalog,
        }

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/",
                "The agents with commands to copy, as a page or as JSON",
                KNOWN,
                page("GetIndex", {JSON: schemas.Index, "text/html": None}),
            ),
            Route(
                "GET",
                "/agents/",
                "The directory of the fleet",
                KNOWN,
                page("GetDirectory", {JSON: schemas.DirectoryResponse}),
            ),
            Route(
                "GET",
                "/openapi.json",
                "Everything that this host serves, as an OpenAPI 3.1 document",
                KNOWN,
                page("GetOpenAPI", {JSON: None}),
            ),
            Route(
                "GET",
                CATALOG_PATH,
                "The agents that the caller may use, as an AI Catalog",
                KNOWN,
                page("GetCatalog", {CATALOG_TYPE: schemas.Catalog}, "304"),
            ),
        ]

    def claims(self, request: Request) -> bool:
        return request.path in self.pages and not (request.path == "/" and request.method == "POST" and self.root)

    def error(self, request: Connection, error: A2AError) -> Response:
        is_rpc = request.path == "/" and request.method == "POST"
        return rpc_error(error, NO_ID) if is_rpc else rest_error(request, error)

    async def serve(self, request: Request) -> None:
        request.route = request.path
        require_method(request, "GET")
        await respond(request, await self.pages[request.path](request))

    async def _callable(self, request: Request) -> list[Profile]:
        """Return the agents that this caller may call."""
        access = self.context.access
        principal = await self.context.admission.caller(request, A2A)
        return [profile for profile in self.context.agents.profiles() if access.may_use(principal, profile)]

    async def _index(self, request: Request) -> Response:
        profiles, base = await self._callable(request), self.context.base(request)
        vary: Headers = [(b"vary", b"accept"), *NOT_KEPT]
        if b"text/html" in request.headers.get(b"accept", b""):
            policy = b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
            headers = [*vary, (b"content-security-policy", policy)]
            return Response(200, index_page(profiles, base), b"text/html; charset=utf-8", headers)
        return Response(200, index_json(profiles, base), headers=vary)

    async def _directory(self, request: Request) -> Response:
        base, terms = self.context.base(request), self.context.cards.terms
        return Response(200, cards.directory(await self._callable(request), base, terms))

    async def _catalog(self, request: Request) -> Response:
        return catalog(request, await self._callable(request), self.context.base(request))

    async def _openapi(self, request: Request) -> Response:
        await self.context.admission.caller(request, A2A)
        demands = openapi.demands_of(self.context.access, self.context.cards.terms.openid_url)
        return Response(200, openapi.document(self.context.base(request), self.version, demands, self._routes()))

    def _routes(self) -> tuple[Route, ...]:
        if not self._known_routes:
            self._known_routes = tuple(route for door in (self, *self.doors) for route in door.routes())
        return self._known_routes
