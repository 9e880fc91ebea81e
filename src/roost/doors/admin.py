"""The admin surface below /api/v2/admin: tokens, keys, the audit log, evidence, and the state of any task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import Struct

from roost.doors import openapi_schemas as schemas
from roost.doors.access import confined
from roost.doors.admin_views import OVERLAP_S, audit_shown, key_shown, token_shown
from roost.doors.admission import ADMIN as SURFACE
from roost.doors.admission import unknown_agent
from roost.doors.context import Context
from roost.doors.door import Door, Route, require_method
from roost.doors.errors import problem
from roost.doors.evidence import EXPORT_QUERY, MEDIA_TYPE, Exports
from roost.doors.guard import check_content_type
from roost.doors.http import Connection, Request, Response, respond
from roost.doors.openapi_components import JSON
from roost.doors.openapi_doors import admin_route
from roost.doors.paths import Endpoint, Table
from roost.engine.ids import timestamp
from roost.engine.store_types import Stored
from roost.evidence.export import Exporter
from roost.identity.audit import AuditLog
from roost.identity.keys import EVIDENCE, CannotRetire, NoSuchKey
from roost.identity.principal import Principal
from roost.identity.scopes import ADMIN, AUDIT, OPERATE
from roost.identity.tokens import BadToken, TokenRequest, Tokens, seconds
from roost.protocol.codec import decode, encode
from roost.protocol.errors import A2AError, InvalidParams, RouteNotFound

PREFIX = "/api/v2/admin/"
MAX_BODY = 64 * 1024
PAGE, MOST = 100, 1000


class TokenBody(Struct, rename="camel"):
    """The body of POST /tokens."""

    name: str
    scopes: list[str]
    tenants: list[str] = []
    subject: str = ""
    expires_in: str = ""
    """The lifetime, such as 90d, 12h or 30m. Without it the token does not expire."""


class Rotation(Struct, rename="camel"):
    """The body of POST /keys/{agent}:rotate."""

    overlap: str = ""
    """How long the replaced key stays valid; 7d by default."""


class AdminCall(NamedTuple):
    request: Request
    principal: Principal
    values: dict[str, str]


Handler = Callable[[AdminCall], Awaitable[Response | None]]


class AdminRoute(NamedTuple):
    method: str
    template: str
    scopes: tuple[str, ...]
    """Any one of these scopes is enough."""
    name: str
    """The name of the method of AdminDoor that serves it."""
    summary: str
    result: type[Any] | None
    """The type of the response body; None if it is empty or not JSON."""
    body: type[Any] | None = None
    status: str = "200"
    query: dict[str, dict[str, Any]] = {}
    media_type: str = JSON


_COUNT = {"type": "integer", "minimum": 1, "maximum": 10**15 - 1}
ROUTES: tuple[AdminRoute, ...] = (
    AdminRoute("GET", "tokens", (ADMIN,), "list_tokens", "List the tokens, without their secrets", schemas.TokenList),
    AdminRoute(
        "POST",
        "tokens",
        (ADMIN,),
        "create_token",
        "Make a token. Only this response shows its secret",
        schemas.TokenMade,
        TokenBody,
        "201",
    ),
    AdminRoute(
        "DELETE", "tokens/{id}", (ADMIN,), "revoke_token", "Revoke a token, on all hosts within 5 s", schemas.TokenShown
    ),
    AdminRoute("GET", "keys", (ADMIN,), "list_keys", "List the keys that sign cards", schemas.KeyList),
    AdminRoute(
        "POST", "keys/{agent}:rotate", (ADMIN,), "rotate_key", "Give an agent a new key", schemas.KeyShown, Rotation
    ),
    AdminRoute(
        "DELETE", "keys/{agent}/{kid}", (ADMIN,), "retire_key", "Retire a replaced key at once", None, status="204"
    ),
    AdminRoute(
        "GET",
        "audit",
        (AUDIT, ADMIN),
        "list_audit",
        "List who did what, or was refused it, the newest first",
        schemas.AuditLines,
        query={"before": _COUNT, "limit": _COUNT},
    ),
    AdminRoute(
        "GET",
        "evidence",
        (AUDIT,),
        "export_evidence",
        "Export tasks and everything recorded about them, as a signed bundle",
        None,
        query=EXPORT_QUERY,
        media_type=MEDIA_TYPE,
    ),
    AdminRoute(
        "GET",
        "tasks/{id}",
        (OPERATE,),
        "get_task",
        "Read the state of any task, without its content",
        schemas.TaskShown,
    ),
    AdminRoute("POST", "tasks/{id}:cancel", (OPERATE,), "cancel_task", "Cancel any task", schemas.TaskShown),
)
"""The routes below /api/v2/admin/. In a path, `-` means the fleet's own key and `@evidence` the evidence key."""


