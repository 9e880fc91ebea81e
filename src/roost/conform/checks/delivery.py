"""Push notifications as they arrive, at a webhook on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from roost.conform import story
from roost.conform.case import Case, valid
from roost.conform.check import BEYOND, ONCE, check
from roost.conform.checks.push import check_taken
from roost.conform.client import StreamEvent
from roost.conform.outcome import CheckFailed, Skipped
from roost.conform.receiver import Receiver, WebhookDelivery, receiving
from roost.conform.target import is_here
from roost.conform.wire import NoAnswer
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import StreamResponse, TaskState

PUSH = "pushNotifications"
NOTIFICATION = "token-of-conform"
CREDENTIALS = "credentials-of-conform"


def over(calls: list[WebhookDelivery]) -> bool:
    """Somebody was told that the task has ended, or waits."""
    return any(_state(call) in SETTLED for call in calls)


def _state(call: WebhookDelivery) -> TaskState | None:
    found = call.json.get("statusUpdate") or call.json.get("task") or call.json
    try:
        return TaskState(found["status"]["state"])
    except (KeyError, TypeError, ValueError):
        return None


@asynccontextmanager
async def webhook(x: Case) -> AsyncIterator[tuple[Receiver, dict[str, Any]]]:
    """A receiver, and the configuration of a message that names it. Skipped if the host may not call it."""
    place = x.target.options.receiver or ("127.0.0.1" if is_here(x.target.url) else "")
    if not place:
        raise Skipped("the host is not on this machine: give --receiver, where it can reach a webhook")
    try:
        async with receiving(place) as (receiver, url):
            authentication = {"scheme": "Bearer", "credentials": CREDENTIALS}
            config = {"url": url, "token": NOTIFICATION, "authentication": authentication}
            probe = await x.call(
                "SendMessage",
                {"message": x.hints.plain.message(), "configuration": {"taskPushNotificationConfig": config}},
            )
            check_taken(x, probe, f"the host does not take the webhook {url}: allow it, or give --receiver")
            yield receiver, {"taskPushNotificationConfig": config}
    except OSError as error:
        raise Skipped(f"there can be no webhook at {place}: {error}") from None


async def delivered(x: Case) -> list[WebhookDelivery]:
    """What a webhook gets of one task, once for all checks."""
    if "delivered" not in x.target.learned:
        async with webhook(x) as (receiver, configuration):
            hint = x.hints.chunks or x.hints.plain
            result = await x.prepared("SendMessage", {"message": hint.message(), "configuration": configuration})
            if "task" not in result:
                raise Skipped("the agent answers with a message, and makes no task")
            task = result["task"]["id"]
            await receiver.until(lambda calls: over(_of(task, calls)), x.limit)
            x.target.learned["delivered"] = _of(task, receiver.deliveries)
    found: list[WebhookDelivery] = x.target.learned["delivered"]
    return found


async def arrived(x: Case) -> list[WebhookDelivery]:
    """At least one."""
    calls = await delivered(x)
    if not calls:
        raise Skipped("nothing was delivered")
    return calls


def _of(task: str, calls: list[WebhookDelivery]) -> list[WebhookDelivery]:
    return [call for call in calls if _task(call) == task]


def _task(call: WebhookDelivery) -> str:
    """Also of an event that is not wrapped as it should be: `push.payload` says so."""
    for name in ("task", "statusUpdate", "artifactUpdate"):
        one = call.json.get(name)
        if isinstance(one, dict):
            return str(one.get("id" if name == "task" else "taskId"))
    return str(call.json.get("taskId") or call.json.get("id"))


@check("push.delivered", "A webhook is told of a task, up to its end", "4.3.3", PUSH, on=ONCE)
async def arrive(x: Case) -> None:
    calls = await delivered(x)
    if not over(calls):
        seen = [call.body.decode("utf-8", "replace") for call in calls]
        raise CheckFailed(seen or "nothing came", f"the state at which the task ends or waits, within {x.limit:g} s")


@check("push.payload", "What is delivered is a StreamResponse", "4.3.3", PUSH, on=ONCE)
async def payload(x: Case) -> None:
    for call in await arrived(x):
        valid(StreamResponse, call.json, "a StreamResponse")
        story.kind(StreamEvent(None, call.json))


@check("push.order", "Notifications come in the order of the events", "3.5.2", PUSH, on=ONCE)
async def order(x: Case) -> None:
    calls = await arrived(x)
    before: TaskState | None = None
    for now in filter(None, map(_state, calls)):
        if before is not None and now is not before and (before in TERMINAL or now is TaskState.SUBMITTED):
            raise CheckFailed(story.told([StreamEvent(None, call.json) for call in calls]), f"no {now} after {before}")
        before = now


@check("push.credentials", "A notification carries the credentials of its config", "4.3.3", PUSH, on=ONCE)
async def credentials(x: Case) -> None:
    for call in await arrived(x):
        if call.headers.get("authorization") != f"Bearer {CREDENTIALS}":
            raise CheckFailed(
                {"authorization": call.headers.get("authorization")}, "Authorization: Bearer and the credentials"
            )


@check("push.token", "A notification carries the token of its config", "4.3.1", PUSH, on=ONCE, level=BEYOND)
async def token(x: Case) -> None:
    for call in await arrived(x):
        if NOTIFICATION not in call.headers.values():
            raise CheckFailed(call.headers, "X-A2A-Notification-Token with the token")


@check(
    "push.slow", "A webhook that is slow does not hold up the stream", "3.5.1", PUSH, "streaming", on=ONCE, level=BEYOND
)
async def slow(x: Case) -> None:
    """Seen: a host that waited for every webhook before it fed the stream."""
    async with webhook(x) as (receiver, configuration):
        receiver.hold()
        hint = x.hints.chunks or x.hints.plain
        params = {"message": hint.message(), "configuration": configuration}
        seen: list[StreamEvent] = []
        try:
            async with x.events("SendStreamingMessage", params) as events:
                async for event in events:
                    seen.append(event)
        except NoAnswer as error:
            raise CheckFailed(
                [*story.told(seen), error.observed],
                "a stream that comes to its end while a webhook has not answered yet",
            ) from None
