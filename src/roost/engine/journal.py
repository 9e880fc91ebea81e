"""Reads tasks from the journal: as they are now, or as they were at an entry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from roost.engine.ports import JournalReader
from roost.engine.store_types import NewTask, Stored
from roost.protocol.codec import decoder
from roost.protocol.entries import NO_CHAIN, Entry
from roost.protocol.fold import fold, new_task
from roost.protocol.raw import raw, read_folded
from roost.protocol.types import Artifact, Task

PAGE = 1000
_read_artifacts: Callable[[bytes], list[Artifact]] = decoder(list[raw(Artifact)])  # type: ignore[misc, arg-type]  # made at run time
ANY_SUB = 2**62
"""Greater than the sub of every internal entry."""


class Restored(NamedTuple):
    """A task read from its snapshot and the entries since."""

    stored: Stored
    task: Task
    last: Entry
    tail_bytes: int
    """The size of the entries since the snapshot."""


async def restore(journal: JournalReader, task_id: str) -> Restored | None:
    stored = await journal.read_task(task_id)
    if stored is None:
        return None
    snapshot = stored.snapshot
    task, position = new_task(task_id, stored.new.context_id), (-1, 0)
    last = Entry(0, 0, "", b"", 0, 0, NO_CHAIN)
    if snapshot is not None:
        task = read_folded(snapshot.body)
        task.artifacts = _read_artifacts(snapshot.artifacts)
        position = (snapshot.seq, snapshot.sub)
        last = await _entry_at(journal, task_id, position)
    tail = 0
    async for page in pages(journal, task_id, position):
        fold(task, page)
        tail += sum(len(entry.data) for entry in page)
        last = page[-1]
    return Restored(stored, task, last, tail)


async def as_of(journal: JournalReader, new: NewTask, last: int) -> Task:
    """Return the task as it was at wire entry `last`."""
    task = new_task(new.id, new.context_id)
    async for page in pages(journal, new.id):
        fold(task, [entry for entry in page if (entry.seq, entry.sub) <= (last, 0)])
        if page[-1].seq > last:
            break
    return task


async def pages(journal: JournalReader, task_id: str, after: tuple[int, int] = (-1, 0)) -> AsyncIterator[list[Entry]]:
    """Yield all entries after a position, in pages."""
    while page := await journal.read_entries(task_id, after[0], PAGE, wire=False, sub=after[1]):
        yield page
        after = (page[-1].seq, page[-1].sub)


async def _entry_at(journal: JournalReader, task_id: str, position: tuple[int, int]) -> Entry:
    seq, sub = position
    before = (seq, sub - 1) if sub else (seq - 1, ANY_SUB)
    [entry] = await journal.read_entries(task_id, before[0], 1, wire=False, sub=before[1])
    return entry
