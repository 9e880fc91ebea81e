"""Proofs that tasks of a bundle are in checkpoints: the leaf, and the path from it to the checkpoint's root."""

from __future__ import annotations

from roost.engine.ports import AdminStore, Leaf
from roost.evidence.checkpoint import leaf_line, leaves_in
from roost.evidence.checkpoint_tree import Tree
from roost.evidence.export_selection import leaves_of
from roost.protocol.canonical import jcs

MOST_PROVEN = 1000
"""Tasks; a bundle of more has no proofs, and the checkpoints are for an audit of the store."""


class LatestLeaves:
    """The last leaf of each task that is about what the bundle has, with the number of its checkpoint."""

    def __init__(self) -> None:
        self.leaves: dict[str, tuple[int, Leaf]] = {}

    async def look_up(self, store: AdminStore, task_id: str, last: tuple[int, int]) -> None:
        """`last` is the last entry in the bundle: a checkpoint that was made since may have a later one."""
        found = [(number, leaf) for number, leaf in await leaves_of(store, task_id) if (leaf.seq, leaf.sub) <= last]
        if found:
            self.leaves[task_id] = found[-1]

    def clear(self) -> None:
        self.leaves.clear()


async def proofs(store: AdminStore, held: LatestLeaves) -> list[bytes]:
    """Lines by task id."""
    found: dict[str, bytes] = {}
    for number in sorted({number for number, _ in held.leaves.values()}):
        wanted = {task_id for task_id, (of, _) in held.leaves.items() if of == number}
        places = await _places(store, number, wanted)
        tree = Tree(places)
        async for leaf in leaves_in(store, number):
            tree.add(leaf_line(leaf))
        tree.root()
        for place, task_id in places.items():
            leaf = held.leaves[task_id][1]
            found[task_id] = jcs(
                {
                    "chain": leaf.chain.hex(),
                    "checkpoint": number,
                    "count": tree.count,
                    "path": [digest.hex() for digest in tree.paths[place]],
                    "place": place,
                    "scope": leaf.scope.hex(),
                    "seq": leaf.seq,
                    "sub": leaf.sub,
                    "task": task_id,
                }
            )
    return [found[task_id] for task_id in sorted(found)]


async def _places(store: AdminStore, number: int, wanted: set[str]) -> dict[int, str]:
    places: dict[int, str] = {}
    place = 0
    async for leaf in leaves_in(store, number):
        if leaf.task_id in wanted:
            places[place] = leaf.task_id
        place += 1
    return places
