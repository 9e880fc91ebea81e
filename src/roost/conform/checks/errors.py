"""What a host says to requests that are wrong. It never breaks."""

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


def wrapped(client: HttpClient, params: JSONObject) -> bytes:
    """A SendMessage of this binding, with these parameters."""
    return client.request("SendMessage", params)[2] or b""


def check_refused(x: Case, reply: RawResponse, *codes: int | str) -> None:
    expected = f"an error with {' or '.join(map(str, codes))}"
    if reply.status >= 500:
        raise CheckFailed(reply.seen(), f"{expected}: the client was wrong, not the host")
    problem = x.http.answer(reply).problem
    if problem is None or problem.code not in codes:
        raise CheckFailed(reply.seen(), expected)


@check("errors.info", "An error of A2A says which it is, in an ErrorInfo", "9.5, 10.6, 11.6")
async def info(x: Case) -> None:
    unknown = await x.call("CancelTask", {"id": f"none-{uuid.uuid4()}"})
    if unknown.problem is None:
        raise CheckFailed(unknown.seen, "an error")
    check_info(x, unknown, TaskNotFound)
    version = await x.call("ListTasks", {}, {VERSION: "99.0"})
    if x.says(version, VersionNotSupported):  # otherwise version.unknown finds it
        check_info(x, version, VersionNotSupported)


def check_info(x: Case, answer: ConformResponse, error: type[A2AError]) -> None:
    assert answer.problem is not None
    found = answer.problem.info
    if found is None and x.client.name == "JSONRPC":
        return  # section 9.5 only recommends it: see errors.rpc-info
    if found is None or (found.get("reason"), found.get("domain")) != (error.reason, DOMAIN):
        raise CheckFailed(answer.seen, f"{ERROR_INFO} with the reason {error.reason} and the domain {DOMAIN}")


@check(
    "errors.rpc-info", "An error of A2A over JSON-RPC has an ErrorInfo in its data", "9.5", on=HTTP[:1], level=SHOULD
)
async def rpc_info(x: Case) -> None:
    answer = await x.call("CancelTask", {"id": f"none-{uuid.uuid4()}"})
    if answer.problem is not None and answer.problem.info is None:
        raise CheckFailed(answer.seen, f"data: a list with a {ERROR_INFO}")


@check("errors.message", "An error has a message for people", "3.3.2")
async def message(x: Case) -> None:
    answer = await x.call("GetTask", {"id": str(uuid.uuid4()), "historyLength": 1})
    if answer.problem is not None and not answer.problem.message:
        raise CheckFailed(answer.seen, "a message")


@check("errors.json", "What is not JSON is refused as such", "3.3.2, 9.5", on=HTTP)
async def bad_json(x: Case) -> None:
    """FastA2A answered with a plain-text 500."""
    check_refused(x, await x.http.raw(b'{"message": '), x.client.code(ParseError))


@check("errors.types", "A field of the wrong type is InvalidParams", "3.3.2", on=HTTP)
async def types(x: Case) -> None:
    params = {"message": {**x.hints.plain.message(), "parts": "text"}}
    check_refused(x, await x.http.raw(wrapped(x.http, params)), x.client.code(InvalidParams))


@check("errors.missing", "A message without parts is InvalidParams", "3.3.2")
async def missing(x: Case) -> None:
    await x.refused("SendMessage", {"message": x.hints.plain.message(parts=[])}, InvalidParams)


@check("errors.shape", "A body that is no object is refused", "3.3.2, 9.5", on=HTTP)
async def shape(x: Case) -> None:
    codes = {x.client.code(error) for error in (InvalidRequest, InvalidParams, ParseError)}
    for body in (b"[]", b'"text"', b"null"):
        check_refused(x, await x.http.raw(body), *codes)


@check("errors.deep", "JSON that is nested very deeply is refused, and breaks nothing", "3.3.2", on=HTTP)
async def deep(x: Case) -> None:
    reply = await x.http.raw(wrapped(x.http, {"message": "DEEP"}).replace(b'"DEEP"', b"[" * DEEP + b"]" * DEEP))
    problem = x.http.answer(reply).problem if reply.status == 200 else None
    if reply.status >= 500 or (reply.status == 200 and (problem is None or problem.code == InternalError.code)):
        raise CheckFailed(reply.seen(), "an error that says that the client is wrong")


@check("errors.content-type", "A body of another content type is refused", "9.1, 11.1", on=HTTP, level=SHOULD)
async def content_type(x: Case) -> None:
    reply = await x.http.raw(wrapped(x.http, {"message": x.hints.plain.message()}), "text/plain")
    if reply.status >= 500 or (reply.status == 200 and x.http.answer(reply).problem is None):
        raise CheckFailed(reply.seen(), "an error that says that the client is wrong")


@check("errors.unknown-field", "A field that the host does not know is passed over", "5.7", on=HTTP, level=SHOULD)
async def unknown_field(x: Case) -> None:
    params = {"message": {**x.hints.plain.message(), "ofAnotherVersion": {"x": 1}}}
    reply = await x.http.raw(wrapped(x.http, params))
    if reply.status != 200 or x.http.answer(reply).problem is not None:
        raise CheckFailed(reply.seen(), "the message is answered")


@check("errors.history", "A negative historyLength is InvalidParams", "3.3.2")
async def negative(x: Case) -> None:
    task = await x.send()
    await x.refused("GetTask", {"id": task["id"], "historyLength": -1}, InvalidParams)
