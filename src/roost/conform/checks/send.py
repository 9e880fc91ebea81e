"""SendMessage, and the first requests that a host gets."""

from __future__ import annotations

import asyncio
import uuid

from roost.conform.case import Case, settled, state, valid
from roost.conform.check import ONCE, check
from roost.conform.client import limited, unauthenticated
from roost.conform.hints import NO_DIRECT
from roost.conform.outcome import CheckFailed, Skipped
from roost.protocol.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from roost.protocol.states import TERMINAL
from roost.protocol.types import SendMessageResponse, TaskState

AT_ONCE = 8
"""Messages that are sent to a fresh host at the same time."""


@check(
    "first.concurrent",
    "The host answers its first requests when they arrive at the same time",
    "3.1.1, 3.4.2",
    on=ONCE,
)
async def concurrent(x: Case) -> None:
    """On some hosts the first request creates the tables of the store, and the others get 500."""
    sends = [x.client.call("SendMessage", {"message": x.hints.plain.message()}) for _ in range(AT_ONCE)]
    responses = await asyncio.gather(*sends)
    if any(limited(x.client, response) for response in responses):
        raise Skipped(f"the host does not accept {AT_ONCE} messages at the same time, and says so")
    if any(unauthenticated(x.client, response) for response in responses):
        raise Skipped("no --token was given, and the host requires one")
    rejected = [response.seen for response in responses if response.error is not None]
    if rejected:
        raise CheckFailed(rejected[0], f"all of {AT_ONCE} messages that are sent at the same time succeed")
    ids = [response.result["task"]["id"] for response in responses if response.result and "task" in response.result]
    if len(ids) != len(set(ids)):
        raise CheckFailed(ids, "each message creates a task of its own")


@check("send.answer", "SendMessage returns a valid task or message", "3.1.1")
async def answer(x: Case) -> None:
    result = await x.ok("SendMessage", {"message": x.hints.plain.message()})
    found = valid(SendMessageResponse, result, "a SendMessageResponse")
    if (found.task is None) == (found.message is None):
        raise CheckFailed(result, "exactly one of task and message")


@check("send.blocking", "A blocking SendMessage returns when the task has ended or is interrupted", "3.2.2")
async def blocking(x: Case) -> None:
    for hint in filter(None, (x.hints.plain, x.hints.slow)):
        result = await x.ok("SendMessage", {"message": hint.message(), "configuration": {"returnImmediately": False}})
        if "task" in result and not settled(result["task"]):
            raise CheckFailed(result, "a task in a terminal or an interrupted state")


@check("send.non-blocking", "A non-blocking SendMessage returns while the task is at work", "3.2.2")
async def non_blocking(x: Case) -> None:
    """Servers that ignored returnImmediately passed the TCK: see a2a-tck #217."""
    hint = await x.slow()
    params = {"message": hint.message(), "configuration": {"returnImmediately": True}}
    result = await x.ok("SendMessage", params)
    if "task" in result and state(result["task"]) in TERMINAL:
        raise CheckFailed(result, "a response at once, with a task that is still at work")


@check("send.direct", "A direct response is a message without a task", "3.1.1")
async def direct(x: Case) -> None:
    if x.hints.direct is None:
        raise Skipped(NO_DIRECT)
    result = await x.ok("SendMessage", {"message": x.hints.direct.message()})
    found = valid(SendMessageResponse, result, "a SendMessageResponse")
    if found.message is None:
        raise Skipped("the agent was asked for a message, but created a task")
    if found.task is not None:
        raise CheckFailed(result, "a message and no task")


@check("send.context-made", "A task gets a contextId if the client sends none", "3.4.1")
async def context_made(x: Case) -> None:
    task = await x.send()
    if not task.get("contextId"):
        raise CheckFailed(task, "a contextId that the host has generated")


@check("send.context-kept", "A contextId of the client is kept, or the message is rejected", "3.4.1")
async def context_kept(x: Case) -> None:
    context = str(uuid.uuid4())
    found = await x.call("SendMessage", {"message": x.hints.plain.message(contextId=context)})
    if found.result is None:
        return
    one = found.result.get("task") or found.result.get("message") or {}
    if one.get("contextId") != context:
        raise CheckFailed(found.seen, f"the contextId {context}, or an error")


@check("send.history", "SendMessage with historyLength 0 returns no history", "3.2.4")
async def history(x: Case) -> None:
    result = await x.ok("SendMessage", {"message": x.hints.plain.message(), "configuration": {"historyLength": 0}})
    if result.get("task", {}).get("history"):
        raise CheckFailed(result, "a task without history")


@check("send.unknown-task", "A message to an unknown task returns TaskNotFound", "3.4.2")
async def unknown_task(x: Case) -> None:
    """FastA2A starts a new task."""
    await x.refused("SendMessage", {"message": x.hints.plain.message(taskId=str(uuid.uuid4()))}, TaskNotFound)


@check("send.ended-task", "A message to an ended task returns UnsupportedOperation", "3.1.1")
async def ended_task(x: Case) -> None:
    task = await x.ended()
    message = x.hints.plain.message(taskId=task["id"], contextId=task["contextId"])
    await x.refused("SendMessage", {"message": message}, UnsupportedOperation)


@check("send.other-context", "A message whose taskId and contextId do not match is rejected", "3.4.3")
async def other_context(x: Case) -> None:
    task = await x.paused()
    message = x.hints.answer.message(taskId=task["id"], contextId=str(uuid.uuid4()))
    found = await x.call("SendMessage", {"message": message})
    if found.error is None:
        raise CheckFailed(found.seen, "an error: the contextId is not that of the task")
    x.check_error(found, "SendMessage", InvalidParams, UnsupportedOperation, TaskNotFound)


@check("send.follow-up", "A follow-up that names only the task stays in the context of the task", "3.4.3")
async def follow_up(x: Case) -> None:
    task = await x.paused()
    result = await x.ok("SendMessage", {"message": x.hints.answer.message(taskId=task["id"])})
    found = result.get("task") or result.get("message") or {}
    stored = await x.get(task["id"])
    for one in (found, stored):
        if one.get("contextId") != task["contextId"]:
            raise CheckFailed(one, f"contextId {task['contextId']}, which is that of the task")
    wrong = [one for one in stored.get("history", []) if one.get("contextId", task["contextId"]) != task["contextId"]]
    if wrong:
        raise CheckFailed(wrong[0], f"contextId {task['contextId']} in the history, which is that of the task")


@check(
    "send.answered",
    "A task that waits for input continues when it gets an answer",
    "3.4.3",
    also="hitl_response_message_accepted_shape",
)
async def answered(x: Case) -> None:
    task = await x.paused()
    message = x.hints.answer.message(taskId=task["id"], contextId=task["contextId"])
    result = await x.ok("SendMessage", {"message": message})
    found = result.get("task", {})
    if found.get("id") != task["id"]:
        raise CheckFailed(result, f"the task {task['id']}, which continues")
    if state(found) is not TaskState.COMPLETED:
        await x.until(task["id"], "COMPLETED", lambda one: state(one) is TaskState.COMPLETED)
