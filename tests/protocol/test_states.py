"""The states of a task: which may follow which, for every pair."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.protocol.states import ACTIVE, PAUSED, SETTLED, TERMINAL, may_follow
from roost.protocol.types import TaskState

S = TaskState
GOES_ON = {S.WORKING, S.COMPLETED, S.FAILED, S.CANCELED, S.INPUT_REQUIRED, S.REJECTED, S.AUTH_REQUIRED}
ALLOWED: dict[TaskState | None, set[TaskState]] = {
    None: {S.SUBMITTED},
    S.SUBMITTED: GOES_ON,
    S.WORKING: GOES_ON,
    S.INPUT_REQUIRED: GOES_ON,
    S.AUTH_REQUIRED: GOES_ON,
    S.COMPLETED: set(),
    S.FAILED: set(),
    S.CANCELED: set(),
    S.REJECTED: set(),
}


@pytest.mark.parametrize(("current", "following"), itertools.product(ALLOWED, TaskState))
def test_only_what_the_table_allows_may_follow(current: TaskState | None, following: TaskState) -> None:
    assert may_follow(current, following) is (following in ALLOWED[current])


def test_every_state_is_active_paused_or_terminal_and_only_one_of_them() -> None:
    assert sorted([*ACTIVE, *PAUSED, *TERMINAL, S.UNSPECIFIED]) == sorted(TaskState)
    assert SETTLED == PAUSED | TERMINAL


@given(st.lists(st.sampled_from(TaskState), max_size=12))
def test_whatever_is_tried_a_life_begins_submitted_and_ends_once(attempts: list[TaskState]) -> None:
    life: list[TaskState] = []
    for state in attempts:
        if may_follow(life[-1] if life else None, state):
            life.append(state)
    assert life[:1] in ([], [S.SUBMITTED])
    assert S.SUBMITTED not in life[1:]
    assert S.UNSPECIFIED not in life
    assert not TERMINAL & set(life[:-1])
