"""Access: who may call the host, and what other callers may see."""

from __future__ import annotations

import uuid

from roost.conform.case import Case
from roost.conform.check import HTTP, SHOULD, check
from roost.conform.checks.listing import ids
from roost.conform.checks.push import CREATE, DELETE, GET, LIST, PUSH, WEBHOOK, webhook
from roost.conform.client import ConformResponse, HttpClient, JSONObject
from roost.conform.outcome import CheckFailed, CheckOutcome, Skipped
from roost.protocol.errors import Forbidden, TaskNotFound

WRONG = "a-token-of-nobody"
OTHER_CODES = (-32700, *range(-32603, -32599), *range(-32009, -32000))
"""Codes of JSON-RPC and A2A that have nothing to do with credentials."""


async def operations(x: Case) -> list[tuple[str, JSONObject]]:
    """Every declared operation except SendMessage and GetExtendedAgentCard, which have checks of their own."""
    try:
        task = (await x.ended())["id"]
    except CheckOutcome:
        task = str(uuid.uuid4())
    found: list[tuple[str, JSONObject]] = [("ListTasks", {}), ("GetTask", {"id": task}), ("CancelTask", {"id": task})]
    if x.target.capability("streaming"):
        found += [("SendStreamingMessage", {"message": x.hints.plain.message()}), ("SubscribeToTask", {"id": task})]
    if x.target.capability(PUSH):
        one = {"taskId": task, "id": "none"}
        found += [(CREATE, {"taskId": task, "url": WEBHOOK}), (LIST, {"taskId": task}), (GET, one), (DELETE, one)]
    return found


def check_unauthenticated(x: Case, response: ConformResponse, what: str) -> None:
    if response.error is None:
        raise CheckFailed(response.seen, f"{what} is rejected")
    if isinstance(x.client, HttpClient):
        rpc = x.client.name == "JSONRPC" and response.status in (200, 403) and response.error.code not in OTHER_CODES
        if response.status != 401 and not rpc:
            raise CheckFailed(response.seen, f"{what} is rejected with 401")
    elif response.error.code != "UNAUTHENTICATED":
        raise CheckFailed(response.seen, f"{what} is rejected with UNAUTHENTICATED")


@check(
    "auth.missing",
    "A call without a credential is rejected",
    "7.4",
    "security",
    also="missing_auth_returns_401_when_required",
)
async def absent(x: Case) -> None:
    for operation, params in await operations(x):
        check_unauthenticated(x, await x.attempt(operation, params, token=""), f"{operation} without a credential")


@check("auth.wrong", "A call with an invalid credential is rejected", "7.4", "security")
async def wrong(x: Case) -> None:
    """Only two operations are tried: hosts count invalid credentials and lock a caller out."""
    for operation, params in (await operations(x))[:2]:
        check_unauthenticated(x, await x.attempt(operation, params, token=WRONG), f"{operation} with a wrong token")


@check("auth.send", "A message without a credential is rejected", "7.4", "security")
async def send(x: Case) -> None:
    message = {"message": x.hints.plain.message()}
    check_unauthenticated(x, await x.call("SendMessage", message, token=""), "a message without a credential")


@check("auth.challenge", "A rejection names the authentication scheme", "7.4", "security", on=HTTP, level=SHOULD)
async def challenge(x: Case) -> None:
    response = await x.call("ListTasks", {}, token="")
    if response.status != 401:
        raise Skipped("the call is not rejected with 401")
    if not response.headers.get("www-authenticate"):
        raise CheckFailed(dict(response.headers), "the header WWW-Authenticate")


@check("auth.other-read", "Another caller cannot read a task", "13.1", "token", "token-b")
async def other_read(x: Case) -> None:
    task = await x.ended()
    token = x.target.options.token_b
    theirs = await x.call("GetTask", {"id": task["id"]}, token=token)
    x.check_error(theirs, "GetTask by another caller", TaskNotFound, Forbidden)
    never = await x.call("GetTask", {"id": str(uuid.uuid4())}, token=token)
    if theirs.error and never.error and theirs.error.code != never.error.code:
        raise CheckFailed(theirs.seen, f"the same error as for a task that never existed: {never.error.code}")


@check("auth.other-list", "Another caller does not see a task in a listing", "13.1", "token", "token-b")
async def other_list(x: Case) -> None:
    task = await x.ended()
    response = await x.call("ListTasks", {"contextId": task["contextId"]}, token=x.target.options.token_b)
    if response.result is not None and response.result.get("tasks"):
        raise CheckFailed(response.seen, "a listing without the tasks of others")
    newest = await x.send()
    everything = await x.call("ListTasks", {}, token=x.target.options.token_b)
    if everything.result is not None and newest["id"] in ids(everything.result):
        raise CheckFailed(everything.seen, "a listing without the tasks of others")


@check("auth.other-cancel", "Another caller cannot cancel a task", "13.1", "token", "token-b")
async def other_cancel(x: Case) -> None:
    task = await x.ended()
    response = await x.call("CancelTask", {"id": task["id"]}, token=x.target.options.token_b)
    x.check_error(response, "CancelTask by another caller", TaskNotFound, Forbidden)


@check("auth.other-send", "Another caller cannot send a message to a task", "13.1", "token", "token-b")
async def other_send(x: Case) -> None:
    task = await x.ended()
    message = {"message": x.hints.plain.message(taskId=task["id"])}
    response = await x.call("SendMessage", message, token=x.target.options.token_b)
    x.check_error(response, "SendMessage by another caller", TaskNotFound, Forbidden)


@check("auth.other-subscribe", "Another caller cannot subscribe to a task", "13.1", "streaming", "token", "token-b")
async def other_subscribe(x: Case) -> None:
    task = await x.ended()
    token = x.target.options.token_b
    await x.refused("SubscribeToTask", {"id": task["id"]}, TaskNotFound, Forbidden, token=token)


@check(
    "auth.other-push",
    "Another caller cannot read or change the push notification configs of a task",
    "13.1",
    PUSH,
    "token",
    "token-b",
)
async def other_push(x: Case) -> None:
    task, token = await x.send(), x.target.options.token_b
    mine = {"taskId": task["id"], "url": await webhook(x)}
    one = {"taskId": task["id"], "id": (await x.prepared(CREATE, mine)).get("id")}
    for operation, params in ((CREATE, mine), (LIST, {"taskId": task["id"]}), (GET, one)):
        await x.refused(operation, params, TaskNotFound, Forbidden, token=token)
    await x.call(DELETE, one, token=token)
    await x.ok(GET, one)
