"""Proofs that tasks of a bundle are in checkpoints: the leaf, and the path from it to the checkpoint's root."""

from __future__ import annotations

from roost.engine.checkpoints import Leaf
from roost.engine.ports import AdminStore
from roost.evidence.checkpoint import leaf_line, leaves_in, leaves_of
from roost.evidence.merkle import MerkleTree
from roost.protocol.canonical import jcs

MAX_PROVEN = 1000
"""Tasks in a bundle with proofs. A larger bundle has none; its checkpoints serve an audit of the store."""


class LatestLeaves:
    """The last leaf of each task that is not beyond the bundle's entries, with the number of its checkpoint."""

    def __init__(self) -> None:
        self.leaves: dict[str, tuple[int, Leaf]] = {}

    async def look_up(self, store: AdminStore, task_id: str, last: tuple[int, int]) -> None:
        """`last` is the last entry in the bundle. A checkpoint that was made since may have a later one."""
        found = [(number, leaf) for number, leaf in await leaves_of(store, task_id) if (leaf.seq, leaf.sub) <= last]
        if found:
            self.leaves[task_id] = found[-1]

    def clear(self) -> None:
        self.leaves.clear()


async def proofs(store: AdminStore, latest: LatestLeaves) -> list[bytes]:
    """Return the lines of proofs.ndjson, sorted by task id."""
    found: dict[str, bytes] = {}
    for number in sorted({number for number, _ in latest.leaves.values()}):
        wanted = {task_id for task_id, (checkpoint, _) in latest.leaves.items() if checkpoint == number}
        indexes = await _leaf_indexes(store, number, wanted)
        tree = MerkleTree(indexes)
        async for leaf in leaves_in(store, number):
            tree.add(leaf_line(leaf))
        tree.root()
        for index, task_id in indexes.items():
            leaf = latest.leaves[task_id][1]
            found[task_id] = jcs(
                {
                    "chain": leaf.chain.hex(),
                    "checkpoint": number,
                    "count": tree.count,
                    "path": [digest.hex() for digest in tree.paths[index]],
                    "place": index,
                    "scope": leaf.scope.hex(),
                    "seq": leaf.seq,
                    "sub": leaf.sub,
                    "task": task_id,
                }
            )
    return [found[task_id] for task_id in sorted(found)]


async def _leaf_indexes(store: AdminStore, number: int, wanted: set[str]) -> dict[int, str]:
    indexes: dict[int, str] = {}
    index = 0
    async for leaf in leaves_in(store, number):
        if leaf.task_id in wanted:
            indexes[index] = leaf.task_id
        index += 1
    return indexes
