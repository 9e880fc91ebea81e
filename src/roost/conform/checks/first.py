"""The very first requests that a host gets."""

from __future__ import annotations

import asyncio

from roost.conform.case import Case
from roost.conform.check import ONCE, check
from roost.conform.outcome import Failed

AT_ONCE = 8


@check("first.concurrent", "The first requests may come at the same time", "3.3.2", on=ONCE)
async def concurrent(x: Case) -> None:
    """Seen: the first of them made the tables of the store, and the others got 500."""
    sends = [x.call("SendMessage", {"message": x.hints.plain.message()}) for _ in range(AT_ONCE)]
    answers = await asyncio.gather(*sends)
    refused = [answer.seen for answer in answers if answer.problem is not None]
    if refused:
        raise Failed(refused[0], f"{AT_ONCE} messages that are sent at the same time are all answered")
    ids = [answer.result["task"]["id"] for answer in answers if answer.result and "task" in answer.result]
    if len(ids) != len(set(ids)):
        raise Failed(ids, "each message makes a task of its own")
