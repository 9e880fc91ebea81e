"""/api/v2/admin: tokens, keys, the audit log, and any task's state. An agent's content only as evidence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import Struct

from roost.doors.access import Access, confined
from roost.doors.admin_views import OVERLAP_S, audit_shown, key_shown, token_shown
from roost.doors.evidence import Exports
from roost.doors.guard import check_content_type
from roost.doors.http import Request, Response, respond
from roost.doors.templates import values_of
from roost.engine.engine import Engine
from roost.engine.ids import timestamp
from roost.engine.ports import Stored
from roost.identity.audit import AuditLog
from roost.identity.keys import EVIDENCE, CannotRetire, Keyring, NoSuchKey
from roost.identity.principal import Principal
from roost.identity.scopes import ADMIN, AUDIT, OPERATE
from roost.identity.tokens import BadToken, TokenRequest, Tokens, seconds
from roost.protocol.codec import decode, encode
from roost.protocol.errors import InvalidParams, MethodNotAllowed, RouteNotFound

PREFIX = "/api/v2/admin/"
MAX_BODY = 64 * 1024
PAGE, MOST = 100, 1000


class NewToken(Struct, rename="camel"):
    """The body of POST /tokens."""

    name: str
    scopes: list[str]
    tenants: list[str] = []
    subject: str = ""
    expires_in: str = ""
    """90d, 12h, 30m; never by default."""


class Rotation(Struct, rename="camel"):
    """The body of POST /keys/{agent}:rotate."""

    overlap: str = ""
    """How long the key before goes on: 7d by default."""


class Ask(NamedTuple):
    request: Request
    principal: Principal
    values: dict[str, str]


class AdminRoute(NamedTuple):
    method: str
    template: str
    scopes: tuple[str, ...]
    """Any one of them opens it."""
    name: str
    """Of the method of Admin that serves it."""
    summary: str
    body: type[Any] | None = None


ROUTES: tuple[AdminRoute, ...] = (
    AdminRoute("GET", "tokens", (ADMIN,), "list_tokens", "The tokens, without their secrets"),
    AdminRoute("POST", "tokens", (ADMIN,), "create_token", "Make a token; its secret is in this answer only", NewToken),
    AdminRoute("DELETE", "tokens/{id}", (ADMIN,), "revoke_token", "Revoke a token, on all hosts within 5 s"),
    AdminRoute("GET", "keys", (ADMIN,), "list_keys", "The keys that sign cards"),
    AdminRoute("POST", "keys/{agent}:rotate", (ADMIN,), "rotate_key", "Give an agent a new key", Rotation),
    AdminRoute("DELETE", "keys/{agent}/{kid}", (ADMIN,), "retire_key", "End a key that was replaced, at once"),
    AdminRoute("GET", "audit", (AUDIT, ADMIN), "list_audit", "Who did, or was refused, what; the newest first"),
    AdminRoute(
        "GET", "evidence", (AUDIT,), "export_evidence", "Tasks and all that is on record of them, as a signed bundle"
    ),
    AdminRoute("GET", "tasks/{id}", (OPERATE,), "get_task", "The state of any task, without its content"),
    AdminRoute("POST", "tasks/{id}:cancel", (OPERATE,), "cancel_task", "Cancel any task"),
)
"""Below /api/v2/admin/. An agent in a path may be `-`, the fleet's own key, or `@evidence`, the key of evidence."""


