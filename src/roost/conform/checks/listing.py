"""ListTasks: filters, order and paging."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from roost.conform.case import Case, state, valid
from roost.conform.check import HTTP, check
from roost.conform.outcome import CheckFailed, Skipped
from roost.protocol.types import ListTasksResponse

TASKS = 3
MAX_PAGES = 10


async def context(x: Case) -> tuple[str, list[str]]:
    """Return a context and its tasks. All checks on this binding share it."""
    key = f"listed {x.client.name}"
    if key not in x.target.memo:
        first = await x.send(x.hints.artifact, contextId=str(uuid.uuid4()))
        more = [await x.send(x.hints.artifact, contextId=first["contextId"]) for _ in range(TASKS - 1)]
        if {task["contextId"] for task in more} != {first["contextId"]}:
            raise Skipped("the host does not keep several tasks in one context")
        x.target.memo[key] = first["contextId"], [first["id"], *(task["id"] for task in more)]
    found: tuple[str, list[str]] = x.target.memo[key]
    return found


def ids(page: dict[str, Any]) -> list[str]:
    return [task.get("id", "") for task in page.get("tasks", [])]


@check("list.shape", "ListTasks returns tasks, nextPageToken, pageSize and totalSize", "3.1.4", on=HTTP)
async def shape(x: Case) -> None:
    where, made = await context(x)
    page = await x.ok("ListTasks", {"contextId": where})
    valid(ListTasksResponse, page, "a ListTasksResponse")
    absent = [name for name in ("tasks", "nextPageToken", "pageSize", "totalSize") if name not in page]
    if absent:
        raise CheckFailed(page, f"{', '.join(absent)}, which must always be present")
    if page["totalSize"] != len(made):
        raise CheckFailed(page, f"totalSize {len(made)}")


@check("list.context", "ListTasks by contextId returns exactly the tasks of that context", "3.1.4")
async def by_context(x: Case) -> None:
    where, made = await context(x)
    page = await x.ok("ListTasks", {"contextId": where})
    if sorted(ids(page)) != sorted(made):
        raise CheckFailed(page, f"the tasks {', '.join(sorted(made))}")


@check("list.status", "ListTasks by status returns only tasks in that state", "3.1.4")
async def by_status(x: Case) -> None:
    where, made = await context(x)
    now = state(await x.get(made[0]))
    page = await x.ok("ListTasks", {"contextId": where, "status": str(now)})
    if made[0] not in ids(page) or any(state(task) is not now for task in page["tasks"]):
        raise CheckFailed(page, f"the tasks in the state {now}")
    other = await x.ok("ListTasks", {"contextId": where, "status": "TASK_STATE_AUTH_REQUIRED"})
    if other.get("tasks"):
        raise CheckFailed(other, "no tasks: none is in the state TASK_STATE_AUTH_REQUIRED")


@check("list.order", "ListTasks returns the most recently updated task first", "3.1.4")
async def order(x: Case) -> None:
    where, _ = await context(x)
    page = await x.ok("ListTasks", {"contextId": where})
    times = [task["status"].get("timestamp", "") for task in page.get("tasks", [])]
    if not all(times):
        raise Skipped("not every status has a timestamp")
    if times != sorted(times, key=_moment, reverse=True):
        raise CheckFailed(times, "timestamps in descending order")


def _moment(timestamp: object) -> datetime:
    try:
        return datetime.fromisoformat(str(timestamp)).astimezone(UTC)
    except ValueError:
        raise CheckFailed(timestamp, "a timestamp of the form YYYY-MM-DDTHH:mm:ss.sssZ") from None


@check("list.paging", "Paging returns every task once, and ends", "3.1.4")
async def paging(x: Case) -> None:
    where, made = await context(x)
    seen: list[str] = []
    token = ""
    for _ in range(MAX_PAGES):
        asked = {"contextId": where, "pageSize": 1, **({"pageToken": token} if token else {})}
        page = await x.ok("ListTasks", asked)
        if len(ids(page)) > 1:
            raise CheckFailed(page, "at most pageSize tasks on a page")
        seen += ids(page)
        token = page.get("nextPageToken") or ""
        if not token:
            break
    else:
        raise CheckFailed(f"a nextPageToken after {MAX_PAGES} pages", f"the last page after {len(made)} tasks")
    if sorted(seen) != sorted(made):
        raise CheckFailed(seen, f"each of {', '.join(made)}, once")


@check("list.artifacts", "ListTasks returns artifacts only if they are requested", "3.1.4")
async def artifacts(x: Case) -> None:
    where, made = await context(x)
    plain = await x.ok("ListTasks", {"contextId": where})
    if any("artifacts" in task for task in plain.get("tasks", [])):
        raise CheckFailed(plain, "tasks without the field artifacts")
    if not (await x.get(made[0])).get("artifacts"):
        return
    whole = await x.ok("ListTasks", {"contextId": where, "includeArtifacts": True})
    if not all(task.get("artifacts") for task in whole.get("tasks", [])):
        raise CheckFailed(whole, "tasks with their artifacts")


@check("list.bad-token", "ListTasks rejects an invalid pageToken", "3.3.2")
async def bad_token(x: Case) -> None:
    response = await x.call("ListTasks", {"pageToken": "not-a-token-of-this-host"})
    if response.error is None or response.error.code in (500, -32603, "INTERNAL", "UNKNOWN"):
        raise CheckFailed(response.seen, "an error that blames the client, not the host")
