"""Push notifications as they arrive at a webhook on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from roost.conform import stream_rules
from roost.conform.case import Case, valid
from roost.conform.check import BEYOND, ONCE, check
from roost.conform.checks.push import PUSH, check_accepted
from roost.conform.client import StreamEvent
from roost.conform.outcome import CheckFailed, Skipped
from roost.conform.receiver import Receiver, WebhookDelivery, receiving
from roost.conform.target import is_here
from roost.conform.wire import NoAnswer
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import StreamResponse, TaskState

NOTIFICATION = "token-of-conform"
CREDENTIALS = "credentials-of-conform"


def is_settled(deliveries: list[WebhookDelivery]) -> bool:
    """Return whether a delivery says that the task has ended or is interrupted."""
    return any(_state(delivery) in SETTLED for delivery in deliveries)


def _state(delivery: WebhookDelivery) -> TaskState | None:
    found = delivery.json.get("statusUpdate") or delivery.json.get("task") or delivery.json
    try:
        return TaskState(found["status"]["state"])
    except (KeyError, TypeError, ValueError):
        return None


@asynccontextmanager
async def webhook(x: Case) -> AsyncIterator[tuple[Receiver, dict[str, Any]]]:
    """Yield a webhook and the configuration of a message that names it. Skipped if the host may not call it."""
    place = x.target.options.receiver or ("127.0.0.1" if is_here(x.target.url) else "")
    if not place:
        raise Skipped("the host is not on this machine: give --receiver, an address at which it can reach a webhook")
    try:
        async with receiving(place) as (receiver, url):
            authentication = {"scheme": "Bearer", "credentials": CREDENTIALS}
            config = {"url": url, "token": NOTIFICATION, "authentication": authentication}
            probe = await x.call(
                "SendMessage",
                {"message": x.hints.plain.message(), "configuration": {"taskPushNotificationConfig": config}},
            )
            check_accepted(x, probe, f"the host does not accept the webhook {url}: allow it, or give --receiver")
            yield receiver, {"taskPushNotificationConfig": config}
    except OSError as error:
        raise Skipped(f"cannot listen for webhooks at {place}: {error}") from None


async def delivered(x: Case) -> list[WebhookDelivery]:
    """Return what a webhook gets for one task. All checks share it."""
    if "delivered" not in x.target.memo:
        async with webhook(x) as (receiver, configuration):
            hint = x.hints.chunks or x.hints.plain
            result = await x.prepared("SendMessage", {"message": hint.message(), "configuration": configuration})
            if "task" not in result:
                raise Skipped("the agent answers with a message and creates no task")
            task = result["task"]["id"]
            await receiver.until(lambda deliveries: is_settled(_of(task, deliveries)), x.limit)
            x.target.memo["delivered"] = _of(task, receiver.deliveries)
    found: list[WebhookDelivery] = x.target.memo["delivered"]
    return found


async def arrived(x: Case) -> list[WebhookDelivery]:
    """Return what a webhook gets for one task. Skipped if it gets nothing."""
    deliveries = await delivered(x)
    if not deliveries:
        raise Skipped("nothing was delivered")
    return deliveries


def _of(task: str, deliveries: list[WebhookDelivery]) -> list[WebhookDelivery]:
    return [delivery for delivery in deliveries if _task(delivery) == task]


def _task(delivery: WebhookDelivery) -> str:
    """Return the id of the task, also from an event that is not wrapped as it should be: push.payload reports that."""
    for name in ("task", "statusUpdate", "artifactUpdate"):
        one = delivery.json.get(name)
        if isinstance(one, dict):
            return str(one.get("id" if name == "task" else "taskId"))
    return str(delivery.json.get("taskId") or delivery.json.get("id"))


@check("push.delivered", "A webhook is notified of a task until it ends", "4.3.3", PUSH, on=ONCE)
async def arrive(x: Case) -> None:
    deliveries = await delivered(x)
    if not is_settled(deliveries):
        seen = [delivery.body.decode("utf-8", "replace") for delivery in deliveries]
        expected = f"the state in which the task ends or is interrupted, within {x.limit:g} s"
        raise CheckFailed(seen or "nothing was delivered", expected)


@check("push.payload", "A notification is a StreamResponse", "4.3.3", PUSH, on=ONCE)
async def payload(x: Case) -> None:
    for delivery in await arrived(x):
        valid(StreamResponse, delivery.json, "a StreamResponse")
        stream_rules.kind(StreamEvent(None, delivery.json))


@check("push.order", "Notifications arrive in the order of the events", "3.5.2", PUSH, on=ONCE)
async def order(x: Case) -> None:
    deliveries = await arrived(x)
    before: TaskState | None = None
    for now in filter(None, map(_state, deliveries)):
        if before is not None and now is not before and (before in TERMINAL or now is TaskState.SUBMITTED):
            events = [StreamEvent(None, delivery.json) for delivery in deliveries]
            raise CheckFailed(stream_rules.described(events), f"no {now} after {before}")
        before = now


@check("push.credentials", "A notification carries the credentials of its config", "4.3.3", PUSH, on=ONCE)
async def credentials(x: Case) -> None:
    for delivery in await arrived(x):
        found = delivery.headers.get("authorization")
        if found != f"Bearer {CREDENTIALS}":
            raise CheckFailed({"authorization": found}, "Authorization: Bearer and the credentials")


@check("push.token", "A notification carries the token of its config", "4.3.1", PUSH, on=ONCE, level=BEYOND)
async def token(x: Case) -> None:
    for delivery in await arrived(x):
        if NOTIFICATION not in delivery.headers.values():
            raise CheckFailed(delivery.headers, "X-A2A-Notification-Token with the token")


@check("push.slow", "A slow webhook does not delay the stream", "3.5.1", PUSH, "streaming", on=ONCE, level=BEYOND)
async def slow(x: Case) -> None:
    """Some hosts wait for every webhook before they continue the stream: here it answers only after the stream."""
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
            observed = [*stream_rules.described(seen), error.observed]
            raise CheckFailed(observed, "a stream that ends although a webhook has not answered yet") from None
