"""Push notification configs: creating, reading, listing and deleting them."""

from __future__ import annotations

import uuid

from roost.conform.case import Case, valid
from roost.conform.check import ONCE, SHOULD, check
from roost.conform.client import ConformResponse
from roost.conform.outcome import CheckFailed, Skipped
from roost.protocol.errors import Forbidden, InvalidParams, PushNotificationNotSupported, TaskNotFound
from roost.protocol.types import ListTaskPushNotificationConfigsResponse, TaskPushNotificationConfig

WEBHOOK = "https://example.com/roost-conform"
PUSH = "pushNotifications"
CREATE, GET = "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"
LIST, DELETE = "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"

FORBIDDEN = (
    "http://169.254.169.254/latest/meta-data",
    "http://[::ffff:169.254.169.254]/latest/meta-data",
    "http://0xa9fea9fe/latest/meta-data",
)
"""Link-local addresses, at which clouds serve the credentials of a machine. No operator wants webhooks there."""


async def webhook(x: Case) -> str:
    """Return a URL that the host accepts as a webhook. Skipped if it does not."""
    if "webhook" not in x.target.memo:
        task = await x.send()
        x.target.memo["webhook"] = await x.call(CREATE, {"taskId": task["id"], "url": WEBHOOK})
    response: ConformResponse = x.target.memo["webhook"]
    check_accepted(x, response, f"the host does not accept {WEBHOOK} as a webhook")
    return WEBHOOK


def check_accepted(x: Case, response: ConformResponse, reason: str) -> None:
    """A host may choose which webhooks it calls. It rejects others with an error that blames the client."""
    if x.is_error(response, InvalidParams, Forbidden):
        raise Skipped(reason)
    if response.error is not None:
        raise CheckFailed(response.seen, "a config is accepted, or its webhook is rejected with INVALID_PARAMS")


@check("push.create", "A push notification config gets an id and can be read", "3.1.7, 3.1.8", PUSH)
async def create(x: Case) -> None:
    url = await webhook(x)
    task = await x.send()
    made = await x.ok(CREATE, {"taskId": task["id"], "url": url, "token": "conform"})
    config = valid(TaskPushNotificationConfig, made, "a TaskPushNotificationConfig")
    if not config.id or config.url != url:
        raise CheckFailed(made, f"an id, and the url {url}")
    found = await x.ok(GET, {"taskId": task["id"], "id": config.id})
    if (found.get("id"), found.get("url")) != (config.id, url):
        raise CheckFailed(found, f"the config {config.id} with its url")


@check("push.list", "The push notification configs of a task can be listed", "3.1.9", PUSH)
async def listed(x: Case) -> None:
    url = await webhook(x)
    task = await x.send()
    made = await x.prepared(CREATE, {"taskId": task["id"], "url": url})
    found = await x.ok(LIST, {"taskId": task["id"]})
    valid(ListTaskPushNotificationConfigsResponse, found, "a ListTaskPushNotificationConfigsResponse")
    if [one.get("id") for one in found.get("configs", [])] != [made.get("id")]:
        raise CheckFailed(found, f"the config {made.get('id')}")


@check("push.delete", "A deleted config is gone, and deleting it again succeeds", "3.1.10", PUSH)
async def delete(x: Case) -> None:
    url = await webhook(x)
    task = await x.send()
    made = await x.prepared(CREATE, {"taskId": task["id"], "url": url})
    one = {"taskId": task["id"], "id": made.get("id")}
    await x.ok(DELETE, one)
    await x.refused(GET, one, TaskNotFound)
    await x.ok(DELETE, one)


@check("push.unknown", "A config for an unknown task returns TaskNotFound", "3.1.7", PUSH)
async def unknown(x: Case) -> None:
    await x.refused(CREATE, {"taskId": str(uuid.uuid4()), "url": await webhook(x)}, TaskNotFound)


@check("push.addresses", "A webhook at a link-local address is rejected", "13.2", PUSH, on=ONCE, level=SHOULD)
async def addresses(x: Case) -> None:
    """It is not enough to look at the text of the URL: see a2a-python #786."""
    task = await x.send()
    for url in FORBIDDEN:
        response = await x.call(CREATE, {"taskId": task["id"], "url": url})
        if response.error is None:
            raise CheckFailed(response.seen, f"{url} is rejected, because it is link-local")


@check(
    "push.undeclared",
    "Push operations return PushNotificationNotSupported if the card does not declare them",
    "3.3.4",
    f"no {PUSH}",
)
async def undeclared(x: Case) -> None:
    task = await x.send()
    await x.refused(CREATE, {"taskId": task["id"], "url": WEBHOOK}, PushNotificationNotSupported)
    await x.refused(LIST, {"taskId": task["id"]}, PushNotificationNotSupported)
    for operation in (GET, DELETE):
        await x.refused(operation, {"taskId": task["id"], "id": "none"}, PushNotificationNotSupported)
