"""`roost tasks` lists tasks, and `roost cancel` cancels one."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, NamedTuple

import typer

from roost.cli.client import HostClient, agent_of
from roost.cli.options import DEFAULT_URL, Json, OfAgent, Tenant, Token, Url
from roost.cli.output import json_line, note, table, text_of, word
from roost.protocol.codec import encode
from roost.protocol.types import Task, TaskState

PAGE = 100
STATES = {word(state): state for state in TaskState if state is not TaskState.UNSPECIFIED}


class TaskRow(NamedTuple):
    agent: str
    task: Task


def _state(text: str) -> TaskState:
    name = text.lower().removeprefix("task_state_").replace("_", "-")
    if name not in STATES:
        raise typer.BadParameter(f"{text!r} is not a state; the states are {', '.join(STATES)}")
    return STATES[name]


def tasks(
    agent: Annotated[str, typer.Argument(metavar="AGENT", show_default=False, help="Only tasks of this agent.")] = "",
    state: Annotated[
        TaskState | None, typer.Option(parser=_state, metavar="STATE", help=f"One of {', '.join(STATES)}.")
    ] = None,
    context: Annotated[
        str, typer.Option(metavar="ID", show_default=False, help="Only tasks of this conversation.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="The most tasks to show.")] = 50,
    url: Url = DEFAULT_URL,
    token: Token = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """List tasks, the most recently changed first."""
    client = HostClient(url, token, tenant)
    agents = [agent] if agent else [listed.name for listed in client.agents()]
    query = {"pageSize": str(min(limit + 1, PAGE))}
    if state is not None:
        query["status"] = state.value
    if context:
        query["contextId"] = context
    if not as_json:
        query["historyLength"] = "1"
    newest_first = heapq.merge(*(_of(client, name, query) for name in agents), key=_changed, reverse=True)
    found = list(islice(newest_first, limit + 1))
    shown = found[:limit]
    if as_json:
        json_line(encode({"tasks": [{"agent": item.agent, "task": item.task} for item in shown]}))
    elif shown:
        table(("TASK", "AGENT", "STATE", "AGE", "MESSAGE"), [_row(item) for item in shown], cut=True)
    else:
        note("there are no tasks")
    if len(found) > limit:
        note(f"there are more: --limit {limit * 2}")


def cancel(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")],
    agent: OfAgent = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Cancel a task."""
    client = HostClient(url, token, tenant)
    body = client.cancel(agent or agent_of(client, task), task)
    canceled = client.parsed(Task, body)
    if as_json:
        json_line(body)
    elif canceled.status.state is TaskState.CANCELED:
        print(f"task {task} is canceled")
    else:
        print(f"task {task} was asked to stop; it is still {word(canceled.status.state)}")


def _of(client: HostClient, agent: str, query: dict[str, str]) -> Iterator[TaskRow]:
    return (TaskRow(agent, task) for task in client.tasks(agent, query))


def _changed(found: TaskRow) -> str:
    return found.task.status.timestamp or ""


def _row(found: TaskRow) -> tuple[str, ...]:
    task = found.task
    said = text_of(task.history[-1].parts) if task.history else ""
    return task.id, found.agent, word(task.status.state), _age(task.status.timestamp), said


def _age(timestamp: str | None) -> str:
    if not timestamp:
        return ""
    seconds = max(0, int((datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
