"""Any host answers any request, and a host that dies leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from tools.services import new_database, postgres

from tests.doors.wire import metrics
from tests.processes import ROOT, Server, environment, roost, running
from tests.replicas.conftest import AGENTS, Start
from tests.waiting import PATIENCE_S, eventually

VERSION = {"A2A-Version": "1.0"}


def get(host: Server, agent: str, task_id: str) -> dict[str, Any]:
    found = httpx.get(f"{host.url}/agents/{agent}/tasks/{task_id}", headers=VERSION, timeout=PATIENCE_S)
    task: dict[str, Any] = found.raise_for_status().json()
    return task


def state(host: Server, agent: str, task_id: str) -> str:
    found: str = get(host, agent, task_id)["status"]["state"]
    return found.removeprefix("TASK_STATE_")


def text(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])


def said(log: Path, task_id: str) -> list[str]:
    file = log / task_id
    return file.read_text().split() if file.exists() else []


class Following(threading.Thread):
    """Reads a stream to its end."""

    def __init__(self, url: str, last: int | None = None, body: Any = None) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.body = body
        self.headers = VERSION | ({} if last is None else {"Last-Event-ID": str(last)})
        self.ids: list[int] = []
        self.data: list[str] = []
        self.start()

    def run(self) -> None:
        method = "GET" if self.body is None else "POST"
        with httpx.stream(method, self.url, headers=self.headers, json=self.body, timeout=PATIENCE_S) as answer:
            try:
                for line in answer.iter_lines():
                    if line.startswith("id: "):
                        self.ids.append(int(line[4:]))
                    elif line.startswith("data: "):
                        self.data.append(line[6:])
            except httpx.RemoteProtocolError:
                return  # its host was killed


def subscribe(host: Server, agent: str, task_id: str, last: int | None = None) -> Following:
    following = Following(f"{host.url}/agents/{agent}/tasks/{task_id}:subscribe", last)
    eventually(lambda: following.data, "the stream")
    return following


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_send_on_one_follow_on_another_cancel_on_a_third(three: list[Server], log: Path) -> None:
    a, b, c = three
    task = a.send("gated", "go", wait=False)
    eventually(lambda: "step" in said(log, task["id"]))
    following = subscribe(b, "gated", task["id"])
    canceled = httpx.post(f"{c.url}/agents/gated/tasks/{task['id']}:cancel", headers=VERSION, timeout=PATIENCE_S).json()
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
    following.join(PATIENCE_S)
    assert "TASK_STATE_CANCELED" in following.data[-1]
    assert said(log, task["id"]) == ["called", "step", "cancelled"]
    assert {state(host, "gated", task["id"]) for host in three} == {"CANCELED"}


def test_every_event_reaches_a_reader_on_another_host_once_and_in_order(three: list[Server]) -> None:
    a, b, _ = three
    task = a.send("counter", "300", wait=False)
    following = subscribe(b, "counter", task["id"])
    following.join(PATIENCE_S)
    assert following.ids == list(range(following.ids[0], following.ids[0] + len(following.ids)))
    whole = text(get(b, "counter", task["id"]))
    assert whole == "".join(f"{number}," for number in range(300))
    resumed = Following(f"{a.url}/agents/counter/tasks/{task['id']}:subscribe", last=5)
    resumed.join(PATIENCE_S)
    assert resumed.ids == list(range(6, following.ids[-1] + 1))


def test_an_answer_is_taken_by_any_host_and_a_repeat_of_it_by_another(three: list[Server]) -> None:
    a, b, c = three
    task = a.send("asker", "hi")
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    message = {
        "messageId": str(uuid.uuid4()),
        "role": "ROLE_USER",
        "taskId": task["id"],
        "parts": [{"text": "Ada"}],
    }
    answers = [
        httpx.post(
            f"{host.url}/agents/asker/message:send", headers=VERSION, json={"message": message}, timeout=PATIENCE_S
        )
        for host in (b, c)
    ]
    assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, "true"]
    assert text(answers[0].json()["task"]) == "hello Ada"
    assert answers[0].content == answers[1].content
    listed = httpx.get(f"{a.url}/agents/asker/tasks", headers=VERSION).json()
    assert [found["id"] for found in listed["tasks"]] == [task["id"]]


def test_of_two_answers_at_the_same_time_one_is_taken_whoever_has_it(three: list[Server]) -> None:
    """The hosts know the task from the same moment and raise the same fence: only one may believe that it has."""
    for _ in range(15):
        task = three[0].send("asker", "hi")
        answers: dict[str, httpx.Response] = {}

        def reply(host: Server, name: str, task_id: str, answers: dict[str, httpx.Response]) -> None:
            message = {
                "messageId": str(uuid.uuid4()),
                "role": "ROLE_USER",
                "taskId": task_id,
                "parts": [{"text": name}],
            }
            answers[name] = httpx.post(
                f"{host.url}/agents/asker/message:send", headers=VERSION, json={"message": message}, timeout=PATIENCE_S
            )

        threads = [
            threading.Thread(target=reply, args=(host, name, task["id"], answers))
            for host, name in zip(three[1:], ("left", "right"), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [taken] = [name for name, answer in answers.items() if answer.status_code == 200]
        assert {answer.status_code for answer in answers.values()} == {200, 400}
        assert text(answers[taken].json()["task"]) == f"hello {taken}"
        assert text(get(three[0], "asker", task["id"])) == f"hello {taken}"


def test_the_task_of_a_killed_host_goes_on_elsewhere_and_its_reader_too(start: Start, log: Path) -> None:
    with start() as a, start() as b:
        task = a.send("gated", "go", wait=False)
        once = a.send("once", "go", wait=False)
        following = subscribe(a, "gated", task["id"])
        eventually(lambda: following.ids[-1:] >= [3] or "one" in "".join(following.data), "the first word")
        eventually(lambda: said(log, once["id"]))
        a.kill()
        following.join(PATIENCE_S)
        resumed = Following(f"{b.url}/agents/gated/tasks/{task['id']}:subscribe", last=following.ids[-1])
        eventually(lambda: said(log, task["id"]).count("called") == 2, "the second call")
        (log / f"{task['id']}.go").touch()
        resumed.join(PATIENCE_S)
        assert "TASK_STATE_COMPLETED" in resumed.data[-1]
        ids = following.ids + resumed.ids
        assert ids == list(range(ids[0], ids[0] + len(ids)))
        assert text(get(b, "gated", task["id"])) == "one two"
        assert said(log, task["id"]).count("step") == 1, "what is on record is not done again"
        eventually(lambda: state(b, "once", once["id"]) == "FAILED")
        assert "cannot be called twice" in str(get(b, "once", once["id"])["status"]["message"])
        with httpx.Client() as http:
            series = metrics(http, b.url)
        assert series["roost_recoveries_total", frozenset({("reason", "worker lost")})] == 2


def test_a_host_that_is_told_to_stop_hands_over_within_moments(start: Start, log: Path) -> None:
    with start() as a, start() as b:
        task = a.send("gated", "go", wait=False)
        following = subscribe(a, "gated", task["id"])
        eventually(lambda: "step" in said(log, task["id"]))
        a.stop()
        following.join(PATIENCE_S)
        assert "TASK_STATE_COMPLETED" not in following.data[-1], "the stream ended cleanly, and can be resumed"
        eventually(lambda: said(log, task["id"]).count("called") == 2, "the second call")
        (log / f"{task['id']}.go").touch()
        eventually(lambda: state(b, "gated", task["id"]) == "COMPLETED")
        with httpx.Client() as http:
            series = metrics(http, b.url)
        assert series["roost_recoveries_total", frozenset({("reason", "handed over")})] == 1


def test_a_rolling_restart_under_load_loses_and_repeats_nothing(start: Start) -> None:
    """Clients retry what a stopping host refuses, with the same messageId, as any balancer's clients do."""
    hosts: list[Server] = []
    stop = threading.Event()
    texts: dict[str, str] = {}
    failures: list[str] = []

    def client(number: int) -> None:
        sent = 0
        while not stop.is_set():
            sent += 1
            message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "20"}]}
            for attempt in range(2000):
                host = hosts[(number + attempt) % len(hosts)]
                try:
                    answer = httpx.post(
                        f"{host.url}/agents/counter/message:send",
                        headers=VERSION,
                        json={"message": message},
                        timeout=PATIENCE_S,
                    )
                except httpx.TransportError:
                    time.sleep(0.05)
                    continue
                if answer.status_code == 200:
                    task = answer.json()["task"]
                    if text(task) != "".join(f"{n}," for n in range(20)) or message["messageId"] in texts:
                        failures.append(str(task))
                    texts[message["messageId"]] = task["id"]
                    break
                if answer.status_code != 503:
                    failures.append(answer.text)
                time.sleep(0.05)
            else:
                failures.append("no host ever answered")

    with start() as a, start() as b, start() as c:
        hosts += [a, b, c]
        clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
        for thread in clients:
            thread.start()
        replacements = []
        try:
            for index in range(3):
                before = len(texts)
                eventually(lambda before=before: len(texts) > before + 5, "load")
                old = hosts[index]
                old.stop()
                replacement = start(port=old.port)
                hosts[index] = replacement.__enter__()
                replacements.append(replacement)
            before = len(texts)
            eventually(lambda: len(texts) > before + 5, "load")
        finally:
            stop.set()
            for thread in clients:
                thread.join(PATIENCE_S)
        assert failures == []
        made: list[str] = []
        token = ""
        while True:
            page = httpx.get(
                f"{hosts[0].url}/agents/counter/tasks", headers=VERSION, params={"pageSize": 100, "pageToken": token}
            ).json()
            made += [task["id"] for task in page["tasks"]]
            token = page["nextPageToken"]
            if not token:
                break
        assert sorted(made) == sorted(texts.values()), "one task for every message, and no other"
        for replacement in replacements:
            replacement.__exit__(None, None, None)


