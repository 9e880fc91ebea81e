"""Tasks and appends to put into a store."""

from __future__ import annotations

from typing import Any

from roost.engine.ports import Append, Head, ListQuery, NewTask, Scope, Snapshot
from roost.protocol.entries import ARTIFACT, MESSAGE, NO_CHAIN, STATUS, Entry, link
from roost.protocol.types import TaskState

SCOPE = Scope("tenant", "owner", "agent")
WORKER = "worker-1"


def entry(seq: int, sub: int = 0, data: bytes | None = None, kind: str | None = None) -> Entry:
    data = b'{"at":"%d.%d"}' % (seq, sub) if data is None else data
    kind = kind or (MESSAGE if sub else STATUS if seq == 1 else ARTIFACT)
    time, ordinal = 1_700_000_000_000_000 + seq, seq
    return Entry(seq, sub, kind, data, time, ordinal, link(NO_CHAIN, seq, sub, kind, data, time, ordinal))


def head(state: TaskState = TaskState.SUBMITTED, **changes: Any) -> Head:
    return Head(state, 1000, WORKER, 1, False)._replace(**changes)


def creation(task_id: str, *entries: Entry, **changes: Any) -> Append:
    """The first append of a task; `changes` are fields of its NewTask and Head."""
    new = NewTask(task_id, changes.pop("scope", SCOPE), changes.pop("context_id", "context"), changes.pop("created", 1))
    snapshot = changes.pop("snapshot", None)
    found = head(changes.pop("state", TaskState.SUBMITTED), **changes)
    return Append(task_id, found.fence, list(entries or (entry(0, 1), entry(1))), new, found, snapshot)


def addition(task_id: str, *entries: Entry, fence: int = 1, **changes: Any) -> Append:
    return Append(task_id, fence, list(entries), None, changes.get("head"), changes.get("snapshot"))


def snapshot(task_id: str, seq: int = 1, sub: int = 0, artifacts: bytes = b"[]") -> Snapshot:
    return Snapshot(seq, sub, b'{"id":"%b"}' % task_id.encode(), artifacts)


def query(**changes: Any) -> ListQuery:
    return ListQuery(SCOPE, "", TaskState.UNSPECIFIED, None, None, 100, False)._replace(**changes)