class Admin:
    def __init__(self, engine: Engine, access: Access, tokens: Tokens, keyring: Keyring, audit: AuditLog) -> None:
        self.engine = engine
        self.access = access
        self.audit = audit
        self.keyring = keyring
        self.tokens = tokens
        self.exports: Exports | None = None

    async def serve(self, request: Request) -> None:
        route, values, allowed = _match(request.method, request.path[len(PREFIX) :])
        request.route = PREFIX + (route.template if route is not None else "*")
        if route is None:
            await self.access.for_scopes(request, ADMIN, OPERATE, AUDIT)
            if allowed:
                text = ", ".join(allowed)
                raise MethodNotAllowed(f"{request.method} is not for this path; {text} is", metadata={"allow": text})
            raise RouteNotFound(f"There is nothing at {request.method} {request.path[:200]}")
        principal = await self.access.for_scopes(request, *route.scopes)
        if not self.engine.meter.idle:
            self.engine.meter.check_rate("admin", principal.name, "", "")
        handler: Callable[[Ask], Awaitable[Response | None]] = getattr(self, route.name)
        response = await handler(Ask(request, principal, values))
        if response is not None:  # or else it was answered piece by piece
            await respond(request, response)

    # Tokens

    async def list_tokens(self, ask: Ask) -> Response:
        await self.access.token_cache.refresh()
        return _json(200, {"items": [token_shown(token) for token in self.access.token_cache.tokens()]})

    async def create_token(self, ask: Ask) -> Response:
        wish = await _body(ask.request, NewToken)
        try:
            lifetime = seconds(wish.expires_in) if wish.expires_in else None
        except ValueError as error:
            raise InvalidParams(str(error), field="expiresIn") from None
        wanted = TokenRequest(wish.name, wish.scopes, wish.tenants, wish.subject, lifetime)
        try:
            made = await self.tokens.create(wanted, ask.principal.name, self.access.address(ask.request))
        except BadToken as error:
            raise InvalidParams(str(error), field=error.field) from None
        await self.access.token_cache.refresh()
        return _json(201, {**token_shown(made.token), "token": made.secret})

    async def revoke_token(self, ask: Ask) -> Response:
        token = await self.tokens.revoke(ask.values["id"], ask.principal.name, self.access.address(ask.request))
        if token is None:
            raise RouteNotFound(f"There is no token {ask.values['id'][:64]!r}")
        await self.access.token_cache.refresh()
        return _json(200, token_shown(token))

    # Keys

    async def list_keys(self, ask: Ask) -> Response:
        await self.access.token_cache.refresh()
        return _json(200, {"items": [key_shown(key) for key in self.keyring.all()]})

    async def rotate_key(self, ask: Ask) -> Response:
        agent = self._agent(ask.values["agent"])
        wish = await _body(ask.request, Rotation)
        try:
            overlap = seconds(wish.overlap) if wish.overlap else OVERLAP_S
        except ValueError as error:
            raise InvalidParams(str(error), field="overlap") from None
        key = await self.keyring.rotate(agent, overlap * 1000)
        await self._did(ask, "key.rotate", f"{agent or '-'} {key.kid}")
        await self.access.token_cache.refresh()
        return _json(200, key_shown(key))

    async def retire_key(self, ask: Ask) -> Response:
        agent, kid = self._agent(ask.values["agent"]), ask.values["kid"]
        try:
            await self.keyring.retire(agent, kid)
        except NoSuchKey as error:
            raise RouteNotFound(str(error)) from None
        except CannotRetire as error:
            raise InvalidParams(str(error), field="kid") from None
        await self._did(ask, "key.retire", f"{agent or '-'} {kid}")
        await self.access.token_cache.refresh()
        return Response(204, b"")

    # Audit

    async def list_audit(self, ask: Ask) -> Response:
        query = ask.request.query
        before, limit = _number(query, "before", None), _number(query, "limit", PAGE)
        found = await self.audit.read(before, min(limit or PAGE, MOST))
        return _json(200, {"items": [audit_shown(one) for one in found]})

    # Evidence

    async def export_evidence(self, ask: Ask) -> None:
        assert self.exports is not None
        principal = replace(ask.principal, tenants=None) if ADMIN in ask.principal.scopes else ask.principal
        tenants = confined(ask.request, principal).tenants
        await self.exports.serve(ask.request, tenants, lambda target: self._did(ask, "evidence.export", target))

    # Tasks

    async def get_task(self, ask: Ask) -> Response:
        return _json(200, task_shown(await self.engine.state_of(ask.values["id"])))

    async def cancel_task(self, ask: Ask) -> Response:
        await self.engine.cancel_any(ask.values["id"])
        await self._did(ask, "task.cancel", ask.values["id"])
        return await self.get_task(ask)

    async def _did(self, ask: Ask, action: str, target: str) -> None:
        await self.audit.record(ask.principal.name, action, target, address=self.access.address(ask.request))

    def _agent(self, name: str) -> str:
        if name == "-":
            return ""
        if name == EVIDENCE:
            return name
        self.engine.queue_of(name)
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


def _match(method: str, path: str) -> tuple[AdminRoute | None, dict[str, str], list[str]]:
    allowed: list[str] = []
    for route in ROUTES:
        values = values_of(route.template.split("/"), path.split("/"))
        if values is not None:
            if route.method == method:
                return route, values, []
            allowed.append(route.method)
    return None, {}, allowed


async def _body(request: Request, kind: type[Any]) -> Any:
    body = await request.body(MAX_BODY)
    check_content_type(request, body)
    return decode(kind, body if body.strip() else b"{}")


def _number(query: dict[str, str], name: str, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or int(text) == 0:
        raise InvalidParams(f"{name} must be a number from 1 on", field=name)
    return int(text)


def _json(status: int, value: object) -> Response:
    return Response(status, encode(value))
