"""The fold: a Task is computed from its entries."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from roost.protocol import entries as kinds
from roost.protocol.entries import Entry, Received
from roost.protocol.raw import raw_decoder, read_received
from roost.protocol.states import PAUSED
from roost.protocol.types import (
    Artifact,
    Message,
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

_read_event = raw_decoder(StreamResponse)


def new_task(task_id: str, context_id: str) -> Task:
    """Return the task before its first entry."""
    return Task(id=task_id, context_id=context_id, status=TaskStatus(state=TaskState.UNSPECIFIED))


def fold(task: Task, entries: Iterable[Entry]) -> Task:
    """Apply stored entries to a task, in place."""
    for entry in entries:
        if entry.kind in (kinds.STATUS, kinds.ARTIFACT):
            event = _read_event(entry.data)
            if event.status_update is not None:
                apply_status(task, event.status_update)
            elif event.artifact_update is not None:
                apply_artifact(task, event.artifact_update)
        elif entry.kind == kinds.MESSAGE:
            apply_message(task, read_received(entry.data))
    return task


def apply_status(task: Task, event: TaskStatusUpdateEvent) -> None:
    _keep_question(task)
    task.status = event.status
    if event.metadata:
        task.metadata = {**(task.metadata or {}), **event.metadata}


def apply_artifact(task: Task, event: TaskArtifactUpdateEvent) -> None:
    update = event.artifact
    for index, artifact in enumerate(task.artifacts):
        if artifact.artifact_id == update.artifact_id:
            if event.append is True:
                _extend(artifact, update)
            else:
                task.artifacts[index] = _own(update)
            return
    task.artifacts.append(_own(update))


def apply_part(task: Task, artifact_id: str, part: Part) -> None:
    """Append one part to an artifact that exists, as an artifact event with `append` would."""
    for artifact in task.artifacts:
        if artifact.artifact_id == artifact_id:
            artifact.parts.append(part)
            return


def apply_message(task: Task, received: Received) -> None:
    _keep_question(task)
    task.history.append(received.message)
    if received.metadata:
        task.metadata = {**(task.metadata or {}), **received.metadata}


def _own(artifact: Artifact) -> Artifact:
    """Return a copy whose list of parts can grow without changing the event."""
    return replace(artifact, parts=list(artifact.parts))


def _extend(artifact: Artifact, update: Artifact) -> None:
    artifact.parts.extend(update.parts)
    if update.name:
        artifact.name = update.name
    if update.description:
        artifact.description = update.description
    if update.metadata:
        artifact.metadata = {**(artifact.metadata or {}), **update.metadata}
    if update.extensions:
        artifact.extensions = [*artifact.extensions, *(e for e in update.extensions if e not in artifact.extensions)]


def _keep_question(task: Task) -> None:
    """Move the question that a task paused on into the history when the task continues.

    The progress messages of a working task stay out: they would add a line for every step.
    """
    question: Message | None = task.status.message
    if question is not None and task.status.state in PAUSED:
        task.history.append(question)
        task.status = replace(task.status, message=None)
