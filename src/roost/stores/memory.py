"""A journal that ends with the process: for tests and `roost serve --memory`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from roost.engine.ports import (
    COUNT_CAP,
    Append,
    Head,
    Listed,
    ListQuery,
    NewTask,
    Snapshot,
    StaleFence,
    Stored,
)
from roost.protocol.entries import Entry
from roost.protocol.states import ACTIVE
from roost.protocol.types import TaskState


class _Row:
    def __init__(self, new: NewTask, head: Head) -> None:
        self.new = new
        self.head = head
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []


class MemoryStore:
    name = "memory"
    location = "memory (nothing is kept)"

    def __init__(self) -> None:
        self.rows: dict[str, _Row] = {}

    async def commit(self, group: Sequence[Append]) -> list[StaleFence | None]:
        return [self._append(append) for append in group]

    def _append(self, append: Append) -> StaleFence | None:
        row = self.rows.get(append.task_id)
        if append.create is not None and append.head is not None and row is None:
            row = self.rows[append.task_id] = _Row(append.create, append.head)
        elif row is None or row.head.fence != append.fence:
            return StaleFence(append.task_id)
        last = row.entries[-1][:2] if row.entries else (-1, 0)
        row.entries.extend(entry for entry in append.entries if entry[:2] > last)
        if append.head is not None:
            row.head = append.head
        if append.snapshot is not None:
            row.snapshot = append.snapshot
        return None

    async def read_task(self, task_id: str) -> Stored | None:
        row = self.rows.get(task_id)
        return None if row is None else _stored(row)

    async def read_entries(self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0) -> list[Entry]:
        row = self.rows.get(task_id)
        if row is None:
            return []
        start = bisect_right(row.entries, (after, sub), key=lambda entry: (entry.seq, entry.sub))
        found: list[Entry] = []
        for entry in row.entries[start:]:
            if len(found) == limit:
                break
            if not wire or entry.sub == 0:
                found.append(entry)
        return found

    async def read_internal(self, task_id: str) -> list[Entry]:
        row = self.rows.get(task_id)
        return [] if row is None else [entry for entry in row.entries if entry.sub]

    async def list_tasks(self, query: ListQuery) -> Listed:
        after_ms = -1 if query.after is None else query.after.timestamp() * 1000
        rows = [
            row
            for row in self.rows.values()
            if row.new.scope == query.scope
            and not row.head.hidden
            and (not query.context_id or row.new.context_id == query.context_id)
            and (query.state is TaskState.UNSPECIFIED or row.head.state is query.state)
            and row.head.status_time >= after_ms
        ]
        rows.sort(key=lambda row: (-row.head.status_time, row.new.id))
        total = min(len(rows), COUNT_CAP)
        if query.cursor is not None:
            status_time, task_id = query.cursor
            rows = [row for row in rows if (-row.head.status_time, row.new.id) > (-status_time, task_id)]
        return Listed([_stored(row, query.artifacts) for row in rows[: query.limit]], total)

    async def claim(self, task_id: str, worker: str, fence: int) -> int | None:
        row = self.rows.get(task_id)
        if row is None or row.head.fence != fence:
            return None
        row.head = row.head._replace(worker=worker, fence=fence + 1)
        return fence + 1

    async def orphans(self, worker: str, agents: Sequence[str], limit: int) -> list[str]:
        found = [
            row
            for row in self.rows.values()
            if row.head.state in ACTIVE and row.head.worker != worker and row.new.scope.agent in agents
        ]
        found.sort(key=lambda row: (row.new.created, row.new.id))
        return [row.new.id for row in found[:limit]]

    async def probe(self) -> None:
        return None

    async def close(self) -> None:
        self.rows.clear()


def _stored(row: _Row, artifacts: bool = True) -> Stored:
    snapshot = row.snapshot
    if snapshot is not None and not artifacts:
        snapshot = snapshot._replace(artifacts=b"[]")
    return Stored(row.new, row.head, snapshot)
