"""A host that is killed (SIGKILL) in the middle, and what becomes of its tasks when it is back.

Real processes and a real journal on disk. Where in the middle: at a file that the test makes afterwards.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from roost.engine.recovery import MAX_ATTEMPTS
from roost.protocol.codec import decoder
from roost.protocol.types import SendMessageResponse, StreamResponse, Task, TaskState
from tests.agents.talk import apply, status_text, text_of
from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S, eventually

AGENTS = Path(__file__).parent / "crash_agents.py"


class World:
    """A journal, a gate and a notebook that outlive the host."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.gate = folder / "gate"
        self.calls = folder / "calls"

    def noted(self) -> list[str]:
        return self.calls.read_text().split("\n")[:-1] if self.calls.exists() else []

    @contextmanager
    def host(self, *sources: Path) -> Iterator[Host]:
        with running(*(sources or (AGENTS,)), data=self.data) as server, httpx.Client(timeout=PATIENCE_S) as http:
            yield Host(server, http)

    def message(self, **more: Any) -> dict[str, Any]:
        return {"gate": str(self.gate), "calls": str(self.calls), **more}


class Host:
    """A client of a host that may die."""

    def __init__(self, server: Server, http: httpx.Client) -> None:
        self.server = server
        self.http = http
        http.headers.update({"A2A-Version": "1.0"})

    def send(self, agent: str, says: str | dict[str, Any], task: Task | None = None, *, wait: bool = False) -> Task:
        response = self.http.post(f"{self.server.url}/agents/{agent}/message:send", json=_body(says, task, wait))
        assert response.status_code == 200, response.text
        found = decoder(SendMessageResponse)(response.content).task
        assert found is not None
        return found

    def get(self, agent: str, task: Task) -> Task:
        response = self.http.get(f"{self.server.url}/agents/{agent}/tasks/{task.id}")
        assert response.status_code == 200, response.text
        return decoder(Task)(response.content)

    def list(self, agent: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get(f"{self.server.url}/agents/{agent}/tasks").json()["tasks"]
        return found

    def until(self, agent: str, task: Task, holds: Callable[[Task], bool]) -> Task:
        found: list[Task] = []
        eventually(lambda: found.append(self.get(agent, task)) or holds(found[-1]))
        return found[-1]

    def until_state(self, agent: str, task: Task, state: TaskState) -> Task:
        return self.until(agent, task, lambda found: found.status.state is state)

    @contextmanager
    def stream(self, path: str, **request: Any) -> Iterator[Iterator[tuple[int | None, StreamResponse]]]:
        method = "POST" if "json" in request else "GET"
        with self.http.stream(method, f"{self.server.url}/agents/{path}", **request) as response:
            if response.status_code != 200:
                response.read()
                raise AssertionError(response.text)
            yield _frames(response)


def _body(says: str | dict[str, Any], task: Task | None = None, wait: bool = True) -> dict[str, Any]:
    part = {"text": says} if isinstance(says, str) else {"data": says}
    message = {"messageId": f"m{time.monotonic_ns()}", "role": "ROLE_USER", "parts": [part]}
    if task is not None:
        message["taskId"] = task.id
    return {"message": message, "configuration": {"returnImmediately": not wait}}


def _frames(response: httpx.Response) -> Iterator[tuple[int | None, StreamResponse]]:
    event_id = None
    for line in response.iter_lines():
        if line.startswith("id: "):
            event_id = int(line[4:])
        elif line.startswith("data: "):
            yield event_id, decoder(StreamResponse)(line[6:].encode())
            event_id = None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# Going on


def test_the_example_job_goes_on_after_each_of_three_crashes_with_no_number_missing_or_repeated(world):
    goal, job = 14, FLEET / "job.py"
    with world.host(job) as host:
        task = host.send("job", f"count to {goal}")
        host.until("job", task, lambda found: text_of(found) != "")
        host.server.kill()
    for counted in (4, 8):
        with world.host(job) as host:
            host.until("job", task, lambda found, counted=counted: len(text_of(found).split()) >= counted)
            host.server.kill()
    with world.host(job) as host:
        done = host.until_state("job", task, TaskState.COMPLETED)
    assert text_of(done) == "".join(f"{number}\n" for number in range(1, goal + 1))


@pytest.mark.parametrize("agent", ["pieces", "sync-pieces"])
def test_pieces_after_the_last_step_are_replaced_by_a_restart_frame_and_the_step_is_not_run_again(world, agent):
    with world.host() as host:
        task = host.send(agent, world.message())
        before = host.until(agent, task, lambda found: text_of(found).endswith("loose-2 "))
        assert text_of(before) == "kept-1 kept-2 marked loose-1 loose-2 "
        host.server.kill()
    world.gate.touch()
    with world.host() as host:
        done = host.until_state(agent, task, TaskState.COMPLETED)
        with host.stream(f"{agent}/tasks/{task.id}:subscribe", headers={"Last-Event-ID": "1"}) as stream:
            events = [event for _, event in stream]
    undisturbed = "kept-1 kept-2 marked loose-1 loose-2 end"
    assert text_of(done) == undisturbed
    assert world.noted() == ["step"]
    pieces = [event.artifact_update for event in events if event.artifact_update]
    said = ["".join(part.text for part in piece.artifact.parts) for piece in pieces]
    assert said[:5] == ["kept-1 ", "kept-2 ", "marked ", "loose-1 ", "loose-2 "], "history is not rewritten"
    assert said[5:] == ["kept-1 kept-2 marked ", "loose-1 ", "loose-2 ", "end"], "up to the step, and the first piece"
    assert [piece.append for piece in pieces[5:]] == [False, True, True, True]
    assert {piece.artifact.artifact_id for piece in pieces} == {"output"}


@pytest.mark.parametrize("agent", ["pieces", "sync-pieces"])
def test_a_client_that_applies_the_stream_across_a_crash_has_the_text_of_the_task(world, agent):
    with world.host() as host, host.stream(f"{agent}/message:stream", json=_body(world.message())) as stream:
        last, opening = next(stream)
        task, text = opening.task, ""
        while not text.endswith("loose-2 "):
            last, event = next(stream)
            text = apply(text, event)
        host.server.kill()
    world.gate.touch()
    with world.host() as host:
        with host.stream(f"{agent}/tasks/{task.id}:subscribe", headers={"Last-Event-ID": str(last)}) as stream:
            first_id, first = next(stream)
            assert first_id is None, "the Task as of that event carries no id"
            assert text_of(first.task) == text
            seen = []
            for event_id, event in stream:
                text = apply(text, event)
                seen.append(event_id)
        done = host.get(agent, task)
    assert seen == list(range(last + 1, last + 1 + len(seen))), "without a gap or a repeat"
    assert text == text_of(done) == "kept-1 kept-2 marked loose-1 loose-2 end"
    assert done.status.state is TaskState.COMPLETED


def test_a_client_can_be_late_by_any_number_of_events(world):
    with world.host() as host:
        task = host.send("pieces", world.message())
        host.until("pieces", task, lambda found: text_of(found).endswith("loose-2 "))
        host.server.kill()
    world.gate.touch()
    with world.host() as host:
        done = host.until_state("pieces", task, TaskState.COMPLETED)
        for last in itertools.count(1):
            headers = {"Last-Event-ID": str(last)}
            with host.stream(f"pieces/tasks/{task.id}:subscribe", headers=headers) as stream:
                events = [event for _, event in stream]
            text = ""
            for event in events:
                text = apply(text, event)
            assert text == text_of(done)
            if len(events) == 1:
                break
    assert last > 8


def test_messages_that_waited_for_their_turn_run_after_the_restart_in_their_order(world):
    names = ["first", "second", "third"]
    with world.host() as host:
        tasks = [host.send("narrow", world.message(name=name)) for name in names]
        eventually(lambda: world.noted() == ["first"])
        assert [host.get("narrow", task).status.state for task in tasks[1:]] == [TaskState.SUBMITTED] * 2
        host.server.kill()
    world.gate.touch()
    with world.host() as host:
        done = [host.until_state("narrow", task, TaskState.COMPLETED) for task in tasks]
    assert [text_of(task) for task in done] == names
    assert world.noted() == ["first", *names]


def test_paused_tasks_survive_and_can_be_answered_after_the_restart(world):
    with world.host() as host:
        task = host.send("asking", "go", wait=True)
        assert task.status.state is TaskState.INPUT_REQUIRED
        host.server.kill()
    with world.host() as host:
        found = host.get("asking", task)
        assert (found.status.state, status_text(found)) == (TaskState.INPUT_REQUIRED, "Which city?")
        second = host.send("asking", "Rome", task, wait=True)
        assert (second.status.state, status_text(second)) == (TaskState.INPUT_REQUIRED, "Which day?")
        host.server.kill()
    with world.host() as host:
        done = host.send("asking", "Monday", task, wait=True)
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "Rome Monday")
    assert [said.text for said in done.history] == ["go", "Which city?", "Rome", "Which day?", "Monday"]


