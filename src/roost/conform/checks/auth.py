"""Who may call, and what others may see."""

from __future__ import annotations

import uuid

from roost.conform.case import Case
from roost.conform.check import HTTP, SHOULD, check
from roost.conform.client import Answer, HttpClient
from roost.conform.outcome import Failed, Skipped
from roost.protocol.errors import Forbidden, TaskNotFound

WRONG = "a-token-of-nobody"


def check_unauthenticated(x: Case, answer: Answer, what: str) -> None:
    if answer.problem is None:
        raise Failed(answer.seen, f"{what} is refused")
    if isinstance(x.client, HttpClient):
        if answer.status != 401 and not (x.client.name == "JSONRPC" and answer.status in (200, 403)):
            raise Failed(answer.seen, f"{what} is refused with 401")
    elif answer.problem.code != "UNAUTHENTICATED":
        raise Failed(answer.seen, f"{what} is refused with UNAUTHENTICATED")


@check(
    "auth.missing",
    "Without a credential a call is refused",
    "7.4",
    "security",
    also="missing_auth_returns_401_when_required",
)
async def absent(x: Case) -> None:
    check_unauthenticated(x, await x.call("ListTasks", {}, token=""), "a call without a credential")


@check("auth.wrong", "With a credential of nobody a call is refused", "7.4", "security")
async def wrong(x: Case) -> None:
    check_unauthenticated(x, await x.call("ListTasks", {}, token=WRONG), "a call with a wrong token")


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
        raise Failed(dict(answer.headers), "WWW-Authenticate")


@check("auth.other-read", "A task of somebody else does not exist", "13.1", "token", "token-b")
async def other_read(x: Case) -> None:
    task = await x.ended()
    token = x.target.options.token_b
    theirs = await x.call("GetTask", {"id": task["id"]}, token=token)
    x.is_refusal(theirs, "GetTask of somebody else's task", TaskNotFound, Forbidden)
    never = await x.call("GetTask", {"id": str(uuid.uuid4())}, token=token)
    if theirs.problem and never.problem and theirs.problem.code != never.problem.code:
        raise Failed(theirs.seen, f"the same as for a task that there never was: {never.problem.code}")


@check("auth.other-list", "Tasks of somebody else are not listed", "13.1", "token", "token-b")
async def other_list(x: Case) -> None:
    task = await x.ended()
    answer = await x.call("ListTasks", {"contextId": task["contextId"]}, token=x.target.options.token_b)
    if answer.result is not None and answer.result.get("tasks"):
        raise Failed(answer.seen, "a listing without the tasks of others")


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