class AdminDoor(Door):
    def __init__(self, context: Context, tokens: Tokens, audit: AuditLog, exporter: Exporter) -> None:
        self.context = context
        self.engine = context.engine
        self.access = context.access
        self.keyring = context.cards.keyring
        self.tokens = tokens
        self.audit = audit
        self.exports = Exports(context, exporter)
        self.table: Table[tuple[AdminRoute, Handler]] = Table(
            Endpoint(route.method, PREFIX + route.template, (route, getattr(self, route.name)), route.summary)
            for route in ROUTES
        )

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                one.method,
                PREFIX + one.template,
                one.summary,
                " ".join(one.scopes),
                admin_route(one.name, one.status, one.result, one.body, one.query, one.media_type),
            )
            for one in ROUTES
        ]

    def claims(self, request: Request) -> bool:
        return request.path.startswith(PREFIX)

    def error(self, request: Connection, error: A2AError) -> Response:
        return problem(error)

    async def serve(self, request: Request) -> None:
        found = self.table.match(request.method, request.path)
        request.route = found.endpoint.template if found.endpoint is not None else PREFIX + "*"
        admission = self.context.admission
        if found.endpoint is None:
            await admission.with_scope(request, SURFACE, ADMIN, OPERATE, AUDIT)
            if found.allowed:
                require_method(request, *found.allowed)
            raise RouteNotFound(f"There is nothing at {request.method} {request.path[:200]}")
        route, handler = found.endpoint.handler
        principal = await admission.with_scope(request, SURFACE, *route.scopes)
        response = await handler(AdminCall(request, principal, found.path))
        if response is not None:  # otherwise the handler has sent it piece by piece
            await respond(request, response)

    # Tokens

    async def list_tokens(self, call: AdminCall) -> Response:
        await self.access.token_cache.refresh()
        return _json(200, {"items": [token_shown(token) for token in self.access.token_cache.tokens()]})

    async def create_token(self, call: AdminCall) -> Response:
        body = await _body(call.request, TokenBody)
        try:
            lifetime = seconds(body.expires_in) if body.expires_in else None
        except ValueError as error:
            raise InvalidParams(str(error), field="expiresIn") from None
        wanted = TokenRequest(body.name, body.scopes, body.tenants, body.subject, lifetime)
        try:
            made = await self.tokens.create(wanted, call.principal.name, self.access.address(call.request))
        except BadToken as error:
            raise InvalidParams(str(error), field=error.field) from None
        await self.access.token_cache.refresh()
        return _json(201, {**token_shown(made.token), "token": made.secret})

    async def revoke_token(self, call: AdminCall) -> Response:
        token = await self.tokens.revoke(call.values["id"], call.principal.name, self.access.address(call.request))
        if token is None:
            raise RouteNotFound(f"There is no token {call.values['id'][:64]!r}")
        await self.access.token_cache.refresh()
        return _json(200, token_shown(token))

    # Keys

    async def list_keys(self, call: AdminCall) -> Response:
        await self.access.token_cache.refresh()
        return _json(200, {"items": [key_shown(key) for key in self.keyring.all()]})

    async def rotate_key(self, call: AdminCall) -> Response:
        agent = self._agent(call.values["agent"])
        body = await _body(call.request, Rotation)
        try:
            overlap = seconds(body.overlap) if body.overlap else OVERLAP_S
        except ValueError as error:
            raise InvalidParams(str(error), field="overlap") from None
        key = await self.keyring.rotate(agent, overlap * 1000)
        await self._record(call, "key.rotate", f"{agent or '-'} {key.kid}")
        await self.access.token_cache.refresh()
        return _json(200, key_shown(key))

    async def retire_key(self, call: AdminCall) -> Response:
        agent, kid = self._agent(call.values["agent"]), call.values["kid"]
        try:
            await self.keyring.retire(agent, kid)
        except NoSuchKey as error:
            raise RouteNotFound(str(error)) from None
        except CannotRetire as error:
            raise InvalidParams(str(error), field="kid") from None
        await self._record(call, "key.retire", f"{agent or '-'} {kid}")
        await self.access.token_cache.refresh()
        return Response(204, b"")

    # Audit

    async def list_audit(self, call: AdminCall) -> Response:
        query = call.request.query
        before, limit = _number(query, "before", None), _number(query, "limit", PAGE)
        found = await self.audit.read(before, min(limit or PAGE, MOST))
        return _json(200, {"items": [audit_shown(one) for one in found]})

    # Evidence

    async def export_evidence(self, call: AdminCall) -> None:
        principal = replace(call.principal, tenants=None) if ADMIN in call.principal.scopes else call.principal
        tenants = confined(call.request, principal).tenants
        await self.exports.serve(call.request, tenants, lambda target: self._record(call, "evidence.export", target))

    # Tasks

    async def get_task(self, call: AdminCall) -> Response:
        return _json(200, task_shown(await self.engine.state_of(call.values["id"])))

    async def cancel_task(self, call: AdminCall) -> Response:
        await self.engine.cancel_any(call.values["id"])
        await self._record(call, "task.cancel", call.values["id"])
        return await self.get_task(call)

    async def _record(self, call: AdminCall, action: str, target: str) -> None:
        await self.audit.record(call.principal.name, action, target, address=self.access.address(call.request))

    def _agent(self, name: str) -> str:
        if name == "-":
            return ""
        if name == EVIDENCE:
            return name
        if name not in self.context.agents:
            raise unknown_agent(name)
        return name


def task_shown(stored: Stored) -> dict[str, object]:
    return {
        "id": stored.new.id,
        "agent": stored.new.scope.agent,
        "tenant": stored.new.scope.tenant,
        "owner": stored.new.scope.owner,
        "contextId": stored.new.context_id,
        "state": stored.head.state,
        "created": timestamp(stored.new.created),
        "updated": timestamp(stored.head.status_time * 1000),
        "worker": stored.head.worker,
    }


async def _body(request: Request, kind: type[Any]) -> Any:
    body = await request.body(MAX_BODY)
    check_content_type(request, body)
    return decode(kind, body if body.strip() else b"{}")


def _number(query: dict[str, str], name: str, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or int(text) == 0:
        raise InvalidParams(f"{name} must be a whole number of at least 1", field=name)
    return int(text)


def _json(status: int, value: object) -> Response:
    return Response(status, encode(value))
