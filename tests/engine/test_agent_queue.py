"""The queue of one agent: places, turns and fairness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost import Agent
from roost.engine.agent_queue import AgentQueue
from roost.engine.store_types import NewTask, Scope
from roost.protocol.errors import TooManyRequests


class FakeRun:
    """The part of a Run that a queue looks at."""

    hosted: Any = None
    """The agent that the run was accepted with: that of its queue."""

    def __init__(self, name: str, context: str, owner: str = "owner") -> None:
        self.name = name
        self.live: Any = SimpleNamespace(new=NewTask(name, Scope("tenant", owner, "agent"), context, 0))

    def __repr__(self) -> str:
        return self.name


def queue_for(started: list[Any], **options: Any) -> AgentQueue:
    agent = Agent("agent", **options)
    agent.on_message(lambda task: None)
    return AgentQueue(agent.hosted(), lambda queue, run: started.append(run))


def submitted(queue: AgentQueue, *runs: FakeRun) -> None:
    for run in runs:
        run.hosted = queue.hosted
        queue.submit(run)


def reserve(queue: AgentQueue, run: FakeRun) -> bool | None:
    """Whether the message will have to wait; None if it is refused."""
    try:
        return queue.reserve(run.live.new)
    except TooManyRequests:
        return None


def test_places_are_given_in_the_order_of_acceptance():
    started: list[Any] = []
    queue = queue_for(started, concurrency=2)
    runs = [FakeRun(name, f"context {name}") for name in "abcde"]
    submitted(queue, *runs)
    assert (started, queue.waiting) == (runs[:2], 3)
    for run in runs:
        queue.ended(run)
    assert (started, queue.waiting) == (runs, 0)
    assert (queue.running, queue.turns) == (set(), {})


def test_a_context_with_many_turns_does_not_keep_others_from_their_place():
    started: list[Any] = []
    queue = queue_for(started, concurrency=1)
    busy = [FakeRun(f"busy {number}", "busy") for number in range(3)]
    other = FakeRun("other", "other")
    submitted(queue, busy[0], busy[1], other, busy[2])
    for run in (busy[0], other, busy[1], busy[2]):
        assert started[-1] is run
        queue.ended(run)
    assert started == [busy[0], other, busy[1], busy[2]]


def test_the_same_context_of_another_owner_is_another_context():
    started: list[Any] = []
    queue = queue_for(started, concurrency=10)
    mine, yours = FakeRun("mine", "one", "me"), FakeRun("yours", "one", "you")
    submitted(queue, mine, yours)
    assert started == [mine, yours]


def test_a_run_that_is_taken_back_before_it_began_gives_its_turn_to_the_next():
    started: list[Any] = []
    queue = queue_for(started, concurrency=1)
    first, second, third = FakeRun("first", "a"), FakeRun("second", "b"), FakeRun("third", "b")
    submitted(queue, first, second, third)
    assert queue.withdraw(second), "it is the next of its context and waits for a place"
    assert not queue.withdraw(first), "it runs"
    assert not queue.withdraw(second), "it was taken back before"
    queue.ended(first)
    assert (started, queue.waiting) == ([first, third], 0)
    queue.ended(third)
    assert queue.turns == {}


def test_parallel_runs_take_no_turns():
    started: list[Any] = []
    queue = queue_for(started, concurrency=2, parallel=True)
    runs = [FakeRun(name, "one") for name in "abc"]
    submitted(queue, *runs)
    assert started == runs[:2]
    assert queue.withdraw(runs[2])
    queue.ended(runs[0])
    assert (started, queue.waiting, queue.turns) == (runs[:2], 0, {})


@pytest.mark.parametrize("longest", [0, 2])
def test_a_message_is_refused_only_if_it_has_to_wait_and_too_many_wait(longest):
    started: list[Any] = []
    queue = queue_for(started, concurrency=2, queue=longest)
    runs = [FakeRun(f"run {number}", f"context {number}") for number in range(10)]
    places = [reserve(queue, run) for run in runs]
    assert places == [False] * 2 + [True] * longest + [None] * (8 - longest)
    for run, waits in zip(runs, places, strict=True):
        if waits is not None:
            queue.unreserve(waits)
            submitted(queue, run)
    assert reserve(queue, runs[9]) is None, "those who were taken are all still there"
    queue.ended(runs[0])
    assert reserve(queue, runs[9]) is not None


def test_a_place_that_was_reserved_and_not_taken_is_free_again():
    queue = queue_for([], concurrency=1, queue=0)
    run = FakeRun("run", "context")
    for _ in range(3):
        assert reserve(queue, run) is False
        assert reserve(queue, run) is None
        queue.unreserve(False)


def test_a_message_to_a_busy_context_has_to_wait_though_there_is_room():
    queue = queue_for([], concurrency=10, queue=1)
    first, second, third = (FakeRun(name, "one") for name in "abc")
    assert reserve(queue, first) is False
    queue.unreserve(False)
    submitted(queue, first)
    assert reserve(queue, second) is True
    assert reserve(queue, third) is None


actions = st.lists(st.tuples(st.sampled_from(["submit", "end", "withdraw"]), st.integers(0, 7)), max_size=60)


@given(actions, st.integers(1, 3), st.booleans())
def test_whatever_happens_nobody_is_forgotten_overtaken_or_let_in_too_many(what, concurrency, parallel):
    started: list[Any] = []
    queue = queue_for(started, concurrency=concurrency, parallel=parallel)
    alive: list[FakeRun] = []
    withdrawn: list[FakeRun] = []
    for number, (action, choice) in enumerate(what):
        running = [run for run in alive if run in queue.running]
        if action == "submit":
            alive.append(FakeRun(f"{number}", f"context {choice % 3}"))
            submitted(queue, alive[-1])
        elif action == "end" and running:
            run = running[choice % len(running)]
            alive.remove(run)
            queue.ended(run)
        elif action == "withdraw" and alive:
            run = alive[choice % len(alive)]
            assert queue.withdraw(run) == (run not in running)
            if run not in running:
                alive.remove(run)
                withdrawn.append(run)
        running = [run for run in alive if run in queue.running]
        waiting = [run for run in alive if run not in queue.running]
        contexts = [run.live.new.context_id for run in running]
        assert len(running) <= concurrency
        assert queue.waiting == len(waiting)
        assert parallel or len(set(contexts)) == len(contexts), "two turns of one context at once"
        if len(running) < concurrency:
            blocked = [run for run in waiting if not parallel and run.live.new.context_id in contexts]
            assert blocked == waiting, "there is room, and someone waits who need not"
    while queue.running:
        run = next(run for run in alive if run in queue.running)
        alive.remove(run)
        queue.ended(run)
    assert (alive, queue.waiting, queue.turns, list(queue.ready)) == ([], 0, {}, [])
    assert not set(started) & set(withdrawn)
    for context in {run.live.new.context_id for run in started}:
        order = [int(run.name) for run in started if run.live.new.context_id == context]
        assert parallel or order == sorted(order)
