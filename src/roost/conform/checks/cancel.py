"""CancelTask."""

from __future__ import annotations

import uuid

from roost.conform.case import TRIES, Case, settled, state
from roost.conform.check import ONCE, check
from roost.conform.client import JSONObject
from roost.conform.hints import Hint
from roost.conform.outcome import CheckFailed, NotJudged
from roost.protocol.errors import TaskNotCancelable, TaskNotFound
from roost.protocol.types import TaskState


@check(
    "cancel.task",
    "CancelTask cancels a task that waits for input",
    "3.1.5",
    also="cancel_task_transitions_to_canceled",
)
async def task(x: Case) -> None:
    waiting = await x.paused()
    found = await x.ok("CancelTask", {"id": waiting["id"]})
    if found.get("id") != waiting["id"]:
        raise CheckFailed(found, f"the task {waiting['id']}")
    await x.until(waiting["id"], "CANCELED", lambda one: state(one) is TaskState.CANCELED)


@check("cancel.unknown", "CancelTask for an unknown task returns TaskNotFound", "3.1.5")
async def unknown(x: Case) -> None:
    await x.refused("CancelTask", {"id": str(uuid.uuid4())}, TaskNotFound)


@check("cancel.ended", "CancelTask for an ended task returns TaskNotCancelable", "3.1.5")
async def ended(x: Case) -> None:
    found = await x.ended()
    await x.refused("CancelTask", {"id": found["id"]}, TaskNotCancelable)


@check("cancel.stays", "A canceled task stays canceled, and its work stops", "3.1.5", on=ONCE)
async def stays(x: Case) -> None:
    """On some hosts the agent works on, and its end overwrites the cancel."""
    hint = await x.slow()
    begun = await _canceled(x, hint)
    at_once = await x.until(begun["id"], "CANCELED", lambda one: state(one) is TaskState.CANCELED)
    other = await x.send(hint, wait=False)
    await x.until(other["id"], "its end", settled)  # the canceled work would have ended before
    later = await x.ok("GetTask", {"id": begun["id"]})
    if state(later) is not TaskState.CANCELED:
        raise CheckFailed(later, "the task is still TASK_STATE_CANCELED when its work would have ended")
    if later.get("artifacts") != at_once.get("artifacts"):
        raise CheckFailed(later, "no work after the cancel: the artifacts have not changed")


async def _canceled(x: Case, hint: Hint) -> JSONObject:
    """Return a task whose cancel the host has accepted. NotJudged if every attempt comes too late."""
    for _ in range(TRIES):
        begun = await x.send(hint, wait=False)
        if settled(begun):
            continue
        response = await x.call("CancelTask", {"id": begun["id"]})
        if response.result is not None:
            if state(response.result) is TaskState.CANCELED or not settled(response.result):
                return begun
        elif not x.is_error(response, TaskNotCancelable) or not settled(await x.get(begun["id"])):
            raise CheckFailed(response.seen, "CancelTask succeeds")
    raise NotJudged("the task ended before it could be canceled")
