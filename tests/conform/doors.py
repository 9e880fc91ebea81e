"""`python -m tests.conform.doors`: serves the broken host on HTTP+JSON and JSON-RPC, with each fault at its own path.

/FAULT/BINDINGS/.well-known/agent-card.json is a card that names those bindings: rest, rpc or both.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from roost.conform.client import ROUTES
from roost.protocol.errors import (
    A2AError,
    ContentTypeNotSupported,
    InternalError,
    InvalidParams,
    InvalidRequest,
    ParseError,
    Unauthenticated,
    VersionNotSupported,
)
from tests.conform.broken import TOKENS, World
from tests.conform.broken_card import JWKS, QUIRKS, TENANT
from tests.conform.operations import STREAMS, Call

SESSION = "session=a"

worlds: dict[tuple[str, str], World] = {}


def world_of(request: Request) -> World:
    fault, bindings = request.path_params["fault"], request.path_params["bindings"]
    base = f"http://{request.headers['host']}/{fault}/{bindings}"
    if (fault, bindings) not in worlds:
        worlds[fault, bindings] = World(fault, bindings, base)
    return worlds[fault, bindings]


async def card(request: Request) -> Response:
    world = world_of(request)
    if world.fault == QUIRKS and "authorization" not in request.headers:
        return Response("Who are you?", 401)
    asked = request.headers.get("if-none-match")
    found = world.card()
    if asked is None:
        world.fetched += 1
        if world.fault == "card-changes" and world.fetched > 1:
            found["description"] += f" ({world.fetched})"
    if world.fault == "card-frozen" and world.streams >= 4:
        return Response("busy", 503)
    body = json.dumps(found).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "max-age=60"}
    if world.fault == "card-uncached":
        del headers["Cache-Control"]
    if world.fault == QUIRKS:
        headers["Set-Cookie"] = f"{SESSION}; Path=/"
    if asked == tag or (asked and world.fault == "card-etag"):
        return Response(status_code=304, headers=headers)
    kind = "text/html" if world.fault == "card-type" else "application/json"
    return Response(body, headers=headers, media_type=kind)


async def page(_: Request) -> Response:
    """Serve a page at a path that the host does not know, as hosts with a web site do."""
    return Response("<title>Welcome</title>", media_type="text/html")


async def jwks(_: Request) -> Response:
    return Response(JWKS, media_type="application/json")


def admitted(request: Request, world: World, operation: str) -> str:
    """Return the owner of the tasks of this caller."""
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token in TOKENS:
        return TOKENS[token]
    if request.headers.get("cookie") == SESSION:
        return "a"
    sending = operation == "SendMessage"
    open_doors = {
        "auth-list": not token and not sending,
        "auth-others": not token and not sending and operation != "ListTasks",
        "auth-send": not token and sending,
        "auth-wrong": bool(token),
        "extended-open": operation == "GetExtendedAgentCard",
    }
    if open_doors.get(world.fault):
        return "nobody"
    if world.fault == "auth-internal":
        raise RuntimeError
    raise Unauthenticated(challenges=() if world.fault == "auth-challenge" else ("Bearer",))


def check_version(request: Request, world: World) -> None:
    version = request.headers.get("a2a-version")
    if version is None and world.fault != "version-query":
        version = request.query_params.get("A2A-Version")
    wrong = {"99.0": ("version-any",), None: ("version-absent", "version-old")}.get(version, ())
    if version == "1.0" or (version == "1.0.1" and world.fault != "version-patch") or world.fault in wrong:
        return
    raise VersionNotSupported


def check_kind(request: Request, world: World) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0]
    if world.fault != "kind-ignored" and kind not in ("application/json", "application/a2a+json"):
        if world.fault == "kind-500":
            raise RuntimeError
        raise ContentTypeNotSupported


def parse(body: bytes, world: World) -> Any:
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        if world.fault == ("deep-500" if isinstance(error, RecursionError) else "json-500"):
            raise RuntimeError from None
        raise ParseError from None


def details(error: A2AError, world: World, note: str) -> list[dict[str, Any]]:
    found = error.details()
    if world.fault == "info-400" and error.http == 400:
        return []
    if world.fault == "info-none" and note.startswith("none-"):
        return []
    if world.fault == "info-domain" and note.startswith("none-"):
        found[0]["domain"] = "example.com"
    return found


# HTTP+JSON


async def rest(request: Request) -> Response:
    world = world_of(request)
    params: dict[str, Any] = {**request.query_params}
    try:
        operation, named = route(request.method, request.path_params["path"])
        params.pop("A2A-Version", None)
        owner = admitted(request, world, operation)
        check_version(request, world)
        if request.method == "POST":
            check_kind(request, world)
            given = parse(await request.body(), world)
            if not isinstance(given, dict):
                if world.fault == "shape-500":
                    raise RuntimeError
                raise InvalidParams("the body must be an object", field="body")
            params = given
        params |= named
        call = Call(world, owner, params, dict(request.headers), "HTTP+JSON")
        if operation in STREAMS:
            return await streamed(call, operation, lambda event: event)
        found = await call.answer(operation)
    except LookupError:
        return Response("{}", 200 if world.fault == "path-200" else 404, media_type="application/json")
    except Exception as error:
        return rest_error(error, world, params, request)
    kind = "text/html" if world.fault == "rest-kind" and operation == "GetTask" else "application/a2a+json"
    return Response(json.dumps(found), media_type=kind)


def route(method: str, path: str) -> tuple[str, dict[str, str]]:
    """Return the operation and the parameters in its path. LookupError if there is none."""
    for operation, (wanted, template) in ROUTES.items():
        pieces, given = template.strip("/").split("/"), path.split("/")
        if wanted != method or len(pieces) != len(given):
            continue
        named: dict[str, str] = {}
        for piece, value in zip(pieces, given, strict=True):
            name, _, verb = piece.partition("}")
            if not name.startswith("{"):
                if piece != value:
                    break
            elif not value.endswith(verb) or (not verb and ":" in value):
                break
            else:
                named[name[1:]] = value.removesuffix(verb)
        else:
            return operation, named
    raise LookupError


def rest_error(raised: Exception, world: World, params: dict[str, Any], request: Request) -> Response:
    error = raised if isinstance(raised, A2AError) else InternalError()
    note = str(params.get("id", ""))
    unknown = error.reason == "TASK_NOT_FOUND"
    said = "" if world.fault == "message-none" and "historyLength" in params else error.message
    code = 500 if world.fault == "rest-status" and note.startswith("none-") and unknown else error.http
    body = {"error": {"code": code, "status": error.grpc, "message": said, "details": details(error, world, note)}}
    plain = unknown and request.method == "GET" and [*params] == ["id"] and not note.startswith("none-")
    mine = request.headers.get("authorization") == "Bearer token-a"
    status = 200 if world.fault == "error-200" and plain and mine else error.http
    return Response(json.dumps(body), status, challenge(error), media_type="application/a2a+json")


def challenge(error: A2AError) -> dict[str, str]:
    found = error.challenges if isinstance(error, Unauthenticated) else ()
    return {"WWW-Authenticate": found[0]} if found else {}


# JSON-RPC


async def rpc(request: Request) -> Response:
    world = world_of(request)
    number: Any = None
    operation = ""
    try:
        owner = admitted(
            request, world, (await request.body()).decode("utf-8", "replace").partition('"SendMessage"')[1].strip('"')
        )
        check_kind(request, world)
        body = parse(await request.body(), world)
        if not isinstance(body, dict) or (body.get("jsonrpc") != "2.0" and world.fault != "rpc-request"):
            raise InvalidRequest
        number = body.get("id")
        check_version(request, world)
        operation = body["method"]
        if world.fault == "rpc-method" and operation == "NoSuchMethod":
            raise InvalidRequest
        params = body.get("params") or {}
        if world.fault == QUIRKS and params.get("tenant") != TENANT:
            raise InvalidParams("this is the interface of a tenant", field="tenant")
        call = Call(world, owner, params, dict(request.headers), "JSONRPC")
        if operation in STREAMS:
            return await streamed(call, operation, lambda event: {"jsonrpc": "2.0", "id": number, "result": event})
        result = {"result": await call.answer(operation)}
        status, headers = 200, {}
    except Exception as raised:
        error = raised if isinstance(raised, A2AError) else InternalError()
        status, headers = error.rpc_http, challenge(error)
        data = [] if world.fault == "rpc-data" else error.details()
        if world.fault == "rpc-other-data":
            data = [{"@type": "type.googleapis.com/google.rpc.BadRequest"}]
        result = {"error": {"code": error.code, "message": error.message, **({"data": data} if data else {})}}
        if world.fault == QUIRKS and operation in STREAMS:
            told = json.dumps({"jsonrpc": "2.0", "id": number, **result})
            return Response(f"data: {told}\n\n", media_type="text/event-stream")
    kind = "result" if "result" in result else "error"
    if world.fault == f"rpc-id-{kind}" and isinstance(number, int):
        number = str(number)
    version = "1.0" if world.fault == f"rpc-version-{kind}" else "2.0"
    return Response(
        json.dumps({"jsonrpc": version, "id": number, **result}), status, headers, media_type="application/json"
    )


async def streamed(call: Call, operation: str, wrap: Any) -> Response:
    events = await call.stream(operation)

    async def body() -> Any:
        async for number, event in events:
            name = "" if number is None else f"id: {number}\n"
            yield f"{name}data: {json.dumps(wrap(event))}\n\n"

    kind = "text/plain" if call.fault == "stream-kind" else "text/event-stream"
    return StreamingResponse(body(), media_type=kind)


METHODS = ["GET", "POST", "DELETE"]
app = Starlette(
    routes=[
        Route("/api/v1/agents", page),
        Route("/{fault}/{bindings}/.well-known/agent-card.json", card),
        Route("/{fault}/{bindings}/.well-known/jwks.json", jwks),
        Route("/{fault}/{bindings}", rpc, methods=["POST"]),
        Route("/{fault}/{bindings}/{path:path}", rest, methods=METHODS),
    ]
)


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"Serves at http://127.0.0.1:{port}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=0, ws="none")).run()
