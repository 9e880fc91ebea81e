"""Responses to wrong requests."""

from __future__ import annotations

import uuid

from roost.conform.case import Case
from roost.conform.check import HTTP, SHOULD, check
from roost.conform.client import ERROR_INFO, VERSION, ConformResponse, HttpClient, JSONObject
from roost.conform.outcome import CheckFailed
from roost.conform.wire import RawResponse
from roost.protocol.errors import (
    DOMAIN,
    A2AError,
    InternalError,
    InvalidParams,
    InvalidRequest,
    ParseError,
    TaskNotFound,
    VersionNotSupported,
)

DEEP = 50_000
"""Levels of nesting."""
CLIENT_ERROR = "an error that blames the client, not the host"


def send_message(client: HttpClient, params: JSONObject) -> bytes:
    """Encode a SendMessage of this binding."""
    return client.request("SendMessage", params)[2] or b""


def check_rejected(x: Case, raw: RawResponse, *codes: int | str) -> None:
    expected = f"an error with {' or '.join(map(str, codes))}"
    if raw.status >= 500:
        raise CheckFailed(raw.seen(), f"{expected}: the client is wrong, not the host")
    error = x.http.parse(raw).error
    if error is None or error.code not in codes:
        raise CheckFailed(raw.seen(), expected)


@check("errors.info", "An A2A error names its reason in an ErrorInfo", "9.5, 10.6, 11.6")
async def info(x: Case) -> None:
    unknown = await x.call("CancelTask", {"id": f"none-{uuid.uuid4()}"})
    if unknown.error is None:
        raise CheckFailed(unknown.seen, "an error")
    check_info(x, unknown, TaskNotFound)
    version = await x.call("ListTasks", {}, {VERSION: "99.0"})
    if x.is_error(version, VersionNotSupported):  # otherwise version.unknown reports it
        check_info(x, version, VersionNotSupported)


def check_info(x: Case, response: ConformResponse, error: type[A2AError]) -> None:
    assert response.error is not None
    found = response.error.info
    if found is None and x.client.name == "JSONRPC":
        return  # section 9.5 only recommends it: see errors.rpc-info
    if found is None or (found.get("reason"), found.get("domain")) != (error.reason, DOMAIN):
        raise CheckFailed(response.seen, f"{ERROR_INFO} with the reason {error.reason} and the domain {DOMAIN}")


@check("errors.rpc-info", "An A2A error over JSON-RPC has an ErrorInfo in its data", "9.5", on=HTTP[:1], level=SHOULD)
async def rpc_info(x: Case) -> None:
    response = await x.call("CancelTask", {"id": f"none-{uuid.uuid4()}"})
    if response.error is not None and response.error.info is None:
        raise CheckFailed(response.seen, f"data: a list with a {ERROR_INFO}")


@check("errors.message", "An error has a message for people", "3.3.2")
async def message(x: Case) -> None:
    response = await x.call("GetTask", {"id": str(uuid.uuid4()), "historyLength": 1})
    if response.error is not None and not response.error.message:
        raise CheckFailed(response.seen, "a message")


@check("errors.json", "A body that is not JSON is rejected as such", "3.3.2, 9.5", on=HTTP)
async def bad_json(x: Case) -> None:
    """FastA2A responds with 500 in plain text."""
    check_rejected(x, await x.http.send_raw(b'{"message": '), x.client.code(ParseError))


@check("errors.types", "A field of the wrong type returns InvalidParams", "3.3.2", on=HTTP)
async def types(x: Case) -> None:
    params = {"message": {**x.hints.plain.message(), "parts": "text"}}
    check_rejected(x, await x.http.send_raw(send_message(x.http, params)), x.client.code(InvalidParams))


@check("errors.missing", "A message without parts returns InvalidParams", "3.3.2")
async def missing(x: Case) -> None:
    await x.refused("SendMessage", {"message": x.hints.plain.message(parts=[])}, InvalidParams)


@check("errors.shape", "A body that is not an object is rejected", "3.3.2, 9.5", on=HTTP)
async def shape(x: Case) -> None:
    codes = {x.client.code(error) for error in (InvalidRequest, InvalidParams, ParseError)}
    for body in (b"[]", b'"text"', b"null"):
        check_rejected(x, await x.http.send_raw(body), *codes)


@check("errors.deep", "Deeply nested JSON is rejected as an error of the client", "3.3.2", on=HTTP)
async def deep(x: Case) -> None:
    body = send_message(x.http, {"message": "DEEP"}).replace(b'"DEEP"', b"[" * DEEP + b"]" * DEEP)
    raw = await x.http.send_raw(body)
    error = x.http.parse(raw).error if raw.status == 200 else None
    if raw.status >= 500 or (raw.status == 200 and (error is None or error.code == InternalError.code)):
        raise CheckFailed(raw.seen(), CLIENT_ERROR)


@check(
    "errors.content-type", "A request with an unsupported content type is rejected", "9.1, 11.1", on=HTTP, level=SHOULD
)
async def content_type(x: Case) -> None:
    raw = await x.http.send_raw(send_message(x.http, {"message": x.hints.plain.message()}), "text/plain")
    if raw.status >= 500 or (raw.status == 200 and x.http.parse(raw).error is None):
        raise CheckFailed(raw.seen(), CLIENT_ERROR)


@check("errors.unknown-field", "An unknown field is ignored", "5.7", on=HTTP, level=SHOULD)
async def unknown_field(x: Case) -> None:
    params = {"message": {**x.hints.plain.message(), "ofAnotherVersion": {"x": 1}}}
    raw = await x.http.send_raw(send_message(x.http, params))
    if raw.status != 200 or x.http.parse(raw).error is not None:
        raise CheckFailed(raw.seen(), "SendMessage succeeds")


@check("errors.history", "A negative historyLength returns InvalidParams", "3.3.2")
async def negative(x: Case) -> None:
    task = await x.send()
    await x.refused("GetTask", {"id": task["id"], "historyLength": -1}, InvalidParams)
