"""What JSON-RPC and HTTP themselves ask for."""

from __future__ import annotations

import json
import uuid
from typing import Any

from roost.conform.case import Case
from roost.conform.check import HTTP, check
from roost.conform.client import JSONObject
from roost.conform.outcome import CheckFailed
from roost.protocol.errors import InvalidRequest, MethodNotFound

RPC, REST = HTTP[:1], HTTP[1:]


async def asked(x: Case, params: JSONObject | None = None, **changed: Any) -> tuple[JSONObject, str]:
    """The response to a GetTask of JSON-RPC, with something else in its request."""
    given = {"id": str(uuid.uuid4())} if params is None else params
    tenant = {"tenant": x.client.interface.tenant} if x.client.interface.tenant else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {**given, **tenant}, **changed}
    reply = await x.http.raw(json.dumps(body).encode())
    found = reply.json("a JSON-RPC response")
    return (found if isinstance(found, dict) else {}), reply.seen()


async def both(x: Case, **changed: Any) -> list[tuple[JSONObject, str]]:
    """An error, and a result."""
    return [await asked(x, **changed), await asked(x, {}, method="ListTasks", **changed)]


@check("rpc.id", "A response has the id of its request, as it was", "9.3", on=RPC)
async def request_id(x: Case) -> None:
    for given in (7, "seven"):
        for found, seen in await both(x, id=given):
            if found.get("id") != given or isinstance(found.get("id"), bool):
                raise CheckFailed(seen, f"id: {json.dumps(given)}")


@check("rpc.version", 'A response says jsonrpc: "2.0"', "9.1", on=RPC)
async def version(x: Case) -> None:
    for found, seen in await both(x):
        if found.get("jsonrpc") != "2.0":
            raise CheckFailed(seen, 'jsonrpc: "2.0"')


@check("rpc.method", "A method that there is not is MethodNotFound", "9.5", on=RPC)
async def method(x: Case) -> None:
    found, seen = await asked(x, method="NoSuchMethod")
    if (found.get("error") or {}).get("code") != MethodNotFound.code:
        raise CheckFailed(seen, f"the error {MethodNotFound.code}")


@check("rpc.request", "What is no request of JSON-RPC 2.0 is InvalidRequest", "9.5", on=RPC)
async def request(x: Case) -> None:
    found, seen = await asked(x, jsonrpc="1.0")
    if (found.get("error") or {}).get("code") != InvalidRequest.code:
        raise CheckFailed(seen, f"the error {InvalidRequest.code}")


@check("rest.path", "A path that there is not is 404", "11.3", on=REST)
async def path(x: Case) -> None:
    reply = await x.http.raw(b"{}", path="/no-such-operation")
    if not 300 <= reply.status < 500:
        raise CheckFailed(reply.seen(), "404")


@check("rest.kind", "Answers are application/a2a+json or application/json", "11.1", on=REST)
async def kind(x: Case) -> None:
    task = await x.send()
    answer = await x.call("GetTask", {"id": task["id"]})
    found = answer.headers.get("content-type", "").partition(";")[0]
    if found not in ("application/a2a+json", "application/json"):
        raise CheckFailed(f"Content-Type: {found}", "application/a2a+json")


@check("rest.status", "The code in an error is its HTTP status", "11.6", on=REST)
async def status(x: Case) -> None:
    answer = await x.call("GetTask", {"id": f"none-{uuid.uuid4()}"})
    try:
        code = json.loads(answer.seen.partition("\n")[2])["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    if code != answer.status:
        raise CheckFailed(answer.seen, f"error.code {answer.status}, in the form of google.rpc.Status")
