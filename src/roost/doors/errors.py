"""The one place where errors become bytes, in each binding's own form."""

from __future__ import annotations

import asyncio
import logging

from msgspec import Raw

from roost.doors.http import Headers, Request, Response, preferred_json
from roost.engine.ids import new_id
from roost.engine.ports import StoreUnavailable
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError, InternalError, MethodNotAllowed, Unavailable

log = logging.getLogger("roost.doors")


def known(error: BaseException, request: Request) -> A2AError:
    """Any exception as an A2AError; what was not foreseen is logged and gets an id, never a traceback."""
    if isinstance(error, A2AError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Unavailable(
            "The host is shutting down; what it accepted is kept. Ask again when it is back", retry_after=1
        )
    if isinstance(error, StoreUnavailable):
        log.error("%s %s: the store does not answer: %s", request.method, request.route, error)
        return Unavailable("The store does not answer; try again later", retry_after=1)
    error_id = new_id()
    log.error("%s %s failed, error id %s", request.method, request.route, error_id, exc_info=error)
    return InternalError(f"Internal error. Error id: {error_id}", metadata={"errorId": error_id})


def rest_error(request: Request, error: A2AError) -> Response:
    body = {
        "error": {
            "code": error.http,
            "status": error.grpc,
            "message": error.message,
            "details": error.details(),
        }
    }
    return Response(error.http, encode(body), preferred_json(request), _headers(error))


def rpc_error(error: A2AError, request_id: Raw | None) -> Response:
    body = {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": error.code, "message": error.message, "data": error.details()},
    }
    return Response(error.rpc_http, encode(body), headers=_headers(error))


def _headers(error: A2AError) -> Headers:
    headers: Headers = []
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    if isinstance(error, MethodNotAllowed) and error.metadata is not None:
        headers.append((b"allow", error.metadata["allow"].encode()))
    return headers
