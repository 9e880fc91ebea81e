"""The very first requests that a host gets."""

from __future__ import annotations

import asyncio

from roost.conform.case import Case
from roost.conform.check import ONCE, check
from roost.conform.client import limited, unauthenticated
from roost.conform.outcome import CheckFailed, Skipped

AT_ONCE = 8


@check("first.concurrent", "The first requests may come at the same time", "3.1.1, 3.4.2", on=ONCE)
async def concurrent(x: Case) -> None:
    """Seen: the first of them made the tables of the store, and the others got 500."""
    sends = [x.client.call("SendMessage", {"message": x.hints.plain.message()}) for _ in range(AT_ONCE)]
    answers = await asyncio.gather(*sends)
    if any(limited(x.client, answer) for answer in answers):
        raise Skipped(f"the host takes fewer than {AT_ONCE} messages at the same time, and says so")
    if any(unauthenticated(x.client, answer) for answer in answers):
        raise Skipped("no --token was given, and the host asks for one")
    refused = [answer.seen for answer in answers if answer.problem is not None]
    if refused:
        raise CheckFailed(refused[0], f"{AT_ONCE} messages that are sent at the same time are all answered")
    ids = [answer.result["task"]["id"] for answer in answers if answer.result and "task" in answer.result]
    if len(ids) != len(set(ids)):
        raise CheckFailed(ids, "each message makes a task of its own")
