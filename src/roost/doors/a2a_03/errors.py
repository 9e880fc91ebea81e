"""Errors in the form of 0.3's SDKs: the name of a class beside JSON-RPC's code."""

from __future__ import annotations

from roost.doors.errors import headers_of
from roost.doors.http import Response
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError, InternalError, ParseError

NAMES: dict[type[A2AError], str] = {InternalError: "InternalError", ParseError: "JSONParseError"}


def name_of(error: A2AError) -> str:
    return NAMES.get(type(error), f"{type(error).__name__}Error")


def rest_body(error: A2AError) -> bytes:
    return encode({"type": name_of(error), "code": error.code, "message": error.message, "data": error.details()})


def rest_error(error: A2AError) -> Response:
    """Write an error that a2a-sdk (`type`) and a2a-js (`code`) both read; the specification leaves the form open."""
    return Response(error.http, rest_body(error), headers=headers_of(error))
