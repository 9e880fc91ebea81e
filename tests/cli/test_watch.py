"""`roost watch`: a task to its end, without a gap or a repeat, whatever happens to the host."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import FLEET, Server, begun, finish, roost, running


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(FLEET, data=tmp_path_factory.mktemp("data"), args=("--drain-s", "0")) as server:
        yield server


AGENTS = Path(__file__).parent / "agents.py"
GOAL = 10


def counted(goal: int) -> str:
    return "".join(f"{number}\n" for number in range(1, goal + 1))


def test_watch_survives_a_crash_of_the_host(tmp_path: Path) -> None:
    """Two who watch one task, as people do and as programs do: both end with all of it."""
    gate = tmp_path / "gate"
    env = {"AGENT_GATE": str(gate)}
    with running(AGENTS, data=tmp_path / "data", env=env) as server:
        task = server.send("count", str(GOAL), wait=False)["id"]
        watched = ("watch", task, "--agent", "count")
        with begun(*watched, url=server.url) as people, begun(*watched, "--json", url=server.url) as program:
            assert people.stdout is not None
            assert program.stdout is not None
            lines = [people.stdout.readline() for _ in range(GOAL // 2)]
            events = [program.stdout.readline()]
            server.kill()
            with running(AGENTS, data=tmp_path / "data", port=server.port, env=env):
                gate.touch()
                text, told = finish(people)
                more_events, _ = finish(program)
    assert "".join(lines) + text == counted(GOAL)
    assert "the connection was lost; reconnecting in 0.25 s" in told
    assert told.endswith(f"task {task} completed\n")
    assert folded([json.loads(line) for line in [*events, *more_events.splitlines()]]) == counted(GOAL)
    assert (people.returncode, program.returncode) == (0, 0)


def folded(events: list[dict[str, Any]]) -> str:
    """The text of the artifact, for a client that applies each event once: the Task first, and only there."""
    assert [next(iter(event)) for event in events].count("task") == 1
    parts = [part["text"] for artifact in events[0]["task"].get("artifacts", []) for part in artifact["parts"]]
    for event in events[1:-1]:
        update = event["artifactUpdate"]
        pieces = [part["text"] for part in update["artifact"]["parts"]]
        parts = parts + pieces if update["append"] else pieces
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    return "".join(parts)


def test_finished_tasks_are_there_after_a_crash(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path) as server:
        task = server.send("hello", "you")["id"]
        server.kill()
    with running(FLEET, data=tmp_path) as server:
        row = roost("tasks", url=server.url).stdout.splitlines()[1]
        assert row.split()[:3] == [task, "hello", "completed"]
        done = roost("watch", task, url=server.url)
        assert (done.returncode, done.stdout) == (0, "Hello, you!\n")


def test_watch_of_a_task_that_was_canceled_exits_1(fleet: Server) -> None:
    task = fleet.send("job", "100000", wait=False)["id"]
    with begun("watch", task, url=fleet.url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        roost("cancel", task, "--agent", "job", url=fleet.url)
        _, stderr = finish(process)
    assert process.returncode == 1
    assert stderr.endswith(f"task {task} canceled\n")


def test_watch_goes_on_through_a_question(fleet: Server) -> None:
    task = fleet.send("ask", "hi")["id"]
    with begun("watch", task, "--agent", "ask", url=fleet.url) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "What is your name?\n"
        assert f"`roost send ask 'your answer' --task {task}" in process.stderr.readline()
        fleet.send("ask", "Ada", task=task)
        stdout, _ = finish(process)
    assert (process.returncode, stdout) == (0, "Nice to meet you, Ada!\n")


def test_ctrl_c_says_that_the_task_goes_on(fleet: Server) -> None:
    task = fleet.send("job", "100000", wait=False)["id"]
    with begun("watch", task, url=fleet.url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.send_signal(signal.SIGINT)
        _, stderr = finish(process)
    assert process.returncode == 130
    assert f"task {task} continues: " in stderr
    assert f"`roost cancel {task} --agent job" in stderr
