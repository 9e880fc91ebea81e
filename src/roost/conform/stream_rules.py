"""The rules for the events of a stream: their form, their order, and the task that they add up to."""

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


def described(events: list[StreamEvent]) -> list[str]:
    """Describe each event in a word or two, for a report."""
    return [f"{kind(one)} {_state(one) or ''}".strip() for one in events]


def check_order(events: list[StreamEvent]) -> None:
    """A stream consists of one message, or of a task and then updates of that task."""
    if not events:
        raise CheckFailed("no events", "a stream that begins with a task or a message")
    first = kind(events[0])
    if first not in ("task", "message"):
        raise CheckFailed(described(events), "a stream that begins with a task or a message")
    if first == "message" and len(events) > 1:
        raise CheckFailed(described(events), "one message, and nothing after it")
    for event in events:
        valid(StreamResponse, event.data, "a StreamResponse")
    if first == "task":
        task = events[0].data["task"]
        for event in events[1:]:
            _check_task(event, task)


def _check_task(event: StreamEvent, task: JSONObject) -> None:
    """An event after the first is an update of the same task."""
    name = kind(event)
    if name == "message":
        raise CheckFailed(event.data, "status and artifact updates after the task")
    one = event.data[name]
    mine = (one.get("id") if name == "task" else one.get("taskId"), one.get("contextId"))
    if mine != (task.get("id"), task.get("contextId")):
        raise CheckFailed(event.data, f"updates of the task {task.get('id')} in its context {task.get('contextId')}")


def check_states(events: list[StreamEvent]) -> None:
    """No state follows a terminal one, and SUBMITTED follows none."""
    before: TaskState | None = None
    for event in events:
        now = _state(event)
        if now is None:
            continue
        again = kind(event) == "task" and now is before  # a last snapshot is allowed
        if before is not None and not again and not may_follow(before, now):
            raise CheckFailed(described(events), f"no {now} after {before}")
        before = now


def check_end(events: list[StreamEvent]) -> None:
    """The last state in a stream is terminal or interrupted, and no artifact follows a terminal one."""
    if kind(events[0]) == "message":
        return
    states = [found for found in map(_state, events) if found is not None]
    if states[-1] not in SETTLED:
        raise CheckFailed(described(events), "a last state that is terminal or interrupted, when the stream ends")
    last = max(index for index, event in enumerate(events) if _state(event) is not None)
    if states[-1] in TERMINAL and any(kind(event) == "artifactUpdate" for event in events[last + 1 :]):
        raise CheckFailed(described(events), "nothing after the terminal state")


def is_interrupted(events: list[StreamEvent]) -> bool:
    """Return whether the task waits for something, by its last state in the stream."""
    states = [found for found in map(_state, events) if found is not None]
    return bool(states) and states[-1] in PAUSED


def folded(events: list[StreamEvent]) -> Task:
    """Apply all events, and return the task that a client has then."""
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
    """Return the parts of each artifact by its id, in a form that can be compared.

    Texts that follow each other are joined, and empty strings are left out: how a host cuts a text into parts, and
    whether it writes defaults, is its own choice.
    """
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
