"""The error tree. Each error knows its form on every binding; doors only encode it.

A2AError
├── TaskNotFound, TaskNotCancelable, PushNotificationNotSupported, UnsupportedOperation,
│   ContentTypeNotSupported, InvalidAgentResponse, ExtendedAgentCardNotConfigured,
│   ExtensionSupportRequired, VersionNotSupported        A2A's own (section 5.4)
├── ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError
│                                                        JSON-RPC's own (section 9.5)
└── AgentNotFound, RouteNotFound, MethodNotAllowed, Unauthenticated, Forbidden, PayloadTooLarge, TooSlow,
    TooManyRequests, Unavailable, Moved, IdempotencyKeyReused, MessageIdMalformed
                                                         the host's
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

DOMAIN = "a2a-protocol.org"
HOST_DOMAIN = "roost"
LONGEST_METADATA = 4096
"""Characters of a value in an error's metadata, such as an id that the client has sent."""


class A2AError(Exception):
    code: ClassVar[int]
    http: ClassVar[int]
    grpc: ClassVar[str]
    reason: ClassVar[str]
    title: ClassVar[str]
    domain: ClassVar[str] = DOMAIN
    rpc_http: ClassVar[int] = 200
    """The HTTP status of the JSON-RPC response; not 200 where the call did not reach a method."""

    def __init__(
        self,
        message: str | None = None,
        *,
        field: str | None = None,
        metadata: dict[str, str] | None = None,
        retry_after: int | None = None,
    ) -> None:
        self.message = message or self.title
        self.field = field
        self.metadata = metadata
        self.retry_after = retry_after
        super().__init__(self.message)

    def details(self) -> list[dict[str, Any]]:
        """Return ProtoJSON `Any` objects for `error.details` and `error.data`."""
        info: dict[str, Any] = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": self.domain,
        }
        if self.metadata:
            info["metadata"] = {name: value[:LONGEST_METADATA] for name, value in self.metadata.items()}
        found = [info]
        if self.field is not None:
            violation = {"field": self.field, "description": self.message}
            found.append(
                {
                    "@type": "type.googleapis.com/google.rpc.BadRequest",
                    "fieldViolations": [violation],
                }
            )
        return found


class TaskNotFound(A2AError):
    code, http, grpc, reason = -32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"
    title = "Task not found"


class TaskNotCancelable(A2AError):
    code, http, grpc, reason = -32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"
    title = "Task cannot be canceled"


class PushNotificationNotSupported(A2AError):
    code, http, grpc, reason = -32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"
    title = "Push notifications are not supported by this agent"


class UnsupportedOperation(A2AError):
    code, http, grpc, reason = -32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"
    title = "This operation is not supported"


class ContentTypeNotSupported(A2AError):
    code, http, grpc, reason = -32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"
    title = "Content type not supported"


class InvalidAgentResponse(A2AError):
    code, http, grpc, reason = -32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"
    title = "The agent returned an invalid response"


class ExtendedAgentCardNotConfigured(A2AError):
    code, http, grpc = -32007, 400, "FAILED_PRECONDITION"
    reason = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    title = "No extended agent card is configured"


class ExtensionSupportRequired(A2AError):
    code, http, grpc, reason = -32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"
    title = "A required extension was not activated"


class VersionNotSupported(A2AError):
    code, http, grpc, reason = -32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"
    title = "A2A version not supported"


class ParseError(A2AError):
    code, http, grpc, reason = -32700, 400, "INVALID_ARGUMENT", "INVALID_JSON"
    title = "Invalid JSON payload"


class InvalidRequest(A2AError):
    code, http, grpc, reason = -32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"
    title = "Request payload validation error"


class MethodNotFound(A2AError):
    code, http, grpc, reason = -32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND"
    title = "Method not found"


class InvalidParams(A2AError):
    code, http, grpc, reason = -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS"
    title = "Invalid parameters"


class InternalError(A2AError):
    code, http, grpc, reason = -32603, 500, "INTERNAL", "INTERNAL_ERROR"
    title = "Internal error"


class RoostError(A2AError):
    """An error that is not in the A2A specification. The JSON-RPC codes begin at -32020."""

    domain = HOST_DOMAIN


class AgentNotFound(RoostError):
    code, http, grpc, reason, rpc_http = -32020, 404, "NOT_FOUND", "AGENT_NOT_FOUND", 404
    title = "No such agent"


class RouteNotFound(RoostError):
    code, http, grpc, reason, rpc_http = -32021, 404, "NOT_FOUND", "ROUTE_NOT_FOUND", 404
    title = "No such path"


class MethodNotAllowed(RoostError):
    code, http, grpc, reason, rpc_http = -32022, 405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED", 405
    title = "Method not allowed"


class Forbidden(RoostError):
    code, http, grpc, reason, rpc_http = -32023, 403, "PERMISSION_DENIED", "FORBIDDEN", 403
    title = "Forbidden"


class Unauthenticated(RoostError):
    """The caller has to present a valid credential. `challenges` are for the WWW-Authenticate header."""

    code, http, grpc, reason, rpc_http = -32025, 401, "UNAUTHENTICATED", "UNAUTHENTICATED", 401
    title = "A credential is needed"

    def __init__(self, message: str | None = None, *, challenges: Sequence[str] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.challenges = challenges


class PayloadTooLarge(RoostError):
    code, http, grpc, reason, rpc_http = -32024, 413, "RESOURCE_EXHAUSTED", "PAYLOAD_TOO_LARGE", 413
    title = "Request body too large"


class TooSlow(RoostError):
    code, http, grpc, reason, rpc_http = -32033, 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT", 408
    title = "The request arrives too slowly"


class TooManyRequests(RoostError):
    code, http, grpc, reason, rpc_http = -32029, 429, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", 429
    title = "Too many requests"


class Unavailable(RoostError):
    code, http, grpc, reason, rpc_http = -32030, 503, "UNAVAILABLE", "UNAVAILABLE", 503
    title = "Temporarily unavailable"


class Moved(Unavailable):
    """Another process is the writer of the task now; the caller can repeat the request."""

    code, reason = -32031, "TASK_MOVED"
    title = "The task moved to another writer; try again"

    def __init__(self, message: str | None = None, **details: Any) -> None:
        super().__init__(message, **{"retry_after": 1, **details})


class IdempotencyKeyReused(RoostError):
    """The error of the extension idempotency/v1 (contracts of agentic-sandbox)."""

    code, http, grpc = -32422, 422, "FAILED_PRECONDITION"
    reason = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD"
    title = "The messageId was used before, with another message"


class MessageIdMalformed(RoostError):
    code, http, grpc, reason = -32032, 400, "INVALID_ARGUMENT", "IDEMPOTENCY_MESSAGE_ID_MALFORMED"
    title = "This messageId cannot be a key"
