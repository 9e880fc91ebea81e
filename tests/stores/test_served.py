"""The stores record which agents are served, and list the tasks that nobody finishes when one is not any more."""

from __future__ import annotations

import asyncio

import pytest

from roost.engine.ports import Store
from roost.engine.store_types import Scope
from roost.identity.ports import now_ms
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import TaskState
from tests.waiting import until

from .samples import SCOPE, WORKER, addition, creation, ended, entry, head

FUTURE_MS = 2**50
WORKING, INPUT_REQUIRED = TaskState.WORKING, TaskState.INPUT_REQUIRED


def scope_of(agent: str) -> Scope:
    return SCOPE._replace(agent=agent)


async def moment() -> int:
    """Return a time after everything that was recorded, and wait until it is over."""
    found = now_ms() + 2
    await until(lambda: now_ms() > found + 2)
    return found


async def test_agents_that_are_not_served_any_more_are_told_from_those_that_are(store: Store) -> None:
    before = now_ms() - 2
    await store.note_served(["b", "a", "c"])
    assert await store.unserved(before) == []
    between = await moment()
    assert await store.unserved(between) == ["a", "b", "c"]
    await store.note_served(["b", "d"])
    assert await store.unserved(between) == ["a", "c"]
    assert await store.unserved(FUTURE_MS) == ["a", "b", "c", "d"]


async def test_an_agent_with_tasks_that_nobody_served_yet_counts_as_served_from_the_first_look_on(store: Store) -> None:
    await store.commit([creation("t", scope=scope_of("old")), ended("u", scope=scope_of("older"), status_time=1)])
    assert [usage.tasks for usage in await store.prune("older", 100, None, 10)] == [1]
    before = now_ms() - 2
    assert await store.unserved(FUTURE_MS) == []
    await store.note_served(["new"])
    assert await store.unserved(before) == []
    between = await moment()
    await store.note_served(["new"])
    assert await store.unserved(between) == ["old", "older"]


async def test_an_agent_that_is_served_again_is_not_told_any_more(store: Store) -> None:
    await store.note_served(["a"])
    between = await moment()
    assert await store.unserved(between) == ["a"]
    await store.note_served(["a", "a"])
    await store.note_served([])
    assert await store.unserved(between) == []


async def test_hosts_that_serve_the_same_agents_are_all_heard(store: Store) -> None:
    names = [f"agent {number:02}" for number in range(30)]
    await store.commit([creation(name, scope=scope_of(name)) for name in names])
    await asyncio.gather(*(store.note_served(names[some:] + names[:some]) for some in range(0, 30, 5)))
    assert await store.unserved(FUTURE_MS) == names


@pytest.mark.parametrize("text", ["ä", "任务", "a b", "a\x00b", "a'b\"c;--", "%_", "x" * 4000])
async def test_agents_have_every_kind_of_name(store: Store, text: str) -> None:
    await store.commit([creation(text, scope=scope_of(text), worker=None), creation("other", worker=None)])
    await store.note_served([text])
    assert await store.unserved(FUTURE_MS) == sorted(["agent", text])
    assert await store.unfinished(text, 10) == [text]


async def test_unfinished_tasks_are_those_that_are_paused_and_those_that_nobody_runs(store: Store) -> None:
    if store.shared:
        assert await store.renew(WORKER, 600.0)
    others = [SCOPE._replace(owner="other"), SCOPE._replace(tenant="other")]
    await store.commit(
        [
            creation("4 submitted", worker=None),
            creation("3 working", state=WORKING, worker=None, scope=others[0]),
            creation("5 direct", state=WORKING, worker=None, hidden=True),
            *(creation(f"2 {state.value}", state=state, worker=None, scope=others[1]) for state in PAUSED),
            creation("1 hidden", state=INPUT_REQUIRED, worker=None, hidden=True),
            creation("runs", state=WORKING),
            creation("runs directly", hidden=True),
            *(ended(f"over {state.value}", state=state) for state in TERMINAL),
            ended("over directly", hidden=True),
            creation("another's", worker=None, scope=scope_of("another")),
            creation("another's question", state=INPUT_REQUIRED, worker=None, scope=scope_of("another")),
        ]
    )
    paused = sorted(f"2 {state.value}" for state in PAUSED)
    expected = ["1 hidden", *paused, "3 working", "4 submitted", "5 direct"]
    assert await store.unfinished("agent", 100) == expected
    assert await store.unfinished("agent", 3) == expected[:3]
    assert await store.unfinished("another", 100) == ["another's", "another's question"]
    assert await store.unfinished("nobody", 100) == []
    over = head(TaskState.CANCELED, worker=None)
    await store.commit([addition(name, entry(2), head=over) for name in expected])
    assert await store.unfinished("agent", 100) == []


async def test_a_task_is_unfinished_from_the_moment_when_its_worker_leaves(store: Store) -> None:
    if store.shared:
        assert await store.renew(WORKER, 600.0)
    await store.commit([creation("t")])
    assert await store.unfinished("agent", 10) == []
    await store.leave(WORKER)
    assert await store.unfinished("agent", 10) == ["t"]


async def test_a_task_of_a_dead_worker_is_unfinished_or_adopted(store: Store) -> None:
    """A store for one process does not know who is alive, so the host has to adopt such a task itself."""
    await store.commit([creation("t", worker="gone")])
    assert await store.unfinished("agent", 10) == (["t"] if store.shared else [])
    assert [task.task_id for task in await store.adopt("me", ["agent"], 10)] == ["t"]
