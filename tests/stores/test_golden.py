"""This release reads the journals of older ones: the same tasks, valid chains, the same order.

Recorded by serving agents with that release, the host killed in the middle of a task: record.py.
Never edit one, add another.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from roost.engine.journal import restore
from roost.engine.store_types import Append, Scope, Snapshot
from roost.engine.views import task_bytes
from roost.identity.ports import now_ms
from roost.protocol.entries import NO_CHAIN, STATUS, Entry, link
from roost.protocol.fold import fold, new_task
from roost.protocol.states import ACTIVE, PAUSED, TERMINAL
from roost.protocol.types import TaskState
from roost.stores.sqlite import SQLiteStore

from .samples import head, query

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.sql"))


@pytest.fixture(params=GOLDEN, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The expected content; the journal itself is in tmp_path."""
    with sqlite3.connect(tmp_path / "journal.db") as connection:
        connection.executescript(request.param.read_text())
    connection.close()
    found: dict[str, Any] = json.loads(request.param.with_suffix(".json").read_text())
    return found


def test_there_is_a_journal_of_an_older_release() -> None:
    assert GOLDEN


async def test_every_task_is_the_same_with_its_snapshot_and_without(recorded: dict[str, Any], tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    for task_id, expected in recorded["tasks"].items():
        found = await restore(store, task_id)
        assert found is not None
        assert json.loads(task_bytes(found.task)) == expected
        entries = await store.read_entries(task_id, -1, 100_000, wire=False)
        assert json.loads(task_bytes(fold(new_task(task_id, found.stored.new.context_id), entries))) == expected
    await store.close()


async def test_every_chain_verifies(recorded: dict[str, Any], tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    for task_id in recorded["tasks"]:
        chain = NO_CHAIN
        for entry in await store.read_entries(task_id, -1, 100_000, wire=False):
            chain = link(chain, *entry[:6])
            assert chain == entry.chain
        assert chain != NO_CHAIN
    await store.close()


async def test_a_listing_has_the_same_order(recorded: dict[str, Any], tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    for listing in recorded["listings"]:
        found = await store.list_tasks(query(scope=Scope(*listing["scope"])))
        assert [stored.new.id for stored in found.tasks] == listing["tasks"]
    await store.close()


async def test_the_task_that_was_interrupted_is_adopted_and_goes_on(recorded: dict[str, Any], tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    agents = [listing["scope"][2] for listing in recorded["listings"]]
    task_id = recorded["interrupted"]
    [adopted] = await store.adopt("me", agents, 100)
    assert adopted[:3] == (task_id, 2, False)
    last = (await store.read_entries(task_id, -1, 100_000, wire=False))[-1]
    more = Entry(last.seq + 1, 0, STATUS, b"{}", last.time, 0, NO_CHAIN)
    over = head(TaskState.FAILED, worker=None, fence=2)
    assert await store.commit([Append(task_id, 2, [more], None, over, Snapshot(more.seq, 0, b"{}", b"[]"))]) == [None]
    assert await store.adopt("me", agents, 100) == []
    await store.close()


async def test_its_agents_count_as_served_now_and_its_unfinished_tasks_are_found(
    recorded: dict[str, Any], tmp_path: Path
) -> None:
    store = SQLiteStore(tmp_path)
    before = now_ms()
    await store.note_served([])
    agents = await store.unserved(2**50)
    assert agents == sorted({listing["scope"][2] for listing in recorded["listings"]})
    assert await store.unserved(before) == []
    stored = [await store.read_task(task_id) for task_id in recorded["tasks"]]
    waiting = {found.new.id for found in stored if found is not None and found.head.state in PAUSED}
    unfinished = {task_id for agent in agents for task_id in await store.unfinished(agent, 100)}
    assert unfinished == waiting != set()
    await store.close()


async def test_its_tasks_that_are_over_can_be_pruned(recorded: dict[str, Any], tmp_path: Path) -> None:
    """The direct exchange can be pruned too, although no listing shows it."""
    store = SQLiteStore(tmp_path)
    over = [
        task_id
        for task_id in recorded["tasks"]
        if (stored := await store.read_task(task_id)) is not None and stored.head.state in TERMINAL
    ]
    listed = {task_id for listing in recorded["listings"] for task_id in listing["tasks"]}
    assert set(over) - listed
    agents = [listing["scope"][2] for listing in recorded["listings"]]
    before = {kept.name: kept for kept in await store.usage()}
    went = [usage for agent in agents for usage in await store.prune(agent, None, 0, 1000)]
    assert sum(usage.tasks for usage in went) == len(over)
    for agent, tasks, size in await store.usage():
        gone = [usage for usage in went if usage.agent == agent]
        assert tasks == before[agent].tasks - sum(usage.tasks for usage in gone) >= 0
        assert size == before[agent].size - sum(usage.size for usage in gone) >= 0
        assert (tasks == 0) == (size == 0)
    for task_id in recorded["tasks"]:
        stored = await store.read_task(task_id)
        assert (stored is None) == (task_id in over) == (await store.read_tombstone(task_id) is not None)
        assert stored is None or stored.head.state in ACTIVE | {TaskState.INPUT_REQUIRED}
    await store.close()
