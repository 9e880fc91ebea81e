"""Errors in OpenAI's form."""

from __future__ import annotations

from roost.doors.errors import headers_of
from roost.doors.http import Headers, Response
from roost.doors.openai.turn_reader import TurnReader
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError
from roost.protocol.types import TaskState

Error = dict[str, str | None]

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
CODES = {
    "AGENT_NOT_FOUND": "model_not_found",
    "UNAUTHENTICATED": "invalid_api_key",
    "TOO_MANY_REQUESTS": "rate_limit_exceeded",
    "TASK_NOT_FOUND": "response_not_found",
    "TASK_NOT_CANCELABLE": "response_not_cancelable",
    "NOT_DELETABLE": "response_not_deletable",
    "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD": "idempotency_key_reused",
}
"""OpenAI's codes of errors. For an error that is not listed, the code is its reason in lower case."""

FAILURES = {
    TaskState.FAILED: (502, "server_error", "agent_failed"),
    TaskState.REJECTED: (422, "invalid_request_error", "agent_rejected"),
    TaskState.CANCELED: (409, "server_error", "task_canceled"),
}
"""The error for a task that ended without an answer: status, type, code."""
NO_RETRY: Headers = [(b"x-should-retry", b"false")]
"""The header that stops OpenAI's clients from sending a failed request again automatically."""


def error_of(error: A2AError) -> Error:
    kind = TYPES.get(error.http, "invalid_request_error" if error.http < 500 else "server_error")
    param = "model" if error.reason == "AGENT_NOT_FOUND" else error.field
    code = CODES.get(error.reason, error.reason.lower())
    return {"message": error.message, "type": kind, "param": param, "code": code}


def openai_error(error: A2AError) -> Response:
    return Response(error.http, encode({"error": error_of(error)}), headers=headers_of(error))


def failure_of(reader: TurnReader) -> Error:
    _, kind, code = FAILURES[reader.state]
    return {"message": reader.failure, "type": kind, "param": None, "code": code}


def failed(reader: TurnReader, headers: Headers) -> Response:
    status, _, _ = FAILURES[reader.state]
    return Response(status, encode({"error": failure_of(reader)}), headers=[*NO_RETRY, *headers])
