"""SubscribeToTask."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack

from roost.conform import story
from roost.conform.case import Case, state
from roost.conform.check import BEYOND, ONCE, check
from roost.conform.client import StreamEvent
from roost.conform.outcome import CheckFailed
from roost.protocol.errors import TaskNotFound, UnsupportedOperation
from roost.protocol.types import TaskState


@check("subscribe.unknown", "Subscribing to a task that there is not is TaskNotFound", "3.1.6", "streaming")
async def unknown(x: Case) -> None:
    await x.refused("SubscribeToTask", {"id": str(uuid.uuid4())}, TaskNotFound)


@check("subscribe.ended", "Subscribing to a task that is over is UnsupportedOperation", "3.1.6", "streaming")
async def ended(x: Case) -> None:
    """Seen: it hangs."""
    task = await x.ended()
    await x.refused("SubscribeToTask", {"id": task["id"]}, UnsupportedOperation)


@check("subscribe.first", "A subscription begins with the task as it is", "3.1.6", "streaming")
async def first(x: Case) -> None:
    task = await x.paused()
    async with x.events("SubscribeToTask", {"id": task["id"]}) as events:
        event = await anext(events, None)
    if event is None or event.data.get("task", {}).get("id") != task["id"]:
        raise CheckFailed(event.data if event else "an empty stream", f"first the task {task['id']}")
    if state(event.data["task"]) is not TaskState.INPUT_REQUIRED:
        raise CheckFailed(event.data, "the task in its current state")


@check("subscribe.all", "All who follow a task see the same, to its end", "3.5.2", "streaming")
async def everyone(x: Case) -> None:
    task = await x.paused()
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(x.events("SubscribeToTask", {"id": task["id"]})) for _ in range(2)]
        seen: list[list[StreamEvent]] = [[await anext(stream)] for stream in streams]
        message = x.hints.answer.message(taskId=task["id"], contextId=task["contextId"])
        await x.prepared("SendMessage", {"message": message})

        async def read(index: int) -> None:
            seen[index] += [event async for event in streams[index]]

        for index in range(len(streams)):
            await read(index)
    one, other = ([event.data for event in events] for events in seen)
    if one != other:
        raise CheckFailed(
            {"first": story.told(seen[0]), "second": story.told(seen[1])}, "the same events in the same order"
        )
    story.check_end(seen[0])


@check("subscribe.unread", "A reader that does not read stops nobody else", "3.5.2", "streaming", on=ONCE, level=BEYOND)
async def unread(x: Case) -> None:
    """a2a-python #1101: it froze the whole server, the card route too."""
    hint = x.hints.slow or x.hints.chunks or x.hints.plain
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(x.events("SendStreamingMessage", {"message": hint.message()}))
        reply = await x.target.card()
        if reply.status not in (200, 304):
            raise CheckFailed(reply.seen(), "the card, while streams are open that nobody reads")
        await x.ok("SendMessage", {"message": x.hints.plain.message()})
    await asyncio.sleep(0)


@check(
    "subscribe.undeclared",
    "Subscribing where streaming is not declared is UnsupportedOperation",
    "3.3.4",
    "no streaming",
)
async def undeclared(x: Case) -> None:
    task = await x.send()
    await x.refused("SubscribeToTask", {"id": task["id"]}, UnsupportedOperation)
