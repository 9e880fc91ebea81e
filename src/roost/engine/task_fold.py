"""The fold of a live task: the Task that its entries make, kept up to date, and when it is stored as a snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from roost.engine.store_types import Snapshot
from roost.engine.turn import OUTPUT
from roost.engine.views import split
from roost.protocol import entries as kinds
from roost.protocol.entries import NO_CHAIN, Entry, Received
from roost.protocol.fold import apply_artifact, apply_message, apply_part, apply_status
from roost.protocol.raw import raw_decoder, read_received
from roost.protocol.types import (
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

SNAPSHOT_FLOOR = 64 * 1024
"""Bytes of entries below which a running task is not stored as a snapshot."""

Event = TaskStatusUpdateEvent | TaskArtifactUpdateEvent | Received | Part | None
"""The change that an entry makes to the fold. A Part is appended to `output`."""

States = dict[int, TaskState]
"""The states that status updates bring, by their seq."""

_read_event = raw_decoder(StreamResponse)


class TaskFold:
    """A snapshot is due when the entries since the last one are larger than it, so that neither reading nor appending
    grows with the length of a task. Messages do not count: a snapshot holds them as they are in their entries."""

    tail_bytes = 0
    """The size of the entries since the last snapshot, without messages."""
    snapshot_size = SNAPSHOT_FLOOR
    size = 0
    """About the size of the task as JSON, and rather more: entries have more around the same content."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.version = NO_CHAIN
        """The chain of the last entry in it: it stands for all that led to the task."""

    @classmethod
    def restore(cls, task: Task, tail_bytes: int, snapshot: Snapshot | None, version: bytes) -> TaskFold:
        fold = cls(task)
        fold.version = version
        if snapshot is not None:
            fold._measure(snapshot)
        fold.tail_bytes = tail_bytes
        fold.size += tail_bytes
        return fold

    def apply(self, entries: Sequence[Entry], events: Sequence[Event], size: int) -> States:
        """Apply entries of this process, whose events it knows."""
        task, states = self.task, {}
        self.tail_bytes += size
        self.size += size
        if entries:
            self.version = entries[-1].chain
        for entry, event in zip(entries, events, strict=True):
            if type(event) is Part:
                apply_part(task, OUTPUT, event)
            elif type(event) is TaskArtifactUpdateEvent:
                apply_artifact(task, event)
            elif type(event) is TaskStatusUpdateEvent:
                apply_status(task, event)
                states[entry.seq] = event.status.state
            elif type(event) is Received:
                apply_message(task, event)
                self.tail_bytes -= len(entry.data)
        return states

    def apply_stored(self, entries: Sequence[Entry]) -> States:
        """Apply entries that another process has written."""
        states: States = {}
        if entries:
            self.version = entries[-1].chain
        for entry in entries:
            self.size += len(entry.data)
            if entry.kind == kinds.MESSAGE:
                apply_message(self.task, read_received(entry.data))
                continue
            self.tail_bytes += len(entry.data)
            if entry.sub == 0:
                event = _read_event(entry.data)
                if event.status_update is not None:
                    apply_status(self.task, event.status_update)
                    states[entry.seq] = event.status_update.status.state
                elif event.artifact_update is not None:
                    apply_artifact(self.task, event.artifact_update)
        return states

    @property
    def snapshot_due(self) -> bool:
        return self.tail_bytes > self.snapshot_size

    def snapshot(self, seq: int, sub: int) -> Snapshot:
        """Return the snapshot for an append that ends with this entry."""
        snapshot = Snapshot(seq, sub, *split(self.task))
        self.tail_bytes = 0
        self._measure(snapshot)
        return snapshot

    def _measure(self, snapshot: Snapshot) -> None:
        self.size = len(snapshot.body) + len(snapshot.artifacts)
        self.snapshot_size = max(SNAPSHOT_FLOOR, self.size)
