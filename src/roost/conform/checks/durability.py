"""Tasks whose host crashes or restarts."""

from __future__ import annotations

from roost.conform.case import TRIES, Case, settled, state
from roost.conform.check import BEYOND, ONCE, check
from roost.conform.client import JSONObject
from roost.conform.hints import Hint
from roost.conform.outcome import CheckFailed, NotJudged
from roost.conform.wire import NoAnswer
from roost.protocol.errors import UnsupportedOperation
from roost.protocol.types import TaskState


@check(
    "durability.crash",
    "After a crash no task stays WORKING, and its subscribers are not left waiting",
    "4.1.3",
    "restart",
    on=ONCE,
    level=BEYOND,
    also="restart_durability",
)
async def crash(x: Case) -> None:
    hint = await x.slow()
    begun = await _at_work(x, hint)
    await _restart(x)
    response = await x.call("GetTask", {"id": begun["id"]})
    if response.result is None:
        raise CheckFailed(response.seen, f"the task {begun['id']}, which the host had acknowledged")
    if x.target.capability("streaming") and not settled(response.result):
        await _follow(x, begun["id"])
    await x.until(begun["id"], "its end", settled)


async def _at_work(x: Case, hint: Hint) -> JSONObject:
    """Return a task that is at work. NotJudged if every attempt comes too late."""
    for _ in range(TRIES):
        sent = await x.send(hint, wait=False)
        found = await x.until(sent["id"], "WORKING", lambda one: state(one) is TaskState.WORKING or settled(one))
        if not settled(found):
            return found
    raise NotJudged("the task ended before the crash")


async def _follow(x: Case, task_id: str) -> None:
    try:
        async with x.stream("SubscribeToTask", {"id": task_id}) as stream:
            if stream.refused is not None:
                x.check_error(stream.refused, "SubscribeToTask", UnsupportedOperation)
            async for _ in stream.events:
                pass
    except NoAnswer as error:
        task = await x.get(task_id)
        seen = {"SubscribeToTask": error.observed, "the task then": str(state(task))}
        raise CheckFailed(seen, "a stream that continues to the end of the task") from None


@check(
    "durability.kept",
    "An ended task is still there after a restart",
    "3.1.3",
    "restart",
    on=ONCE,
    level=BEYOND,
)
async def kept(x: Case) -> None:
    task = await x.ended(x.hints.artifact)
    await _restart(x)
    found = await x.ok("GetTask", {"id": task["id"]})
    if (state(found), found.get("artifacts")) != (state(task), task.get("artifacts")):
        raise CheckFailed(found, "the task as it was before the restart")


async def _restart(x: Case) -> None:
    restart = x.target.options.restart
    assert restart is not None
    try:
        await restart()
    except OSError as error:
        raise NotJudged(f"the host could not be started again: {error}") from None
