"""The queue of one agent: places, turns and fairness."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost import Agent
from roost.engine.lane import Lane
from roost.engine.ports import NewTask, Scope


class FakeRun:
    """As much of a Run as a lane looks at."""

    def __init__(self, name: str, context: str, owner: str = "owner") -> None:
        self.name = name
        self.live: Any = SimpleNamespace(new=NewTask(name, Scope("tenant", owner, "agent"), context, 0))

    def __repr__(self) -> str:
        return self.name


def lane_of(started: list[Any], **options: Any) -> Lane:
    agent = Agent("agent", **options)
    agent.on_message(lambda task: None)
    return Lane(agent.hosted(), lambda lane, run: started.append(run))


def submitted(lane: Lane, *runs: FakeRun) -> None:
    for run in runs:
        lane.submit(run)


def test_places_are_given_in_the_order_of_acceptance():
    started: list[Any] = []
    lane = lane_of(started, concurrency=2)
    runs = [FakeRun(name, f"context {name}") for name in "abcde"]
    submitted(lane, *runs)
    assert (started, lane.waiting) == (runs[:2], 3)
    for run in runs:
        lane.ended(run)
    assert (started, lane.waiting) == (runs, 0)
    assert (lane.running, lane.turns) == (set(), {})


def test_a_context_with_many_turns_does_not_keep_others_from_their_place():
    started: list[Any] = []
    lane = lane_of(started, concurrency=1)
    busy = [FakeRun(f"busy {number}", "busy") for number in range(3)]
    other = FakeRun("other", "other")
    submitted(lane, busy[0], busy[1], other, busy[2])
    for run in (busy[0], other, busy[1], busy[2]):
        assert started[-1] is run
        lane.ended(run)
    assert started == [busy[0], other, busy[1], busy[2]]


def test_the_same_context_of_another_owner_is_another_context():
    started: list[Any] = []
    lane = lane_of(started, concurrency=10)
    mine, yours = FakeRun("mine", "one", "me"), FakeRun("yours", "one", "you")
    submitted(lane, mine, yours)
    assert started == [mine, yours]


def test_a_run_that_is_taken_back_before_it_began_gives_its_turn_to_the_next():
    started: list[Any] = []
    lane = lane_of(started, concurrency=1)
    first, second, third = FakeRun("first", "a"), FakeRun("second", "b"), FakeRun("third", "b")
    submitted(lane, first, second, third)
    assert lane.withdraw(second), "it is the next of its context and waits for a place"
    assert not lane.withdraw(first), "it runs"
    assert not lane.withdraw(second), "it was taken back before"
    lane.ended(first)
    assert (started, lane.waiting) == ([first, third], 0)
    lane.ended(third)
    assert lane.turns == {}


def test_parallel_runs_take_no_turns():
    started: list[Any] = []
    lane = lane_of(started, concurrency=2, parallel=True)
    runs = [FakeRun(name, "one") for name in "abc"]
    submitted(lane, *runs)
    assert started == runs[:2]
    assert lane.withdraw(runs[2])
    lane.ended(runs[0])
    assert (started, lane.waiting, lane.turns) == (runs[:2], 0, {})


@pytest.mark.parametrize("queue", [0, 2])
def test_a_message_is_refused_only_if_it_has_to_wait_and_too_many_wait(queue):
    started: list[Any] = []
    lane = lane_of(started, concurrency=2, queue=queue)
    runs = [FakeRun(f"run {number}", f"context {number}") for number in range(10)]
    places = [lane.reserve(run.live.new) for run in runs]
    assert places == [False] * 2 + [True] * queue + [None] * (8 - queue)
    for run, waits in zip(runs, places, strict=True):
        if waits is not None:
            lane.unreserve(waits)
            lane.submit(run)
    assert lane.reserve(runs[9].live.new) is None, "those who were taken are all still there"
    lane.ended(runs[0])
    assert lane.reserve(runs[9].live.new) is not None


def test_a_place_that_was_reserved_and_not_taken_is_free_again():
    lane = lane_of([], concurrency=1, queue=0)
    run = FakeRun("run", "context")
    for _ in range(3):
        assert lane.reserve(run.live.new) is False
        assert lane.reserve(run.live.new) is None
        lane.unreserve(False)


def test_a_message_to_a_busy_context_has_to_wait_though_there_is_room():
    lane = lane_of([], concurrency=10, queue=1)
    first, second, third = (FakeRun(name, "one") for name in "abc")
    assert lane.reserve(first.live.new) is False
    lane.unreserve(False)
    lane.submit(first)
    assert lane.reserve(second.live.new) is True
    assert lane.reserve(third.live.new) is None


actions = st.lists(st.tuples(st.sampled_from(["submit", "end", "withdraw"]), st.integers(0, 7)), max_size=60)


@given(actions, st.integers(1, 3), st.booleans())
def test_whatever_happens_nobody_is_forgotten_overtaken_or_let_in_too_many(what, concurrency, parallel):
    started: list[Any] = []
    lane = lane_of(started, concurrency=concurrency, parallel=parallel)
    alive: list[FakeRun] = []
    withdrawn: list[FakeRun] = []
    for number, (action, choice) in enumerate(what):
        running = [run for run in alive if run in lane.running]
        if action == "submit":
            alive.append(FakeRun(f"{number}", f"context {choice % 3}"))
            lane.submit(alive[-1])
        elif action == "end" and running:
            run = running[choice % len(running)]
            alive.remove(run)
            lane.ended(run)
        elif action == "withdraw" and alive:
            run = alive[choice % len(alive)]
            assert lane.withdraw(run) == (run not in running)
            if run not in running:
                alive.remove(run)
                withdrawn.append(run)
        running = [run for run in alive if run in lane.running]
        waiting = [run for run in alive if run not in lane.running]
        contexts = [run.live.new.context_id for run in running]
        assert len(running) <= concurrency
        assert lane.waiting == len(waiting)
        assert parallel or len(set(contexts)) == len(contexts), "two turns of one context at once"
        if len(running) < concurrency:
            blocked = [run for run in waiting if not parallel and run.live.new.context_id in contexts]
            assert blocked == waiting, "there is room, and someone waits who need not"
    while lane.running:
        run = next(run for run in alive if run in lane.running)
        alive.remove(run)
        lane.ended(run)
    assert (alive, lane.waiting, lane.turns, list(lane.ready)) == ([], 0, {}, [])
    assert not set(started) & set(withdrawn)
    for context in {run.live.new.context_id for run in started}:
        order = [int(run.name) for run in started if run.live.new.context_id == context]
        assert parallel or order == sorted(order)