def test_a_paused_task_can_be_canceled_after_the_restart(world):
    with world.host() as host:
        task = host.send("asking", "go", wait=True)
        host.server.kill()
    with world.host() as host:
        response = host.http.post(f"{host.server.url}/agents/asking/tasks/{task.id}:cancel", json={})
        assert response.status_code == 200
        assert host.get("asking", task).status.state is TaskState.CANCELED


def test_a_direct_exchange_that_was_undecided_is_a_task_after_the_restart_and_ends_with_the_reply(world):
    with world.host() as host:
        body = _body(world.message(), wait=True)
        killing = _when(lambda: world.noted() == ["called"], host.server.kill)
        with pytest.raises(httpx.TransportError):
            host.http.post(f"{host.server.url}/agents/direct/message:send", json=body)
        killing.join(PATIENCE_S)
    world.gate.touch()
    with world.host() as host:
        eventually(lambda: [task["status"]["state"] for task in host.list("direct")] == [TaskState.COMPLETED])
        (task,) = host.list("direct")
    assert task["status"]["message"]["parts"] == [{"text": "hello again"}]
    assert task["history"][0]["messageId"] == body["message"]["messageId"]


def _when(holds: Callable[[], object], then: Callable[[], None]) -> threading.Thread:
    def work() -> None:
        eventually(holds)
        then()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


