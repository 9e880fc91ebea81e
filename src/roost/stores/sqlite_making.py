"""How a checkpoint gets into the SQLite file: found on a reader, written in small steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

from roost.engine.checkpoint_leaves import is_due
from roost.engine.ports import Checkpoint, Leaf, NewTask, Seal, Segment, Tombstone
from roost.protocol.entries import Entry
from roost.stores import sqlite_checkpoints as checkpoints
from roost.stores.sqlite_checkpoints import AT_ONCE, Page
from roost.stores.sqlite_process import ProcessCarrier
from roost.stores.sqlite_reader import Readers
from roost.stores.sqlite_thread import ThreadCarrier


class MadeCheckpoints:
    folder: Path
    carrier: ThreadCarrier | ProcessCarrier
    readers: Readers

    async def make_checkpoint(self, seal: Seal, unless_after: int | None = None) -> Checkpoint | None:
        with checkpoints.only_maker(self.folder):
            last = await self.readers.do(checkpoints.last_checkpoint)
            if not is_due(last, unless_after):
                return None
            number = 1 if last is None else last.number + 1
            while await self.carrier.do("drop_drafts", number, AT_ONCE):
                pass
            for find in (checkpoints.moved_tasks, checkpoints.moved_tombstones):
                await self._draft(number, find)
            made = await seal(last, self._leaves(number))
            await self.carrier.do("add_checkpoint", made)
            return made

    async def _draft(self, number: int, find: Callable[..., Page]) -> None:
        after: str | None = ""
        while after is not None:
            found, after = await self.readers.do(find, after)
            for start in range(0, len(found), AT_ONCE):
                await self.carrier.do("draft_leaves", number, found[start : start + AT_ONCE])

    async def _leaves(self, number: int) -> AsyncIterator[Leaf]:
        after = ""
        while some := await self.read_leaves(number, after, AT_ONCE):
            for leaf in some:
                yield leaf
            after = some[-1].task_id

    async def read_checkpoints(self, after: int, limit: int) -> list[Checkpoint]:
        return await self.readers.do(checkpoints.read_checkpoints, after, limit)

    async def read_leaves(self, number: int, after: str, limit: int) -> list[Leaf]:
        return await self.readers.do(checkpoints.read_leaves, number, after, limit)

    async def walk_leaves(self, after: tuple[str, int], limit: int) -> list[tuple[int, Leaf]]:
        return await self.readers.do(checkpoints.walk_leaves, after, limit)

    async def scan_tasks(self, after: str, limit: int) -> list[tuple[NewTask, Entry]]:
        return await self.readers.do(checkpoints.scan_tasks, after, limit)

    async def scan_tombstones(self, after: str, limit: int) -> list[Tombstone]:
        return await self.readers.do(checkpoints.scan_tombstones, after, limit)

    async def read_segments(self, task_id: str, after: tuple[int, int] | None, limit: int) -> list[Segment]:
        return await self.readers.do(checkpoints.read_segments, task_id, after, limit)
