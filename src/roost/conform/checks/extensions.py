"""Extensions: required ones, unknown ones, and idempotency."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from roost.conform.case import Case
from roost.conform.check import ONCE, SHOULD, check
from roost.conform.client import EXTENSIONS
from roost.conform.needs import EXTENSION, IDEMPOTENCY
from roost.conform.outcome import CheckFailed, Skipped
from roost.protocol.errors import ExtensionSupportRequired, IdempotencyKeyReused

ASKED = {EXTENSIONS: IDEMPOTENCY}
AT_ONCE = 4


@check("ext.unknown", "An unknown extension is ignored", "4.6.3", level=SHOULD)
async def unknown(x: Case) -> None:
    await x.ok("SendMessage", {"message": x.hints.plain.message()}, {EXTENSIONS: "urn:example:unknown"})


@check(
    "ext.required",
    "A request that does not name a required extension returns ExtensionSupportRequired",
    "3.3.4",
    also="required_extension_enforced_or_skipped",
)
async def required(x: Case) -> None:
    enforced = [
        uri
        for uri, one in x.target.extensions().items()
        if one.get("required") is True and (one.get("params") or {}).get("enforcement") != "declared"
    ]
    if not enforced:
        raise Skipped("the card requires no extension")
    headers = {EXTENSIONS: None}
    await x.refused("SendMessage", {"message": x.hints.plain.message()}, ExtensionSupportRequired, headers=headers)


@check(
    "idempotency.replay",
    "A message that is sent again creates no second task",
    IDEMPOTENCY,
    EXTENSION + IDEMPOTENCY,
)
async def replay(x: Case) -> None:
    params = {"message": _keyed(x)}
    first = await x.ok("SendMessage", params, ASKED)
    again = await x.ok("SendMessage", params, ASKED)
    if first.get("task", {}).get("id") != again.get("task", {}).get("id"):
        raise CheckFailed({"first": first, "again": again}, "the same task")


@check(
    "idempotency.reused",
    "A messageId that is used for a different message is rejected",
    IDEMPOTENCY,
    EXTENSION + IDEMPOTENCY,
)
async def reused(x: Case) -> None:
    message = _keyed(x)
    await x.ok("SendMessage", {"message": message}, ASKED)
    other = {"message": {**message, "parts": [{"text": "something else"}]}}
    await x.refused("SendMessage", other, IdempotencyKeyReused, headers=ASKED)


@check(
    "idempotency.race",
    "A message that is sent several times at once creates one task",
    IDEMPOTENCY,
    EXTENSION + IDEMPOTENCY,
    on=ONCE,
)
async def race(x: Case) -> None:
    params = {"message": _keyed(x)}
    results = await asyncio.gather(*(x.ok("SendMessage", params, ASKED) for _ in range(AT_ONCE)))
    ids = {result.get("task", {}).get("id") for result in results}
    if len(ids) != 1:
        raise CheckFailed(sorted(map(str, ids)), "one task")


def _keyed(x: Case) -> dict[str, Any]:
    """A plain message whose id is a UUID, as idempotency/v1 demands."""
    return {**x.hints.plain.message(), "messageId": str(uuid.uuid4())}