# Giving up


@pytest.mark.parametrize("step", [False, True], ids=["before any step", "after a step"])
def test_on_crash_fail_ends_the_task_failed_saying_that_it_was_interrupted(world, step):
    with world.host() as host:
        task = host.send("no-resume", world.message(step=step))
        eventually(lambda: world.noted() == ["called", "waits"])
        host.server.kill()
    world.gate.touch()
    with world.host() as host:
        failed = host.until_state("no-resume", task, TaskState.FAILED)
    assert "interrupted" in status_text(failed)
    assert world.noted() == ["called", "waits"], "it is not called twice"


def test_a_message_that_waited_for_an_agent_that_is_not_called_twice_is_called_after_the_restart(world):
    """It never began: nothing is done twice."""
    with world.host() as host:
        body = _body(world.message(step=False), wait=False)
        body["message"]["contextId"] = "one"
        url = f"{host.server.url}/agents/no-resume/message:send"
        first = decoder(SendMessageResponse)(host.http.post(url, json=body).content).task
        eventually(lambda: "waits" in world.noted())
        second = decoder(SendMessageResponse)(host.http.post(url, json=body).content).task
        host.server.kill()
    world.gate.touch()
    with world.host() as host:
        host.until_state("no-resume", first, TaskState.FAILED)
        done = host.until_state("no-resume", second, TaskState.COMPLETED)
    assert text_of(done) == "begun end"


def test_a_task_that_kills_its_host_is_tried_three_times_more_and_then_failed(world):
    with world.host() as host:
        bystander = host.send("asking", "go", wait=True)
        with suppress(httpx.TransportError):
            host.send("killer", world.message())
        host.server.process.wait(PATIENCE_S)
    for calls in range(1, 1 + MAX_ATTEMPTS):
        assert world.noted() == ["called"] * calls
        with suppress(AssertionError), world.host() as host:  # it may die before it says that it serves
            host.server.process.wait(PATIENCE_S)
    with world.host() as host:
        eventually(lambda: [task["status"]["state"] for task in host.list("killer")] == [TaskState.FAILED])
        (failed,) = host.list("killer")
        assert "not tried again" in failed["status"]["message"]["parts"][0]["text"]
        done = host.send("asking", "Rome", bystander, wait=True)
        assert status_text(done) == "Which day?"
    assert world.noted() == ["called"] * (1 + MAX_ATTEMPTS)
