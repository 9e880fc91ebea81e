"""Errors in gRPC's form: a status, with google.rpc.Status in the trailers."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyDetail
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from roost.protocol.errors import A2AError, Unauthenticated

Servicer = grpc.aio.ServicerContext[Any, Any]
Metadata = list[tuple[str, str | bytes]]

CLIENT_GONE = grpc.aio.InternalError
"""The errors that the library raises when it cannot write any more."""
CODES = {code.name: code for code in grpc.StatusCode}
DETAILS = "grpc-status-details-bin"
LONGEST = 1000
"""The longest text in an error, in characters: clients accept 8 KiB of metadata by default."""


async def abort(context: Servicer, error: A2AError, message: str) -> None:
    code = CODES[error.grpc]
    message = message[:LONGEST]
    status = Status(code=code.value[0], message=message, details=_details(error, message))
    trailers: Metadata = [(DETAILS, status.SerializeToString())]
    if isinstance(error, Unauthenticated):
        trailers += [("www-authenticate", challenge) for challenge in error.challenges]
    await context.abort(code, message, tuple(trailers))


def _details(error: A2AError, message: str) -> list[AnyDetail]:
    metadata = {key: value[:LONGEST] for key, value in (error.metadata or {}).items()}
    found: list[Message] = [ErrorInfo(reason=error.reason, domain=error.domain, metadata=metadata)]
    if error.field is not None:
        violation = BadRequest.FieldViolation(field=error.field[:LONGEST], description=message)
        found.append(BadRequest(field_violations=[violation]))
    if error.retry_after is not None:
        found.append(RetryInfo(retry_delay={"seconds": error.retry_after}))
    return [_packed(detail) for detail in found]


def _packed(detail: Message) -> AnyDetail:
    made = AnyDetail()
    made.Pack(detail)
    return made
