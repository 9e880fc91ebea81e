"""Writes hundreds of thousands of tasks into a journal, without a server and without an agent.

The engine makes the first task; the others are copies of it with ids, times and a hash chain of their own.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from roost.engine.ids import new_id, now_us, timestamp
from roost.engine.live import LiveTask
from roost.engine.store_types import Append, NewTask, Scope
from roost.protocol.entries import NO_CHAIN, Entry, Received, link
from roost.protocol.types import Artifact, Message, Part, Role, TaskArtifactUpdateEvent, TaskState
from roost.stores.sqlite import SQLiteStore

AGENT = "bench"
MESSAGE_ID = new_id()
"""The id of the first task's message; each copy replaces it with its own."""
GROUP = 10_000
SECOND = 1_000_000


class Owner(NamedTuple):
    tenant: str
    owner: str


class Filled(NamedTuple):
    id: str
    status_ms: int


def fill(
    folder: Path,
    count: int,
    state: TaskState,
    owner_of: Callable[[int], Owner],
    keep: Owner,
    say: Callable[[str], None],
) -> list[Filled]:
    """Write `count` tasks, a second apart, the last one now. Return those of `keep`, the oldest first."""
    kept: list[Filled] = []

    def appends() -> Iterator[Append]:
        start = now_us() - count * SECOND
        original = _original(start, state)
        for number in range(count):
            owner, now = owner_of(number), start + number * SECOND
            append = _copy(original, owner, now)
            if owner == keep:
                kept.append(Filled(append.task_id, now // 1000))
            yield append

    gc.disable()  # a group has no cycles, but a million objects that the collector would look through
    asyncio.run(_write(SQLiteStore(folder), appends(), say))
    gc.enable()
    return kept


async def _write(store: SQLiteStore, appends: Iterator[Append], say: Callable[[str], None]) -> None:
    """Make the next group while the writer's thread commits this one."""
    written = 0
    committing: asyncio.Task[object] | None = None
    while group := list(islice(appends, GROUP)):
        if committing is not None:
            await committing
        committing = asyncio.ensure_future(store.commit(group))
        await asyncio.sleep(0)
        written += len(group)
        if written % (10 * GROUP) == 0:
            say(f"    {written:,} tasks")
    if committing is not None:
        await committing
    await store.close()


def _original(now: int, state: TaskState) -> Append:
    new = NewTask(new_id(), Scope("", "", AGENT), new_id(), now)
    live = LiveTask.begin(new, "filler", lambda _: None, hidden=False, stamp=None, reserve=None, push=None, turn=False)
    message = Message(
        message_id=MESSAGE_ID, role=Role.USER, parts=[Part(text="1")], task_id=new.id, context_id=new.context_id
    )
    live.write_message(now, Received(message))
    live.write_status(now, TaskState.SUBMITTED)
    live.write_status(now, TaskState.WORKING)
    if state is TaskState.COMPLETED:
        artifact = Artifact(artifact_id="output", parts=[Part(text=str(now * 1000))])
        live.write_artifact(
            now, TaskArtifactUpdateEvent(task_id=new.id, context_id=new.context_id, artifact=artifact, append=False), 1
        )
    live.write_status(now, state)
    return live.take()


def _copy(original: Append, owner: Owner, now: int) -> Append:
    first, head, snapshot = original.create, original.head, original.snapshot
    assert first is not None
    assert head is not None
    assert snapshot is not None
    new = NewTask(new_id(), Scope(owner.tenant, owner.owner, AGENT), new_id(), now)
    changes = [
        (first.id.encode(), new.id.encode()),
        (first.context_id.encode(), new.context_id.encode()),
        (MESSAGE_ID.encode(), new_id().encode()),
        (timestamp(first.created).encode(), timestamp(now).encode()),
    ]

    def own(data: bytes) -> bytes:
        for old, its in changes:
            data = data.replace(old, its)
        return data

    chain = NO_CHAIN
    entries = []
    for seq, sub, kind, old, _, ordinal, _ in original.entries:
        data = own(old)
        chain = link(chain, seq, sub, kind, data, now, ordinal)
        entries.append(Entry(seq, sub, kind, data, now, ordinal, chain))
    return Append(
        new.id,
        original.fence,
        entries,
        create=new,
        head=head._replace(status_time=now // 1000),
        snapshot=snapshot._replace(body=own(snapshot.body)),
    )
