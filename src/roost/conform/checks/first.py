"""The first requests that a host gets."""

from __future__ import annotations

import asyncio

from roost.conform.case import Case
from roost.conform.check import ONCE, check
from roost.conform.client import limited, unauthenticated
from roost.conform.outcome import CheckFailed, Skipped

AT_ONCE = 8


@check(
    "first.concurrent",
    "The host answers its first requests when they arrive at the same time",
    "3.1.1, 3.4.2",
    on=ONCE,
)
async def concurrent(x: Case) -> None:
    """On some hosts the first request creates the tables of the store, and the others get 500."""
    sends = [x.client.call("SendMessage", {"message": x.hints.plain.message()}) for _ in range(AT_ONCE)]
    responses = await asyncio.gather(*sends)
    if any(limited(x.client, response) for response in responses):
        raise Skipped(f"the host does not accept {AT_ONCE} messages at the same time, and says so")
    if any(unauthenticated(x.client, response) for response in responses):
        raise Skipped("no --token was given, and the host requires one")
    rejected = [response.seen for response in responses if response.error is not None]
    if rejected:
        raise CheckFailed(rejected[0], f"all of {AT_ONCE} messages that are sent at the same time succeed")
    ids = [response.result["task"]["id"] for response in responses if response.result and "task" in response.result]
    if len(ids) != len(set(ids)):
        raise CheckFailed(ids, "each message creates a task of its own")
