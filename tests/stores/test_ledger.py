"""The ledger of reservations when replies are lost, callers are cancelled, and hosts restart."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from roost.engine.store_types import Append, OutcomeUnknown, Refusal, Reserved, StaleFence, StoreUnavailable, Taken
from roost.protocol.types import TaskState
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_process import WriterProcess

from .samples import addition, answer, config, creation, entry, reservation

M = reservation("m")


@pytest.fixture(params=["in a thread", "in a process"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path, WriterProcess) if request.param == "in a process" else SQLiteStore(tmp_path)
    yield made
    await made.close()


class FaultyWriter:
    """Stands between the ledger and the writer: it refuses groups, or loses the replies to them."""

    def __init__(self, store: SQLiteStore) -> None:
        self.writer = store.writer
        self.do = store.writer.do
        self.close = store.writer.close
        self.lost_replies = 0
        self.refusals = 0
        self.refuse_after: list[str] = []
        """The tasks of a group after which the next one is refused."""
        self.groups: list[list[str]] = []
        store.ledger.writer = self

    async def commit(self, group: Sequence[Append], reserve_ids: Sequence[int | None]) -> list[int]:
        if self.refusals or (self.refuse_after and self.groups[-1] == self.refuse_after):
            self.refusals = max(0, self.refusals - 1)
            self.refuse_after = []
            raise StoreUnavailable("the disk is full")
        stale = await self.writer.commit(group, reserve_ids)
        self.groups.append([append.task_id for append in group])
        if self.lost_replies:
            self.lost_replies -= 1
            raise OutcomeUnknown("gone")
        return stale


def holders(results: Sequence[Refusal | None]) -> list[str | None]:
    return [result.reserved.task_id if isinstance(result, Taken) else None for result in results]


async def test_a_group_whose_answer_was_lost_is_tried_again_with_success(store: SQLiteStore) -> None:
    writer = FaultyWriter(store)
    await store.commit([creation("paused", state=TaskState.INPUT_REQUIRED, worker=None, push=config("paused"))])
    group = [
        *(creation(f"{n}", reserve=reservation(f"{n}"), push=config(f"{n}")) for n in range(5)),
        answer("paused", entry(1, 1), entry(2), reserve=M),
    ]
    writer.lost_replies = 2
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await store.commit(group)
    assert await store.commit(group) == [None] * 6
    assert await store.drop_reservations(0) == 6
    assert len(await store.list_pushes(failing=False, limit=100)) == 6


async def test_a_key_whose_outcome_is_not_known_is_settled_before_another_has_it(store: SQLiteStore) -> None:
    writer = FaultyWriter(store)
    writer.lost_replies = 1
    with pytest.raises(OutcomeUnknown):
        await store.commit([creation("first", reserve=M)])
    assert holders(await store.commit([creation("second", reserve=M)])) == ["first"]
    assert await store.commit([creation("first", reserve=M)]) == [None]


async def test_a_key_whose_outcome_is_not_known_is_settled_before_it_is_read(store: SQLiteStore) -> None:
    writer = FaultyWriter(store)
    writer.lost_replies = 1
    with pytest.raises(OutcomeUnknown):
        await store.commit([creation("first", reserve=M)])
    assert await store.read_reserved(M.key) == Reserved("first", 1, M.fingerprint)


async def test_a_key_in_a_group_that_was_not_committed_is_free(store: SQLiteStore) -> None:
    writer = FaultyWriter(store)
    writer.refusals = 1
    with pytest.raises(StoreUnavailable):
        await store.commit([creation("first", reserve=M)])
    assert await store.read_reserved(M.key) is None
    assert await store.commit([creation("second", reserve=M)]) == [None]
    assert holders(await store.commit([creation("first", reserve=M)])) == ["second"]


async def test_who_waits_for_a_key_has_it_when_the_one_before_was_refused(store: SQLiteStore) -> None:
    """The later appends of its task wait too."""
    writer = FaultyWriter(store)
    await store.commit([creation("old"), creation("next")])
    group = [
        addition("old", entry(2), fence=9, reserve=M),
        addition("next", entry(2), reserve=M),
        creation("other"),
        addition("next", entry(3)),
        creation("last", reserve=M),
    ]
    results = await store.commit(group)
    assert [type(result) for result in results] == [StaleFence, type(None), type(None), type(None), Taken]
    assert holders(results)[-1] == "next"
    assert writer.groups[1:] == [["old", "other"], ["next", "next"]]
    assert [found.seq for found in await store.read_entries("next", -1, 10, wire=False)] == [0, 1, 2, 3]


async def test_a_group_of_which_a_part_is_committed_when_the_store_fails_has_to_be_tried_again(
    store: SQLiteStore,
) -> None:
    writer = FaultyWriter(store)
    await store.commit([creation("old")])
    group = [addition("old", entry(2), fence=9, reserve=M), creation("other"), creation("next", reserve=M)]
    writer.refuse_after = ["old", "other"]
    with pytest.raises(OutcomeUnknown, match="disk is full"):
        await store.commit(group)
    results = await store.commit(group)
    assert [type(result) for result in results] == [StaleFence, type(None), type(None)]
    assert await store.read_task("other") is not None
    assert await store.read_reserved(M.key) == Reserved("next", 1, M.fingerprint)


async def test_a_group_goes_on_when_its_caller_is_gone(store: SQLiteStore) -> None:
    await store.commit([creation("before")])
    first = asyncio.get_running_loop().create_task(store.commit([creation("first", reserve=M)]))
    while not store.ledger.in_flight:
        await asyncio.sleep(0)
    second = asyncio.get_running_loop().create_task(store.commit([creation("second", reserve=M)]))
    first.cancel()
    assert holders(await second) == ["first"]
    assert await store.read_task("second") is None


async def test_a_writer_that_is_killed_takes_no_key_along(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path, WriterProcess)
    await store.commit([creation("before", reserve=reservation("b"))])
    assert isinstance(store.writer, WriterProcess)
    assert store.writer.process is not None
    os.kill(store.writer.process.pid, signal.SIGSTOP)
    group = [creation("t", reserve=M), creation("other", reserve=reservation("b"))]
    going = asyncio.get_running_loop().create_task(store.commit(group))
    while not store.ledger.in_flight:
        await asyncio.sleep(0)
    os.kill(store.writer.process.pid, signal.SIGKILL)
    with pytest.raises(OutcomeUnknown):
        await going
    assert await store.read_reserved(M.key) is None
    assert holders(await store.commit(group)) == [None, "before"]
    await store.close()


async def test_reservations_are_known_after_a_restart(store: SQLiteStore, tmp_path: Path) -> None:
    first = SQLiteStore(tmp_path / "data")
    await first.commit([creation(f"{n}", reserve=reservation(f"{n}", ttl_s=60 * (n % 2))) for n in range(6)])
    await first.commit([creation("again", reserve=reservation("0"))])
    await first.commit([creation("short", reserve=reservation("short", ttl_s=0))])
    await first.close()
    second = SQLiteStore(tmp_path / "data")
    repeats = [creation(f"new {n}", reserve=reservation(f"{n}")) for n in range(6)]
    assert holders(await second.commit(repeats)) == ["again", "1", None, "3", None, "5"]
    assert await second.read_reserved(reservation("short").key) is None
    assert await second.drop_reservations(100) == 1
    await second.close()
    third = SQLiteStore(tmp_path / "data")
    assert holders(await third.commit([creation("late", reserve=reservation("2"))])) == ["new 2"]
    assert await third.drop_reservations(0) == 6
    assert await third.commit([creation("late", reserve=reservation("2"))]) == [None]
    await third.close()
