"""Who may call, and what others may see."""

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
OTHERS = (-32700, *range(-32603, -32599), *range(-32009, -32000))
"""Codes of JSON-RPC and A2A for what has nothing to do with credentials."""


async def operations(x: Case) -> list[tuple[str, JSONObject]]:
    """All that are declared, but for SendMessage and the extended card: those have checks of their own."""
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


def check_unauthenticated(x: Case, answer: ConformResponse, what: str) -> None:
    if answer.problem is None:
        raise CheckFailed(answer.seen, f"{what} is refused")
    if isinstance(x.client, HttpClient):
        told = x.client.name == "JSONRPC" and answer.status in (200, 403) and answer.problem.code not in OTHERS
        if answer.status != 401 and not told:
            raise CheckFailed(answer.seen, f"{what} is refused with 401")
    elif answer.problem.code != "UNAUTHENTICATED":
        raise CheckFailed(answer.seen, f"{what} is refused with UNAUTHENTICATED")


@check(
    "auth.missing",
    "Without a credential a call is refused",
    "7.4",
    "security",
    also="missing_auth_returns_401_when_required",
)
async def absent(x: Case) -> None:
    for operation, params in await operations(x):
        check_unauthenticated(x, await x.tried(operation, params, token=""), f"{operation} without a credential")


@check("auth.wrong", "With a credential of nobody a call is refused", "7.4", "security")
async def wrong(x: Case) -> None:
    """Not on every operation: hosts count wrong credentials, and lock out who has too many."""
    for operation, params in (await operations(x))[:2]:
        check_unauthenticated(x, await x.tried(operation, params, token=WRONG), f"{operation} with a wrong token")


@check("auth.send", "Without a credential no message is taken", "7.4", "security")
async def send(x: Case) -> None:
    message = {"message": x.hints.plain.message()}
    check_unauthenticated(x, await x.call("SendMessage", message, token=""), "a message without a credential")


@check("auth.challenge", "A refusal says which credential is asked for", "7.4", "security", on=HTTP, level=SHOULD)
async def challenge(x: Case) -> None:
    answer = await x.call("ListTasks", {}, token="")
    if answer.status != 401:
        raise Skipped("the call is not refused with 401")
    if not answer.headers.get("www-authenticate"):
        raise CheckFailed(dict(answer.headers), "WWW-Authenticate")


@check("auth.other-read", "A task of somebody else does not exist", "13.1", "token", "token-b")
async def other_read(x: Case) -> None:
    task = await x.ended()
    token = x.target.options.token_b
    theirs = await x.call("GetTask", {"id": task["id"]}, token=token)
    x.is_refusal(theirs, "GetTask of somebody else's task", TaskNotFound, Forbidden)
    never = await x.call("GetTask", {"id": str(uuid.uuid4())}, token=token)
    if theirs.problem and never.problem and theirs.problem.code != never.problem.code:
        raise CheckFailed(theirs.seen, f"the same as for a task that there never was: {never.problem.code}")


@check("auth.other-list", "Tasks of somebody else are not listed", "13.1", "token", "token-b")
async def other_list(x: Case) -> None:
    task = await x.ended()
    answer = await x.call("ListTasks", {"contextId": task["contextId"]}, token=x.target.options.token_b)
    if answer.result is not None and answer.result.get("tasks"):
        raise CheckFailed(answer.seen, "a listing without the tasks of others")
    newest = await x.send()
    everything = await x.call("ListTasks", {}, token=x.target.options.token_b)
    if everything.result is not None and newest["id"] in ids(everything.result):
        raise CheckFailed(everything.seen, "a listing without the tasks of others")


@check("auth.other-cancel", "A task of somebody else cannot be canceled", "13.1", "token", "token-b")
async def other_cancel(x: Case) -> None:
    task = await x.ended()
    answer = await x.call("CancelTask", {"id": task["id"]}, token=x.target.options.token_b)
    x.is_refusal(answer, "CancelTask of somebody else's task", TaskNotFound, Forbidden)


@check("auth.other-send", "Nobody writes into a task of somebody else", "13.1", "token", "token-b")
async def other_send(x: Case) -> None:
    task = await x.ended()
    message = {"message": x.hints.plain.message(taskId=task["id"])}
    answer = await x.call("SendMessage", message, token=x.target.options.token_b)
    x.is_refusal(answer, "SendMessage to somebody else's task", TaskNotFound, Forbidden)


@check("auth.other-subscribe", "Nobody follows a task of somebody else", "13.1", "streaming", "token", "token-b")
async def other_subscribe(x: Case) -> None:
    task = await x.ended()
    token = x.target.options.token_b
    await x.refused("SubscribeToTask", {"id": task["id"]}, TaskNotFound, Forbidden, token=token)


@check("auth.other-push", "Nobody has a say in where a task of somebody else is told", "13.1", PUSH, "token", "token-b")
async def other_push(x: Case) -> None:
    task, token = await x.send(), x.target.options.token_b
    mine = {"taskId": task["id"], "url": await webhook(x)}
    one = {"taskId": task["id"], "id": (await x.prepared(CREATE, mine)).get("id")}
    for operation, params in ((CREATE, mine), (LIST, {"taskId": task["id"]}), (GET, one)):
        await x.refused(operation, params, TaskNotFound, Forbidden, token=token)
    await x.call(DELETE, one, token=token)
    await x.ok(GET, one)
