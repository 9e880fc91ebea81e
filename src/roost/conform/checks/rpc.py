"""The requirements of JSON-RPC and HTTP themselves."""

from __future__ import annotations

import json
import uuid
from typing import Any

from roost.conform.case import Case
from roost.conform.check import HTTP, check
from roost.conform.client import JSON_TYPES, JSONObject
from roost.conform.outcome import CheckFailed
from roost.protocol.errors import InvalidRequest, MethodNotFound

RPC, REST = HTTP[:1], HTTP[1:]


async def requested(x: Case, params: JSONObject | None = None, **changed: Any) -> tuple[JSONObject, str]:
    """Send a GetTask over JSON-RPC with changed fields, and return the response and its form in a report."""
    given = {"id": str(uuid.uuid4())} if params is None else params
    tenant = {"tenant": x.client.interface.tenant} if x.client.interface.tenant else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {**given, **tenant}, **changed}
    raw = await x.http.send_raw(json.dumps(body).encode())
    found = raw.json("a JSON-RPC response")
    return (found if isinstance(found, dict) else {}), raw.seen()


async def error_and_result(x: Case, **changed: Any) -> list[tuple[JSONObject, str]]:
    """Send a request that gets an error and one that gets a result."""
    return [await requested(x, **changed), await requested(x, {}, method="ListTasks", **changed)]


@check("rpc.id", "A response has the id of its request, unchanged", "9.3", on=RPC)
async def request_id(x: Case) -> None:
    for given in (7, "seven"):
        for found, seen in await error_and_result(x, id=given):
            if found.get("id") != given or isinstance(found.get("id"), bool):
                raise CheckFailed(seen, f"id: {json.dumps(given)}")


@check("rpc.version", 'A response has jsonrpc: "2.0"', "9.1", on=RPC)
async def version(x: Case) -> None:
    for found, seen in await error_and_result(x):
        if found.get("jsonrpc") != "2.0":
            raise CheckFailed(seen, 'jsonrpc: "2.0"')


@check("rpc.method", "An unknown method returns MethodNotFound", "9.5", on=RPC)
async def method(x: Case) -> None:
    found, seen = await requested(x, method="NoSuchMethod")
    if (found.get("error") or {}).get("code") != MethodNotFound.code:
        raise CheckFailed(seen, f"the error {MethodNotFound.code}")


@check("rpc.request", "An invalid JSON-RPC 2.0 request returns InvalidRequest", "9.5", on=RPC)
async def request(x: Case) -> None:
    found, seen = await requested(x, jsonrpc="1.0")
    if (found.get("error") or {}).get("code") != InvalidRequest.code:
        raise CheckFailed(seen, f"the error {InvalidRequest.code}")


@check("rest.path", "An unknown path returns 404", "11.3", on=REST)
async def path(x: Case) -> None:
    raw = await x.http.send_raw(b"{}", path="/no-such-operation")
    if not 300 <= raw.status < 500:
        raise CheckFailed(raw.seen(), "404")


@check("rest.kind", "The media type of responses is application/a2a+json or application/json", "11.1", on=REST)
async def kind(x: Case) -> None:
    task = await x.send()
    response = await x.call("GetTask", {"id": task["id"]})
    found = response.headers.get("content-type", "").partition(";")[0]
    if found not in JSON_TYPES:
        raise CheckFailed(f"Content-Type: {found}", "application/a2a+json")


@check("rest.status", "The code in an error body is its HTTP status", "11.6", on=REST)
async def status(x: Case) -> None:
    response = await x.call("GetTask", {"id": f"none-{uuid.uuid4()}"})
    try:
        code = json.loads(response.seen.partition("\n")[2])["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    if code != response.status:
        raise CheckFailed(response.seen, f"error.code {response.status}, in the form of google.rpc.Status")
