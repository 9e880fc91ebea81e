"""Which tasks an export takes, by id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import NamedTuple

from roost.engine.ports import Leaf, NewTask, Store, Tombstone
from roost.identity.tokens import seconds

PAGE = 200


class NothingFound(Exception):
    """The message says what there is not."""


class Selection(NamedTuple):
    """Tasks by name, or all that changed since a time or a checkpoint: whole ones in any case."""

    tasks: tuple[str, ...] = ()
    since_ms: int | None = None
    since_checkpoint: int | None = None
    agent: str = ""
    redact: bool = False


def parse_since(text: str, now_ms: int) -> tuple[int | None, int | None]:
    """(a time in milliseconds, None) or (None, the number of a checkpoint); ValueError if it is neither."""
    if text.isascii() and text.isdigit() and 0 < len(text) <= 15 and int(text):
        return None, int(text)
    if text.isascii() and text[:1].isdigit() and text[-1:] in "smhd":
        return now_ms - seconds(text) * 1000, None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text[:64]!r} is no time (2026-11-16T12:00:00Z), no age (7d) and no checkpoint (12)"
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000), None


async def picked(store: Store, selection: Selection) -> AsyncIterator[NewTask]:
    if selection.tasks:
        for task_id in sorted({*selection.tasks}):
            stored = await store.read_task(task_id)
            if stored is not None:
                yield stored.new
            elif await store.read_tombstone(task_id) is None:
                raise NothingFound(f"there is no task {task_id!r}, and no tombstone of one")
        return
    after = ""
    while some := await store.scan_tasks(after, PAGE):
        for new, last in some:
            if selection.agent and new.scope.agent != selection.agent:
                continue
            if selection.since_ms is not None and last.time < selection.since_ms * 1000:
                continue
            if await _was_there(store, selection, new.id, last.chain):
                continue
            yield new
        after = some[-1][0].id


async def pruned(store: Store, selection: Selection) -> AsyncIterator[Tombstone]:
    if selection.tasks:
        for task_id in sorted({*selection.tasks}):
            stone = await store.read_tombstone(task_id)
            if stone is not None:
                yield stone
        return
    after = ""
    while some := await store.scan_tombstones(after, PAGE):
        for stone in some:
            if selection.agent and stone.scope.agent != selection.agent:
                continue
            if selection.since_ms is not None and stone.pruned < selection.since_ms:
                continue
            if not await _was_there(store, selection, stone.task_id, stone.chain):
                yield stone
        after = some[-1].task_id


async def leaves_of(store: Store, task_id: str) -> list[tuple[int, Leaf]]:
    """By number."""
    found: list[tuple[int, Leaf]] = []
    number = 0
    while some := await store.walk_leaves((task_id, number), PAGE):
        found += [(at, leaf) for at, leaf in some if leaf.task_id == task_id]
        if some[-1][1].task_id != task_id:
            break
        number = some[-1][0]
    return found


async def _was_there(store: Store, selection: Selection, task_id: str, chain: bytes) -> bool:
    """The checkpoint, or one before it, has the task just like this."""
    if selection.since_checkpoint is None:
        return False
    leaves = await leaves_of(store, task_id)
    return any(number <= selection.since_checkpoint and leaf.chain == chain for number, leaf in leaves)
