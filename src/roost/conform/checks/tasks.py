"""GetTask."""

from __future__ import annotations

import re
import uuid

from roost.conform.case import Case, same, state, valid
from roost.conform.check import check
from roost.conform.outcome import CheckFailed, Skipped
from roost.protocol.errors import TaskNotFound
from roost.protocol.types import Task

UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@check("get.task", "GetTask returns the current task", "3.1.3", also="terminal_completed_shape")
async def task(x: Case) -> None:
    sent = await x.ended(x.hints.artifact)
    found = await x.ok("GetTask", {"id": sent["id"]})
    valid(Task, found, "a Task")
    for name in ("id", "contextId", "artifacts"):
        if (found.get(name) or None) != (sent.get(name) or None):
            raise CheckFailed({name: found.get(name)}, f"{name} as SendMessage returned it: {sent.get(name)}")
    if state(found) is not state(sent):
        raise CheckFailed(found, f"the state {state(sent)}, as SendMessage returned it")


@check("get.unknown", "GetTask for an unknown task returns TaskNotFound", "3.1.3")
async def unknown(x: Case) -> None:
    await x.refused("GetTask", {"id": str(uuid.uuid4())}, TaskNotFound)


@check("get.history", "historyLength limits the history that GetTask returns", "3.2.4")
async def history(x: Case) -> None:
    sent = await x.ended()
    for length in (0, 1):
        found = await x.ok("GetTask", {"id": sent["id"], "historyLength": length})
        if len(found.get("history") or []) > length:
            raise CheckFailed(found, f"at most {length} messages of history")


@check("get.history-kept", "historyLength does not change the stored history", "3.2.4")
async def history_kept(x: Case) -> None:
    """FastA2A truncates what it has stored."""
    sent = await x.send()
    before = (await x.get(sent["id"])).get("history") or []
    if not before:
        raise Skipped("the host returns no history")
    await x.ok("GetTask", {"id": sent["id"], "historyLength": 0})
    after = (await x.ok("GetTask", {"id": sent["id"]})).get("history") or []
    if len(after) != len(before):
        raise CheckFailed(after, f"{len(before)} messages of history, as before a read with historyLength 0")


@check("get.timestamp", "The timestamp of a status is in UTC", "5.6.1")
async def timestamp(x: Case) -> None:
    found = await x.send()
    when = found["status"].get("timestamp")
    if when is None:
        raise Skipped("the status has no timestamp")
    if not UTC.fullmatch(str(when)):
        raise CheckFailed(when, "YYYY-MM-DDTHH:mm:ss.sssZ")


@check("get.across", "A task is the same on every binding", "5.1", "two bindings")
async def across(x: Case) -> None:
    first, *others = x.target.clients
    if x.client is first:
        raise Skipped(f"compared with {first.name} on {', '.join(other.name for other in others)}")
    sent = await x.ended(x.hints.artifact)
    mine, theirs = await x.ok("GetTask", {"id": sent["id"]}), await x.get(sent["id"], first)
    if not same(mine, theirs):
        raise CheckFailed({x.client.name: mine, first.name: theirs}, "the same task")
