"""The next payloads of a webhook: the entries after its cursor, or the Task that they led to."""

from __future__ import annotations

from typing import NamedTuple

from roost.engine import journal as reading
from roost.engine.ports import Journal
from roost.engine.views import task_bytes
from roost.protocol import entries as kinds
from roost.protocol.entries import Entry
from roost.protocol.raw import raw_decoder
from roost.protocol.states import SETTLED
from roost.protocol.types import StreamResponse


class PushPayload(NamedTuple):
    seq: int
    """The seq of the last entry in it."""
    body: bytes
    settled: bool
    """The task ended or paused with that entry."""


async def entries_after(journal: Journal, task_id: str, cursor: int, limit: int) -> list[PushPayload]:
    entries = await journal.read_entries(task_id, cursor, limit, wire=True)
    return [PushPayload(entry.seq, entry.data, _settles(entry)) for entry in entries]


async def task_after(journal: Journal, task_id: str, cursor: int) -> list[PushPayload]:
    """Return the Task, if anything came after the cursor."""
    found = await reading.restore(journal, task_id)
    if found is None or found.last.seq <= cursor:
        return []
    task = found.task
    return [PushPayload(found.last.seq, b'{"task":%b}' % task_bytes(task), task.status.state in SETTLED)]


def _settles(entry: Entry) -> bool:
    if entry.kind != kinds.STATUS:
        return False
    event = raw_decoder(StreamResponse)(entry.data).status_update
    return event is not None and event.status.state in SETTLED
