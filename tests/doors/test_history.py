"""historyLength trims what is shown, whatever else a task has."""

from __future__ import annotations

import pytest

from tests.doors.wire import Door, sending


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_task_with_metadata_is_read_and_listed_with_a_part_of_its_history(door: Door, length: int) -> None:
    metadata = {"ticket": {"number": 7, "urgent": True}}
    task = door.ok("SendMessage", {**sending("x"), "metadata": metadata}, "hello")["task"]
    read = door.ok("GetTask", {"id": task["id"], "historyLength": length}, "hello")
    query = {"contextId": task["contextId"], "historyLength": length}
    (listed,) = door.ok("ListTasks", query, "hello")["tasks"]
    for found in (read, listed):
        assert found["metadata"] == metadata
        assert found.get("history", []) == task["history"][:length]
