"""Checkpoints in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable

from roost.engine.checkpoints import Checkpoint, CheckpointBusy, Leaf, Seal, Segment, is_due, leaf_of, leaf_of_tombstone
from roost.engine.store_types import NewTask, Tombstone
from roost.protocol.entries import Entry

ALL = 2**62
NO_LEAF = Leaf("", -1, -1, b"", b"")


class MemoryCheckpoints(ABC):
    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: list[Checkpoint] = []
        self.leaves: dict[tuple[str, int], Leaf] = {}
        self.latest: dict[str, Leaf] = {}
        self.making = False

    @abstractmethod
    async def read_entries(self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0) -> list[Entry]: ...

    @abstractmethod
    async def scan_tasks(self, after: str, limit: int) -> list[tuple[NewTask, Entry]]: ...

    @abstractmethod
    async def scan_tombstones(self, after: str, limit: int) -> list[Tombstone]: ...

    async def make_checkpoint(self, seal: Seal, unless_after: int | None = None) -> Checkpoint | None:
        if self.making:
            raise CheckpointBusy("another checkpoint is being made")
        last = self.checkpoints[-1] if self.checkpoints else None
        if not is_due(last, unless_after):
            return None
        self.making = True
        try:
            heads = [leaf_of(task, last) for task, last in await self.scan_tasks("", ALL)]
            moved = [leaf for leaf in heads if self._known(leaf)[:3] != leaf[:3]]
            pruned = [leaf_of_tombstone(tombstone) for tombstone in await self.scan_tombstones("", ALL)]
            moved += [leaf for leaf in pruned if self._known(leaf).chain != leaf.chain]
            moved.sort()
            made = await seal(last, _each(moved))
        finally:
            self.making = False
        self.checkpoints.append(made)
        self.latest.update({leaf.task_id: leaf for leaf in moved})
        self.leaves.update({(leaf.task_id, made.number): leaf for leaf in moved})
        return made

    def _known(self, leaf: Leaf) -> Leaf:
        return self.latest.get(leaf.task_id, NO_LEAF)

    async def read_checkpoints(self, after: int, limit: int) -> list[Checkpoint]:
        return [one for one in self.checkpoints if one.number > after][:limit]

    async def read_leaves(self, number: int, after: str, limit: int) -> list[Leaf]:
        found = (leaf for (_, of), leaf in self.leaves.items() if of == number and leaf.task_id > after)
        return sorted(found)[:limit]

    async def walk_leaves(self, after: tuple[str, int], limit: int) -> list[tuple[int, Leaf]]:
        return [(key[1], self.leaves[key]) for key in sorted(key for key in self.leaves if key > after)[:limit]]

    async def read_segments(self, task_id: str, after: tuple[int, int] | None, limit: int) -> list[Segment]:
        seq, sub = (-1, 0) if after is None else after
        entries = await self.read_entries(task_id, seq, limit, wire=False, sub=sub)
        return [Segment(entry.seq, entry.sub, True, [entry]) for entry in entries]


async def _each(leaves: Iterable[Leaf]) -> AsyncIterator[Leaf]:
    for leaf in leaves:
        yield leaf