def test_postgresql_that_goes_and_comes_back_costs_time_and_nothing_else(tmp_path: Path, key: Path, log: Path) -> None:
    log.mkdir(exist_ok=True)
    with postgres(fsync=False) as server:
        url = new_database(server.url)
        store = ("--store", url, "--secret-file", str(key))
        with running(AGENTS, store=store, env={"AGENT_LOG": str(log)}) as host:
            task = host.send("counter", "400", wait=False)
            following = subscribe(host, "counter", task["id"])
            server.kill()
            ready = eventually(lambda: _not_ready(host), "the truth about the store")
            assert ready["status"] == "not ready"
            refused = httpx.post(f"{host.url}/agents/counter/message:send", headers=VERSION, json=_message())
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            server.start()
            eventually(lambda: httpx.get(f"{host.url}/readyz", timeout=PATIENCE_S).status_code == 200, "readiness")
            eventually(lambda: state(host, "counter", task["id"]) == "COMPLETED")
            assert text(get(host, "counter", task["id"])) == "".join(f"{number}," for number in range(400))
            following.join(PATIENCE_S)
            assert following.ids == list(range(following.ids[0], following.ids[0] + len(following.ids)))


def _not_ready(host: Server) -> dict[str, Any] | None:
    answer = httpx.get(f"{host.url}/readyz", timeout=PATIENCE_S)
    found: dict[str, Any] = answer.json()
    return found if answer.status_code == 503 else None


