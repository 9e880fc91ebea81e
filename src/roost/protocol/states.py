"""The states of a task: which end it, which pause it, and which may follow which."""

from __future__ import annotations

from roost.protocol.types import TaskState

TERMINAL = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
PAUSED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
SETTLED = TERMINAL | PAUSED
"""States at which a blocking send returns."""
ACTIVE = frozenset({TaskState.SUBMITTED, TaskState.WORKING})


def may_follow(current: TaskState | None, following: TaskState) -> bool:
    """Whether a task may change its state. It begins SUBMITTED, never returns there, and stays in a terminal state."""
    if current is None:
        return following is TaskState.SUBMITTED
    if current in TERMINAL:
        return False
    return following is not TaskState.SUBMITTED and following is not TaskState.UNSPECIFIED
