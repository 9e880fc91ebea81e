"""The columns of PostgreSQL's rows, and their conversion from and to the values of the ports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from roost.engine.store_types import NewTask, Push, PushConfig, Scope, Snapshot, Stored, TaskHead, Withheld
from roost.protocol.entries import Entry
from roost.stores.sqlite_schema import STATE_OF

HEAD = "t.state, t.status_time, t.worker, t.fence, t.hidden"
TASK = f"t.id, c.tenant, c.owner, c.agent, t.context_id, t.created, {HEAD}"
"""Columns of tasks t and scopes c."""
PUSH = (
    "p.task_id, p.id, p.sealed, p.cursor, p.agent, p.created, p.holder, p.due, p.attempts, p.buried, p.paused, p.error"
)

encode_segment = msgspec.msgpack.Encoder().encode
decode_segment = msgspec.msgpack.Decoder(list[Entry]).decode


def head_of(row: Any) -> TaskHead:
    """Make a head from the columns of HEAD."""
    return TaskHead(STATE_OF[row[0]], row[1], row[2], row[3], row[4])


def stored_of(row: Any) -> Stored:
    """Make a task from the columns of TASK and (last_seq, last_sub, body, artifacts, size)."""
    task_id, tenant, owner, agent, context_id = (from_text(text) for text in row[:5])
    new = NewTask(task_id, Scope(tenant, owner, agent), context_id, row[5])
    seq, sub, body, artifacts, size = row[11:16]
    snapshot = None if body is None else Snapshot(seq, sub, body, artifacts or b"[]")
    withheld = Withheld(seq, sub, size) if body is None and size else None
    return Stored(new, head_of(row[6:11]), snapshot, withheld)


def push_of(row: Any) -> Push:
    """Make a push config from the columns of PUSH."""
    task_id, config_id, sealed, cursor, agent, created, holder, due, attempts, buried, paused, error = row
    config = PushConfig(from_text(task_id), from_text(config_id), sealed, cursor)
    return Push(config, from_text(agent), created, holder, due, attempts, buried, paused, from_text(error))


def entries_after(blobs: Iterable[bytes], after: tuple[int, int]) -> list[Entry]:
    return [entry for blob in blobs for entry in decode_segment(blob) if (entry.seq, entry.sub) > after]


def fitting(entries: list[Entry], most: int) -> list[Entry]:
    """Return the first of these entries that have `most` bytes together, at least one if there is one."""
    size = 0
    for index, entry in enumerate(entries):
        size += len(entry.data)
        if index and size > most:
            return entries[:index]
    return entries


def to_text(text: str) -> str:
    """Escape NUL, the only character that PostgreSQL does not accept. The order of texts stays the same."""
    if "\0" in text or "\1" in text:
        return text.replace("\1", "\1\2").replace("\0", "\1\1")
    return text


def from_text(text: str) -> str:
    if "\1" in text:
        return text.replace("\1\1", "\0").replace("\1\2", "\1")
    return text
