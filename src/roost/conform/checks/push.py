"""Push notification configs: what is set, read, listed and deleted."""

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
"""Link-local: where clouds keep the credentials of a machine. No operator wants webhooks there."""


async def webhook(x: Case) -> str:
    """A URL that the host takes."""
    if "webhook" not in x.target.learned:
        task = await x.send()
        x.target.learned["webhook"] = await x.call(CREATE, {"taskId": task["id"], "url": WEBHOOK})
    answer: ConformResponse = x.target.learned["webhook"]
    check_taken(x, answer, f"the host does not take {WEBHOOK} as a webhook")
    return WEBHOOK


def check_taken(x: Case, answer: ConformResponse, reason: str) -> None:
    """A host may choose the webhooks that it calls, and says that it is the client's fault."""
    if x.says(answer, InvalidParams, Forbidden):
        raise Skipped(reason)
    if answer.problem is not None:
        raise CheckFailed(answer.seen, "a config for push is taken, or its webhook is refused as INVALID_PARAMS")


@check("push.create", "A config gets an id, and can be read", "3.1.7, 3.1.8", PUSH)
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


@check("push.list", "The configs of a task are listed", "3.1.9", PUSH)
async def listed(x: Case) -> None:
    url = await webhook(x)
    task = await x.send()
    made = await x.prepared(CREATE, {"taskId": task["id"], "url": url})
    found = await x.ok(LIST, {"taskId": task["id"]})
    valid(ListTaskPushNotificationConfigsResponse, found, "a ListTaskPushNotificationConfigsResponse")
    if [one.get("id") for one in found.get("configs", [])] != [made.get("id")]:
        raise CheckFailed(found, f"the config {made.get('id')}")


@check("push.delete", "A deleted config is gone, and may be deleted again", "3.1.10", PUSH)
async def delete(x: Case) -> None:
    url = await webhook(x)
    task = await x.send()
    made = await x.prepared(CREATE, {"taskId": task["id"], "url": url})
    one = {"taskId": task["id"], "id": made.get("id")}
    await x.ok(DELETE, one)
    await x.refused(GET, one, TaskNotFound)
    await x.ok(DELETE, one)


@check("push.unknown", "A config of a task that there is not is TaskNotFound", "3.1.7", PUSH)
async def unknown(x: Case) -> None:
    await x.refused(CREATE, {"taskId": str(uuid.uuid4()), "url": await webhook(x)}, TaskNotFound)


@check(
    "push.addresses", "A webhook at an address where only secrets are is refused", "13.2", PUSH, on=ONCE, level=SHOULD
)
async def addresses(x: Case) -> None:
    """a2a-python #786 and others: it is not enough to look at the URL's text."""
    task = await x.send()
    for url in FORBIDDEN:
        answer = await x.call(CREATE, {"taskId": task["id"], "url": url})
        if answer.problem is None:
            raise CheckFailed(answer.seen, f"{url} is refused: it is link-local")


@check("push.undeclared", "Push that is not declared is PushNotificationNotSupported", "3.3.4", f"no {PUSH}")
async def undeclared(x: Case) -> None:
    task = await x.send()
    await x.refused(CREATE, {"taskId": task["id"], "url": WEBHOOK}, PushNotificationNotSupported)
    await x.refused(LIST, {"taskId": task["id"]}, PushNotificationNotSupported)
    for operation in (GET, DELETE):
        await x.refused(operation, {"taskId": task["id"], "id": "none"}, PushNotificationNotSupported)