def _message() -> dict[str, Any]:
    return {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "1"}]}}


NOWHERE = "postgresql://me:hunter2@127.0.0.1:1/db"
IMPATIENT = """
from roost.cli import host_server, main
host_server.OPEN_S = 1.0
main.main()
"""
"""The command, which does not try for ten seconds to reach a database."""


def test_a_database_that_is_not_there_is_named_without_its_password(key: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IMPATIENT, "serve", AGENTS, "--store", NOWHERE, "--secret-file", key],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment({"AGENT_LOG": str(key.parent)}),
        check=False,
    )
    assert ended.returncode == 1
    assert "127.0.0.1:1" in ended.stderr
    assert "hunter2" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_several_workers_share_one_port_and_one_that_dies_is_replaced(start: Start) -> None:
    with start("--workers", "2") as host:
        assert "2 workers" in host.stderr
        pids = eventually(lambda: len(found := _children(host.process.pid)) == 2 and found, "two workers")
        assert host.send("counter", "3")["status"]["state"] == "TASK_STATE_COMPLETED"
        subprocess.run(["kill", "-9", str(pids[0])], check=True)
        eventually(lambda: len(found := _children(host.process.pid)) == 2 and pids[0] not in found, "another worker")
        host.wait_said("it restarts in")
        assert host.send("counter", "3")["status"]["state"] == "TASK_STATE_COMPLETED"
        host.process.terminate()
        host.process.wait(PATIENCE_S)
        assert _children(host.process.pid) == []


def test_a_worker_that_ends_with_an_error_after_it_has_served_is_started_again(start: Start) -> None:
    with start("--workers", "2") as host:
        pids = eventually(lambda: len(found := _children(host.process.pid)) == 2 and found, "two workers")
        eventually(lambda: host.send("counter", "1"), "an answer")
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "1"}]}
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{host.url}/agents/quitter/message:send", headers=VERSION, json={"message": message})
        eventually(lambda: len(found := _children(host.process.pid)) == 2 and found != pids, "another worker")
        host.wait_said("it restarts in")


def test_workers_end_when_their_parent_is_killed(start: Start) -> None:
    with start("--workers", "2") as host:
        pids = eventually(lambda: len(found := _children(host.process.pid)) == 2 and found, "two workers")
        eventually(lambda: host.send("counter", "1"), "an answer")
        host.kill()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of the workers")


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def test_more_workers_than_one_need_postgresql(tmp_path: Path) -> None:
    ended = roost("serve", str(ROOT / "examples" / "fleet"), "--workers", "2", "--data", str(tmp_path))
    assert ended.returncode == 1
    assert "needs PostgreSQL: give --store" in ended.stderr
