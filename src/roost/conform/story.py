"""What a stream of events tells: its form, its order, and the task that it amounts to."""

from __future__ import annotations

from typing import Any

from roost.conform.case import valid
from roost.conform.client import JSONObject, StreamEvent
from roost.conform.outcome import CheckFailed
from roost.protocol.fold import apply_artifact, apply_status
from roost.protocol.states import PAUSED, SETTLED, TERMINAL, may_follow
from roost.protocol.types import StreamResponse, Task, TaskState

KINDS = ("task", "message", "statusUpdate", "artifactUpdate")


def kind(event: StreamEvent) -> str:
    found = [name for name in KINDS if name in event.data]
    if len(found) != 1:
        raise CheckFailed(event.data, f"exactly one of {', '.join(KINDS)}")
    return found[0]


def told(events: list[StreamEvent]) -> list[str]:
    """One word for each event, for people."""
    return [f"{kind(one)} {_state(one) or ''}".strip() for one in events]


def check_order(events: list[StreamEvent]) -> None:
    """First the task, or one message and nothing else; then updates of that task."""
    if not events:
        raise CheckFailed("no events", "a stream that begins with a task or a message")
    first = kind(events[0])
    if first not in ("task", "message"):
        raise CheckFailed(told(events), "a stream that begins with a task or a message")
    if first == "message" and len(events) > 1:
        raise CheckFailed(told(events), "one message, and nothing after it")
    for event in events:
        valid(StreamResponse, event.data, "a StreamResponse")
    if first == "task":
        task = events[0].data["task"]
        for event in events[1:]:
            _belongs(event, task)


def _belongs(event: StreamEvent, task: JSONObject) -> None:
    name = kind(event)
    if name == "message":
        raise CheckFailed(event.data, "status and artifact updates after the task")
    one = event.data[name]
    mine = (one.get("id") if name == "task" else one.get("taskId"), one.get("contextId"))
    if mine != (task.get("id"), task.get("contextId")):
        raise CheckFailed(event.data, f"updates of the task {task.get('id')} in its context {task.get('contextId')}")


def check_states(events: list[StreamEvent]) -> None:
    """Nothing leaves a terminal state, and nothing goes back to SUBMITTED."""
    before: TaskState | None = None
    for event in events:
        now = _state(event)
        if now is None:
            continue
        again = kind(event) == "task" and now is before  # a last snapshot is allowed
        if before is not None and not again and not may_follow(before, now):
            raise CheckFailed(told(events), f"no {now} after {before}")
        before = now


def check_end(events: list[StreamEvent]) -> None:
    """The last that is heard of a task is that it has ended, or waits."""
    if kind(events[0]) == "message":
        return
    states = [found for found in map(_state, events) if found is not None]
    if states[-1] not in SETTLED:
        raise CheckFailed(told(events), "a last state that is terminal or interrupted, when the stream ends")
    last = max(index for index, event in enumerate(events) if _state(event) is not None)
    if states[-1] in TERMINAL and any(kind(event) == "artifactUpdate" for event in events[last + 1 :]):
        raise CheckFailed(told(events), "nothing after the terminal state")


def waits(events: list[StreamEvent]) -> bool:
    """Whether the last that is heard of the task is that it waits."""
    states = [found for found in map(_state, events) if found is not None]
    return bool(states) and states[-1] in PAUSED


def folded(events: list[StreamEvent]) -> Task:
    """The task that a client has who applied all events."""
    task = valid(Task, events[0].data.get("task"), "a Task")
    for event in events[1:]:
        found = valid(StreamResponse, event.data, "a StreamResponse")
        if found.task is not None:
            task = found.task
        elif found.status_update is not None:
            apply_status(task, found.status_update)
        elif found.artifact_update is not None:
            apply_artifact(task, found.artifact_update)
    return task


def content(artifacts: Any) -> dict[str, list[Any]]:
    """By id: adjoining texts are joined, because how they are cut is the host's matter. So are defaults."""
    found: dict[str, list[Any]] = {}
    for artifact in artifacts or []:
        parts = found.setdefault(artifact.get("artifactId", ""), [])
        for part in artifact.get("parts", []):
            if "text" in part and parts and isinstance(parts[-1], str):
                parts[-1] += part["text"]
            else:
                parts.append(part.get("text", {name: value for name, value in part.items() if value != ""}))
    return found


def _state(event: StreamEvent) -> TaskState | None:
    for name in ("task", "statusUpdate"):
        if name in event.data:
            try:
                return TaskState(event.data[name]["status"]["state"])
            except (KeyError, TypeError, ValueError):
                raise CheckFailed(event.data, f"a {name} with a status") from None
    return None
