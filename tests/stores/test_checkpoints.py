"""Checkpoints in every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from roost.engine.checkpoints import PRUNED, Checkpoint, CheckpointBusy, Leaf, leaf_of, scope_digest
from roost.engine.ports import Store
from roost.engine.store_types import NewTask

from .conftest import Open
from .samples import SCOPE, addition, creation, ended, entry


def leaf(task_id: str, seq: int, sub: int = 0) -> Leaf:
    return Leaf(task_id, seq, sub, entry(seq).chain, scope_digest(SCOPE))


class Maker:
    """Seals a checkpoint, and records its arguments."""

    def __init__(self, time: int = 1000) -> None:
        self.time = time
        self.last: Checkpoint | None = None
        self.leaves: list[Leaf] = []

    async def __call__(self, last: Checkpoint | None, leaves: AsyncIterator[Leaf]) -> Checkpoint:
        self.last = last
        self.leaves = [one async for one in leaves]
        return Checkpoint(1 if last is None else last.number + 1, self.time, b"statement at %d" % self.time)


async def made(store: Store, time: int = 1000) -> list[Leaf]:
    """Make a checkpoint and return its leaves."""
    maker = Maker(time)
    assert await store.make_checkpoint(maker) is not None
    return maker.leaves


async def test_the_first_has_every_task_and_the_next_what_is_new(store: Store) -> None:
    assert await made(store) == []
    await store.commit([creation("b"), creation("a", hidden=True), ended("c")])
    assert await made(store, 2000) == [leaf("a", 1), leaf("b", 1), leaf("c", 1)]
    assert await made(store, 3000) == []
    await store.commit([addition("b", entry(2)), creation("d")])
    assert await made(store, 4000) == [leaf("b", 2), leaf("d", 1)]
    statements = [Checkpoint(n, n * 1000, b"statement at %d" % (n * 1000)) for n in range(1, 5)]
    assert await store.read_checkpoints(0, 10) == statements
    assert await store.read_checkpoints(2, 1) == statements[2:3]
    assert await store.read_leaves(2, "", 2) == [leaf("a", 1), leaf("b", 1)]
    assert await store.read_leaves(2, "b", 2) == [leaf("c", 1)]
    walked = [(2, leaf("a", 1)), (2, leaf("b", 1)), (4, leaf("b", 2)), (2, leaf("c", 1)), (4, leaf("d", 1))]
    assert await store.walk_leaves(("", 0), 10) == walked
    assert await store.walk_leaves(("b", 2), 2) == walked[2:4]


async def test_an_internal_entry_is_a_new_head(store: Store) -> None:
    await store.commit([creation("t")])
    await made(store)
    await store.commit([addition("t", entry(1, 1))])
    assert await made(store) == [Leaf("t", 1, 1, entry(1, 1).chain, scope_digest(SCOPE))]


async def test_a_task_that_was_pruned_is_in_it_if_its_end_was_not(store: Store) -> None:
    await store.commit([ended("known"), creation("went on")])
    await made(store)
    await store.commit([addition("went on", entry(2), head=ended("went on").head), ended("new")])
    assert sum(usage.tasks for usage in await store.prune("agent", 10**13, None, 10)) == 3
    assert await made(store) == [leaf("new", 1, PRUNED), leaf("went on", 2, PRUNED)]
    assert await made(store) == []
    assert [tombstone.task_id for tombstone in await store.scan_tombstones("", 10)] == ["known", "new", "went on"]
    assert [tombstone.task_id for tombstone in await store.scan_tombstones("known", 1)] == ["new"]


async def test_tasks_are_scanned_with_their_last_entry(store: Store) -> None:
    await store.commit([creation(name, created=7, context_id="c") for name in ("b", "a\0", "c")])
    await store.commit([addition("b", entry(2), entry(2, 1))])
    found = await store.scan_tasks("", 2)
    assert found == [(NewTask("a\0", SCOPE, "c", 7), entry(1)), (NewTask("b", SCOPE, "c", 7), entry(2, 1))]
    assert leaf_of(*found[0]) == leaf("a\0", 1)
    assert [new.id for new, _ in await store.scan_tasks("b", 2)] == ["c"]
    assert await store.scan_tasks("c", 2) == []


async def test_one_that_is_not_due_is_not_made(store: Store) -> None:
    assert await store.make_checkpoint(Maker(1000), 500) is not None
    assert await store.make_checkpoint(Maker(2000), 999) is None
    assert await store.make_checkpoint(Maker(2000), 1000) is not None
    assert [one.time for one in await store.read_checkpoints(0, 10)] == [1000, 2000]


async def test_one_of_the_future_does_not_keep_others_from_being_made(store: Store) -> None:
    assert await store.make_checkpoint(Maker(2**50), 500) is not None
    assert await store.make_checkpoint(Maker(2000), 1500) is not None
    assert await store.make_checkpoint(Maker(2000), 1500) is None


async def test_all_that_is_stored_of_a_task_is_read_with_its_place(store: Store) -> None:
    await store.commit([creation("t"), creation("u")])
    await store.commit([addition("t", entry(2), entry(2, 1))])
    await store.commit([addition("t", entry(3))])
    found = []
    after: tuple[int, int] | None = None
    while some := await store.read_segments("t", after, 1):
        found += some
        after = some[-1][:2]
    read = [one for segment in found for one in segment.entries]
    assert read == await store.read_entries("t", -1, 10, wire=False)
    assert read[-3:] == [entry(2), entry(2, 1), entry(3)]
    assert all(segment.fits for segment in found)
    assert all(segment[:2] == segment.entries[-1][:2] for segment in found)
    assert await store.read_segments("t", None, 10) == found
    assert await store.read_segments("none", None, 10) == []


async def test_one_that_cannot_be_sealed_leaves_nothing(store: Store) -> None:
    await store.commit([creation("t")])

    async def fail(last: Checkpoint | None, leaves: AsyncIterator[Leaf]) -> Checkpoint:
        assert [one async for one in leaves] == [leaf("t", 1)]
        raise ValueError("no key")

    with pytest.raises(ValueError, match="no key"):
        await store.make_checkpoint(fail)
    assert await store.read_checkpoints(0, 10) == []
    assert await store.walk_leaves(("", 0), 10) == []
    assert await made(store) == [leaf("t", 1)]


async def test_what_is_committed_meanwhile_is_in_the_next(store: Store) -> None:
    await store.commit([creation("t")])
    late: list[Leaf] = []

    async def seal(last: Checkpoint | None, leaves: AsyncIterator[Leaf]) -> Checkpoint:
        await store.commit([addition("t", entry(2)), creation("u")])
        late.extend([one async for one in leaves])
        return Checkpoint(1, 1, b"")

    await store.make_checkpoint(seal)
    assert late == [leaf("t", 1)]
    assert await made(store) == [leaf("t", 2), leaf("u", 1)]


async def test_only_one_is_made_at_a_time(store: Store) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(last: Checkpoint | None, leaves: AsyncIterator[Leaf]) -> Checkpoint:
        begun.set()
        await go_on.wait()
        return Checkpoint(1, 1, b"slow")

    first = asyncio.create_task(store.make_checkpoint(slow))
    await begun.wait()
    with pytest.raises(CheckpointBusy):
        await store.make_checkpoint(Maker())
    go_on.set()
    await first
    assert [one.statement for one in await store.read_checkpoints(0, 10)] == [b"slow"]


async def test_of_two_hosts_one_makes_it(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    await stores[0].commit([creation(f"t{number}") for number in range(50)])

    async def attempt(store: Store) -> int:
        try:
            return int(await store.make_checkpoint(Maker(1000), 999) is not None)
        except CheckpointBusy:
            return 0

    assert sum(await asyncio.gather(*(attempt(store) for store in stores * 3))) == 1
    assert len(await stores[1].read_leaves(1, "", 100)) == 50
