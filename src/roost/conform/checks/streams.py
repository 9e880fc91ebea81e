"""SendStreamingMessage: what comes, in which order, and that it ends."""

from __future__ import annotations

import msgspec

from roost.conform import story
from roost.conform.case import TRIES, Case, settled, state
from roost.conform.check import HTTP, ONCE, check
from roost.conform.client import JSONObject, StreamEvent
from roost.conform.hints import Hint
from roost.conform.outcome import CheckFailed, NotJudged, Skipped
from roost.conform.wire import NoAnswer
from roost.protocol.errors import UnsupportedOperation
from roost.protocol.states import TERMINAL
from roost.protocol.types import TaskState


async def streamed(x: Case) -> list[StreamEvent]:
    """The events of one message, the same for all checks on this binding; without an end only `stream.end` cares."""
    key = f"streamed {x.client.name}"
    if key not in x.target.learned:
        hint = x.hints.chunks or x.hints.plain
        seen: list[StreamEvent] = []
        x.target.learned[key] = seen
        try:
            async with x.events("SendStreamingMessage", {"message": hint.message()}) as events:
                async for event in events:
                    seen.append(event)
        except NoAnswer as error:
            x.target.learned[f"endless {x.client.name}"] = error
    found: list[StreamEvent] = x.target.learned[key]
    if not found:
        raise NotJudged("no events came")
    return found


@check("stream.end", "A stream ends when its task has ended or waits", "3.1.2", "streaming")
async def end(x: Case) -> None:
    events = await streamed(x)
    endless: NoAnswer | None = x.target.learned.get(f"endless {x.client.name}")
    if endless is not None:
        if x.client.name != "HTTP+JSON" and story.waits(events):
            return  # only the end of a task is said to end a stream there
        raise CheckFailed([*story.told(events[-10:]), endless.observed], "the host ends the stream")
    story.check_end(events)


@check("stream.order", "A stream begins with its task, or is one message", "3.1.2", "streaming")
async def order(x: Case) -> None:
    story.check_order(await streamed(x))


@check("stream.states", "The states in a stream follow one another as they may", "4.1.3", "streaming")
async def states(x: Case) -> None:
    story.check_states(await streamed(x))


@check(
    "stream.artifacts",
    "The events of a stream amount to the task: nothing is lost, nothing comes twice",
    "3.5.2",
    "streaming",
)
async def artifacts(x: Case) -> None:
    events = await streamed(x)
    if not events or "task" not in events[0].data:
        raise Skipped("the agent streams a message, and no task")
    task = msgspec.to_builtins(story.folded(events))
    stored = await x.get(task["id"])
    if story.content(task.get("artifacts")) != story.content(stored.get("artifacts")):
        raise CheckFailed({"streamed": task.get("artifacts"), "stored": stored.get("artifacts")}, "the same artifacts")


@check("stream.kind", "A stream is text/event-stream", "9.1, 11.1", "streaming", on=HTTP)
async def media_type(x: Case) -> None:
    async with x.stream("SendStreamingMessage", {"message": x.hints.plain.message()}) as stream:
        if stream.refused is not None:
            raise CheckFailed(stream.refused.seen, "a stream")
        if stream.kind != "text/event-stream":
            raise CheckFailed(f"Content-Type: {stream.kind}", "text/event-stream")


@check("stream.direct", "A message that is streamed is alone", "3.1.2", "streaming")
async def direct(x: Case) -> None:
    if x.hints.direct is None:
        raise Skipped("nobody says how to make this agent answer with a message")
    events = await x.all_events("SendStreamingMessage", {"message": x.hints.direct.message()})
    if not events or "message" not in events[0].data:
        raise Skipped("the agent was asked for a message, and made a task")
    story.check_order(events)


@check("stream.live", "Events come while the task is at work, not at its end", "3.1.2", "streaming", on=ONCE)
async def live(x: Case) -> None:
    """A stream is live if its first event arrives before its task is over.

    No clock is involved, because a slow machine or network delays a live stream too. A task that is over counts against
    the host only if a task that was sent without waiting could be seen at work over the same way.
    """
    hint = await x.slow()
    for _ in range(TRIES):
        streamed = await _after_first_event(x, hint)
        if not settled(streamed):
            return
        sent = await x.send(hint, wait=False)
        if settled(await x.get(sent["id"])):
            raise NotJudged("a task that works for long was over before anything could be asked of it")
    raise CheckFailed(streamed, "the first event comes while the task is at work")


async def _after_first_event(x: Case, hint: Hint) -> JSONObject:
    """The task of a stream, read again as soon as its first event has arrived."""
    async with x.events("SendStreamingMessage", {"message": hint.message()}) as events:
        event = await anext(events, None)
        if event is None:
            raise CheckFailed("an empty stream", "events, while the task is at work")
        task = event.data.get("task")
        if not isinstance(task, dict):
            raise Skipped("the stream does not begin with a task")
        return await x.ok("GetTask", {"id": task["id"]})


@check("stream.left", "A task goes on when its reader leaves", "3.5.2", "streaming", on=ONCE)
async def left(x: Case) -> None:
    hint = await x.slow()
    async with x.events("SendStreamingMessage", {"message": hint.message()}) as events:
        first = await anext(events, None)
    if first is None or "task" not in first.data:
        raise Skipped("the stream does not begin with a task")
    ended = await x.until(first.data["task"]["id"], "its end", lambda one: state(one) in TERMINAL)
    if state(ended) is not TaskState.COMPLETED:
        raise CheckFailed(ended, "the task is TASK_STATE_COMPLETED, though its reader has left")


@check("stream.undeclared", "Streaming that is not declared is UnsupportedOperation", "3.3.4", "no streaming")
async def undeclared(x: Case) -> None:
    await x.refused("SendStreamingMessage", {"message": x.hints.plain.message()}, UnsupportedOperation)
