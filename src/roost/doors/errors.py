"""The one place where errors become bytes, in each binding's own form."""

from __future__ import annotations

import asyncio
import logging

from msgspec import Raw

from roost.doors.http import NOT_KEPT, Headers, RequestHead, Response, preferred_json
from roost.engine.ids import new_id
from roost.engine.store_types import StoreUnavailable
from roost.identity.quotas import QuotaExceeded
from roost.protocol.codec import encode
from roost.protocol.errors import (
    A2AError,
    InternalError,
    MethodNotAllowed,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)

log = logging.getLogger("roost.doors")

PROBLEM_CODES = {
    "INVALID_JSON": "request.invalid_json",
    "INVALID_PARAMS": "validation.failed",
    "INVALID_REQUEST": "request.invalid",
    "CONTENT_TYPE_NOT_SUPPORTED": "request.content_type",
    "TASK_NOT_FOUND": "task.not_found",
    "TASK_NOT_CANCELABLE": "task.not_cancelable",
    "ROUTE_NOT_FOUND": "route.not_found",
    "METHOD_NOT_ALLOWED": "route.method_not_allowed",
    "UNAUTHENTICATED": "auth.required",
    "FORBIDDEN": "auth.forbidden",
    "PAYLOAD_TOO_LARGE": "request.too_large",
    "TOO_MANY_REQUESTS": "quota.exceeded",
    "UNAVAILABLE": "runtime.unavailable",
    "INTERNAL_ERROR": "internal",
}
"""The codes of errors on the admin surface. Reasons that are not listed are used in lower case."""


def known(error: BaseException, request: RequestHead) -> A2AError:
    """Turn any exception into an A2AError. An unexpected one is logged; the client gets its id and no traceback."""
    if isinstance(error, A2AError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return Unavailable(
            "The host is shutting down. Accepted messages are kept; try again in a moment", retry_after=1
        )
    if isinstance(error, QuotaExceeded):
        return _over_quota(error)
    if isinstance(error, StoreUnavailable):
        log.error("%s %s: the store does not answer: %s", request.method, request.route, error)
        return Unavailable("The store does not answer; try again later", retry_after=1)
    error_id = new_id()
    log.error("%s %s failed, error id %s", request.method, request.route, error_id, exc_info=error)
    return InternalError(f"Internal error. Error id: {error_id}", metadata={"errorId": error_id})


QUOTA_WORDS = {"tasks": "concurrency", "mb": "storage"}
"""The names of quotas in multi-tenant/v1."""


def _over_quota(error: QuotaExceeded) -> TooManyRequests:
    metadata = {
        f"{error.kind}_id": error.name,
        "quota": QUOTA_WORDS.get(error.quota, error.quota),
        "retry_after_seconds": str(error.retry_after_seconds),
        "limit": str(error.limit),
    }
    if error.window_seconds is not None:
        metadata["window_seconds"] = str(error.window_seconds)
    return TooManyRequests(
        f"The {error.kind} {error.name!r} has reached its quota of {error.quota} ({error.limit}); try again in"
        f" {error.retry_after_seconds} s",
        metadata=metadata,
        retry_after=error.retry_after_seconds,
    )


def rest_error(request: RequestHead, error: A2AError, more: dict[str, object] | None = None) -> Response:
    """Write an error of the HTTP+JSON binding. `more` are members beside A2A's own."""
    body = {
        "error": {
            "code": error.http,
            "status": error.grpc,
            "message": error.message,
            "details": error.details(),
        },
        **(more or {}),
    }
    return Response(error.http, encode(body), preferred_json(request), headers_of(error))


def rpc_error(error: A2AError, request_id: Raw | None) -> Response:
    body = {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": error.code, "message": error.message, "data": error.details()},
    }
    return Response(error.rpc_http, encode(body), headers=headers_of(error))


def problem(error: A2AError) -> Response:
    """Write an error of the admin surface: problem+json (RFC 9457)."""
    body: dict[str, object] = {
        "type": "about:blank",
        "title": error.title,
        "status": error.http,
        "code": PROBLEM_CODES.get(error.reason, error.reason.lower()),
        "detail": error.message,
    }
    if error.field is not None:
        body["errors"] = [{"field": error.field, "message": error.message, "code": "invalid"}]
    return Response(error.http, encode(body), b"application/problem+json", headers_of(error))


def headers_of(error: A2AError) -> Headers:
    headers: Headers = list(NOT_KEPT)
    if isinstance(error, Unauthenticated):
        headers += [(b"www-authenticate", challenge.encode("latin-1", "replace")) for challenge in error.challenges]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    if isinstance(error, MethodNotAllowed) and error.metadata is not None:
        headers.append((b"allow", error.metadata["allow"].encode()))
    return headers
