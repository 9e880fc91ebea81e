"""SubscribeToTask."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack

from roost.conform import stream_rules
from roost.conform.case import Case, state
from roost.conform.check import BEYOND, ONCE, check
from roost.conform.client import StreamEvent
from roost.conform.outcome import CheckFailed
from roost.protocol.errors import TaskNotFound, UnsupportedOperation
from roost.protocol.types import TaskState

UNREAD = 4
"""Streams that are open and not read."""


@check("subscribe.unknown", "SubscribeToTask for an unknown task returns TaskNotFound", "3.1.6", "streaming")
async def unknown(x: Case) -> None:
    await x.refused("SubscribeToTask", {"id": str(uuid.uuid4())}, TaskNotFound)


@check("subscribe.ended", "SubscribeToTask for an ended task returns UnsupportedOperation", "3.1.6", "streaming")
async def ended(x: Case) -> None:
    """Some hosts send nothing and keep the connection open."""
    task = await x.ended()
    await x.refused("SubscribeToTask", {"id": task["id"]}, UnsupportedOperation)


@check("subscribe.first", "A subscription begins with the current task", "3.1.6", "streaming")
async def first(x: Case) -> None:
    task = await x.paused()
    async with x.events("SubscribeToTask", {"id": task["id"]}) as events:
        event = await anext(events, None)
    if event is None or event.data.get("task", {}).get("id") != task["id"]:
        raise CheckFailed(event.data if event else "an empty stream", f"first the task {task['id']}")
    if state(event.data["task"]) is not TaskState.INPUT_REQUIRED:
        raise CheckFailed(event.data, "the task in its current state")


@check("subscribe.all", "All subscribers of a task receive the same events until it ends", "3.5.2", "streaming")
async def everyone(x: Case) -> None:
    task = await x.paused()
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(x.events("SubscribeToTask", {"id": task["id"]})) for _ in range(2)]
        seen: list[list[StreamEvent]] = [[await anext(stream)] for stream in streams]
        message = x.hints.answer.message(taskId=task["id"], contextId=task["contextId"])
        await x.prepared("SendMessage", {"message": message})
        for events, stream in zip(seen, streams, strict=True):
            events += [event async for event in stream]
    one, other = ([event.data for event in events] for events in seen)
    if one != other:
        both = {"first": stream_rules.described(seen[0]), "second": stream_rules.described(seen[1])}
        raise CheckFailed(both, "the same events in the same order")
    stream_rules.check_end(seen[0])


@check(
    "subscribe.unread",
    "A client that does not read its stream does not block others",
    "3.5.2",
    "streaming",
    on=ONCE,
    level=BEYOND,
)
async def unread(x: Case) -> None:
    """Some hosts freeze, and do not even serve the card: see a2a-python #1101."""
    hint = x.hints.slow or x.hints.chunks or x.hints.plain
    async with AsyncExitStack() as stack:
        for _ in range(UNREAD):
            await stack.enter_async_context(x.events("SendStreamingMessage", {"message": hint.message()}))
        raw = await x.target.card()
        if raw.status not in (200, 304):
            raise CheckFailed(raw.seen(), "the card, while streams are open that nobody reads")
        await x.ok("SendMessage", {"message": x.hints.plain.message()})
    await asyncio.sleep(0)


@check(
    "subscribe.undeclared",
    "SubscribeToTask returns UnsupportedOperation if the card does not declare streaming",
    "3.3.4",
    "no streaming",
)
async def undeclared(x: Case) -> None:
    task = await x.send()
    await x.refused("SubscribeToTask", {"id": task["id"]}, UnsupportedOperation)
