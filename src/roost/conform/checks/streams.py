"""SendStreamingMessage: the events, their order, and the end of the stream."""

from __future__ import annotations

import msgspec

from roost.conform import stream_rules
from roost.conform.case import TRIES, Case, settled, state
from roost.conform.check import HTTP, ONCE, check
from roost.conform.client import JSONObject, StreamEvent
from roost.conform.hints import NO_DIRECT, Hint
from roost.conform.outcome import CheckFailed, NotJudged, Skipped
from roost.conform.wire import NoAnswer
from roost.protocol.errors import UnsupportedOperation
from roost.protocol.states import TERMINAL
from roost.protocol.types import TaskState


async def streamed(x: Case) -> list[StreamEvent]:
    """Return the events of one message. All checks on this binding share them; only stream.end asks for an end."""
    key = f"streamed {x.client.name}"
    if key not in x.target.memo:
        hint = x.hints.chunks or x.hints.plain
        seen: list[StreamEvent] = []
        x.target.memo[key] = seen
        try:
            async with x.events("SendStreamingMessage", {"message": hint.message()}) as events:
                async for event in events:
                    seen.append(event)
        except NoAnswer as error:
            x.target.memo[f"endless {x.client.name}"] = error
    found: list[StreamEvent] = x.target.memo[key]
    if not found:
        raise NotJudged("no events arrived")
    return found


@check("stream.end", "A stream ends when its task has ended or is interrupted", "3.1.2", "streaming")
async def end(x: Case) -> None:
    events = await streamed(x)
    endless: NoAnswer | None = x.target.memo.get(f"endless {x.client.name}")
    if endless is not None:
        if x.client.name != "HTTP+JSON" and stream_rules.is_interrupted(events):
            return  # only section 11.7 says that an interrupted state ends a stream, too
        raise CheckFailed([*stream_rules.described(events[-10:]), endless.observed], "the host ends the stream")
    stream_rules.check_end(events)


@check("stream.order", "A stream begins with a task, or consists of one message", "3.1.2", "streaming")
async def order(x: Case) -> None:
    stream_rules.check_order(await streamed(x))


@check("stream.states", "The states in a stream follow each other in a legal order", "4.1.3", "streaming")
async def states(x: Case) -> None:
    stream_rules.check_states(await streamed(x))


@check(
    "stream.artifacts",
    "The events of a stream add up to the task: none is lost or repeated",
    "3.5.2",
    "streaming",
)
async def artifacts(x: Case) -> None:
    events = await streamed(x)
    if not events or "task" not in events[0].data:
        raise Skipped("the agent streams a message and no task")
    task = msgspec.to_builtins(stream_rules.folded(events))
    stored = await x.get(task["id"])
    if stream_rules.content(task.get("artifacts")) != stream_rules.content(stored.get("artifacts")):
        raise CheckFailed({"streamed": task.get("artifacts"), "stored": stored.get("artifacts")}, "the same artifacts")


@check("stream.kind", "The media type of a stream is text/event-stream", "9.1, 11.1", "streaming", on=HTTP)
async def media_type(x: Case) -> None:
    async with x.stream("SendStreamingMessage", {"message": x.hints.plain.message()}) as stream:
        if stream.refused is not None:
            raise CheckFailed(stream.refused.seen, "a stream")
        if stream.kind != "text/event-stream":
            raise CheckFailed(f"Content-Type: {stream.kind}", "text/event-stream")


@check("stream.direct", "A streamed message is the only event of its stream", "3.1.2", "streaming")
async def direct(x: Case) -> None:
    if x.hints.direct is None:
        raise Skipped(NO_DIRECT)
    events = await x.all_events("SendStreamingMessage", {"message": x.hints.direct.message()})
    if not events or "message" not in events[0].data:
        raise Skipped("the agent was asked for a message, but created a task")
    stream_rules.check_order(events)


@check("stream.live", "Events arrive while the task is at work, not when it ends", "3.1.2", "streaming", on=ONCE)
async def live(x: Case) -> None:
    """A stream is live if its first event arrives before its task has ended.

    No clock is involved, because a slow machine or network delays a live stream too. An ended task counts against the
    host only if a task that is sent without waiting can be seen at work over the same network.
    """
    hint = await x.slow()
    visible = True
    for _ in range(TRIES):
        task = await _after_first_event(x, hint)
        if not settled(task):
            return
        sent = await x.send(hint, wait=False)
        visible = visible and not settled(await x.get(sent["id"]))
    if not visible:
        raise NotJudged("a task that works for long ended before it could be read")
    raise CheckFailed(task, "the first event arrives while the task is at work")


async def _after_first_event(x: Case, hint: Hint) -> JSONObject:
    """Read the task of a stream as soon as the first event has arrived."""
    async with x.events("SendStreamingMessage", {"message": hint.message()}) as events:
        event = await anext(events, None)
        if event is None:
            raise CheckFailed("an empty stream", "events while the task is at work")
        task = event.data.get("task")
        if not isinstance(task, dict):
            raise Skipped("the stream does not begin with a task")
        return await x.ok("GetTask", {"id": task["id"]})


@check("stream.left", "A task continues when its reader disconnects", "3.5.2", "streaming", on=ONCE)
async def left(x: Case) -> None:
    hint = await x.slow()
    async with x.events("SendStreamingMessage", {"message": hint.message()}) as events:
        first = await anext(events, None)
    if first is None or "task" not in first.data:
        raise Skipped("the stream does not begin with a task")
    ended = await x.until(first.data["task"]["id"], "its end", lambda one: state(one) in TERMINAL)
    if state(ended) is not TaskState.COMPLETED:
        raise CheckFailed(ended, "the task is TASK_STATE_COMPLETED although its reader has disconnected")


@check(
    "stream.undeclared",
    "SendStreamingMessage returns UnsupportedOperation if the card does not declare streaming",
    "3.3.4",
    "no streaming",
)
async def undeclared(x: Case) -> None:
    await x.refused("SendStreamingMessage", {"message": x.hints.plain.message()}, UnsupportedOperation)
