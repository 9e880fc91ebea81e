"""No acknowledgement leaves before its fdatasync: a host on a disk that waits when it is told to."""

from __future__ import annotations

import json

import pytest

from tests.processes import Server

from .client import CALLS, connection, sent, text_of
from .conftest import Disk


@pytest.mark.parametrize(
    ("how", "immediate"),
    [
        ("rest-send", False),
        ("rest-send", True),
        ("rest-stream", False),
        ("jsonrpc-send", True),
        ("jsonrpc-stream", False),
    ],
)
def test_no_byte_of_an_answer_leaves_before_the_message_is_on_disk(
    server: Server, disk: Disk, how: str, immediate: bool
) -> None:
    disk.close_gate()
    with sent(server.url, "held", how, "hello", returnImmediately=immediate) as answer:
        disk.wait_for("blocked")
        assert answer.is_silent()
        assert not disk.said("called"), "the agent was called before its message was on disk"
        disk.tell("go")
        disk.untell("gate")
        assert b"hello" in answer.read_all()
        assert answer.status() == 200


@pytest.mark.parametrize("how", ["rest-send", "jsonrpc-send"])
def test_no_byte_of_an_answer_leaves_before_the_end_of_the_task_is_on_disk(
    server: Server, disk: Disk, how: str
) -> None:
    with sent(server.url, "held", how, "hello") as answer:
        disk.wait_for("called")
        disk.close_gate()
        disk.tell("go")
        disk.wait_for("blocked")
        assert answer.is_silent()
        disk.untell("gate")
        task = CALLS[how].result(answer.json())["task"]
        assert (task["status"]["state"], text_of(task)) == ("TASK_STATE_COMPLETED", "one two")


@pytest.mark.parametrize("how", ["rest-stream", "jsonrpc-stream"])
def test_no_event_is_shown_to_anyone_before_it_is_on_disk(server: Server, disk: Disk, how: str) -> None:
    with sent(server.url, "held", how, "hello") as stream:
        stream.read_until(b'"one"')
        opening = stream.received.partition(b"data: ")[2].partition(b"\n")[0]
        task_id = CALLS[how].result(json.loads(opening))["task"]["id"]
        path = f"/agents/held/tasks/{task_id}"
        with connection(server.url, "GET", f"{path}:subscribe") as subscription:
            subscription.read_until(b'"one"')
            disk.close_gate()
            disk.tell("go")
            disk.wait_for("blocked")
            with (
                connection(server.url, "GET", path) as reading,
                connection(server.url, "GET", "/agents/held/tasks?includeArtifacts=true") as listing,
            ):
                for one in (stream, subscription, reading, listing):
                    assert one.is_silent()
                disk.untell("gate")
                for one in (stream, subscription):
                    frames = one.frames()
                    ids = [number for number, _ in frames]
                    assert ids == list(range(ids[0], ids[0] + len(ids)))
                    assert " two" in json.dumps(frames)
                    assert "TASK_STATE_COMPLETED" in json.dumps(frames[-1])
                assert text_of(reading.json()) == "one two"
                assert text_of(listing.json()["tasks"][0]) == "one two"
