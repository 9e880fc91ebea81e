"""Continuing a stream that was interrupted."""

from __future__ import annotations

import msgspec

from roost.conform import stream_rules
from roost.conform.case import TRIES, Case, state
from roost.conform.check import HTTP, ONCE, check
from roost.conform.checks.streams import streamed
from roost.conform.client import StreamEvent
from roost.conform.hints import Hint
from roost.conform.needs import EXTENSION, STREAM_RESUME
from roost.conform.outcome import CheckFailed, Skipped
from roost.protocol.states import TERMINAL

LAST = "Last-Event-ID"


@check(
    "resume.after",
    "With Last-Event-ID a stream continues after that event, without a gap or a repetition",
    STREAM_RESUME,
    "streaming",
    EXTENSION + STREAM_RESUME,
    on=HTTP,
)
async def after(x: Case) -> None:
    whole = await streamed(x)
    if len(whole) < 3 or any(event.id is None for event in whole):
        raise CheckFailed([event.id for event in whole], "an id for every event")
    task_id = whole[0].data["task"]["id"]
    ended = state(await x.get(task_id)) in TERMINAL
    for index in range(len(whole) - 1):
        resumed = await _resumed(x, task_id, str(whole[index].id), None if ended else len(whole) - index)
        if [event.data for event in resumed[1:]] != [event.data for event in whole[index + 1 :]]:
            expected = stream_rules.described(whole[index + 1 :])
            raise CheckFailed(
                stream_rules.described(resumed), f"the task as of event {whole[index].id}, then {expected}"
            )


async def _resumed(x: Case, task_id: str, last: str, most: int | None) -> list[StreamEvent]:
    """Return the events after the last one that was seen: all of them, or at most so many."""
    seen: list[StreamEvent] = []
    async with x.events("SubscribeToTask", {"id": task_id}, {LAST: last}) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == most:
                break
    return seen


@check(
    "resume.beyond",
    "An unknown Last-Event-ID is rejected",
    STREAM_RESUME,
    "streaming",
    EXTENSION + STREAM_RESUME,
    on=HTTP,
)
async def beyond(x: Case) -> None:
    whole = await streamed(x)
    async with x.stream("SubscribeToTask", {"id": whole[0].data["task"]["id"]}, {LAST: "999999"}) as stream:
        if stream.refused is None:
            raise CheckFailed("a stream", "an error: there is no such event")


@check("resume.plain", "A client that subscribes again misses nothing", "3.1.6", "streaming", on=ONCE)
async def plain(x: Case) -> None:
    """Some hosts lose what happens between the two streams: see a2a-python #832."""
    hint = await x.slow()
    task_id, again = await _followed_again(x, hint)
    if not again or "task" not in again[0].data:
        raise CheckFailed(stream_rules.described(again), "a stream that begins with the task")
    task = stream_rules.folded(again)
    stored = await x.get(task_id)
    followed = stream_rules.content(msgspec.to_builtins(task.artifacts))
    if followed != stream_rules.content(stored.get("artifacts")):
        seen = {"followed": followed, "stored": stored.get("artifacts")}
        raise CheckFailed(seen, "all artifacts of the task")


async def _followed_again(x: Case, hint: Hint) -> tuple[str, list[StreamEvent]]:
    """Leave a stream after its first event, and return the events of a subscription to the same task."""
    for _ in range(TRIES):
        async with x.events("SendStreamingMessage", {"message": hint.message()}) as events:
            first = await anext(events, None)
        if first is None or "task" not in first.data:
            raise Skipped("the stream does not begin with a task")
        task_id = str(first.data["task"]["id"])
        async with x.stream("SubscribeToTask", {"id": task_id}) as stream:
            if stream.refused is None:
                return task_id, [event async for event in stream.events]
    raise Skipped("the task ended before the client could subscribe again")
