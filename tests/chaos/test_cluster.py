"""`make cluster`: three replicas on one journal, and nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.processes import ROOT, environment

START_S = 60.0
STOP_S = 60.0
HEADERS = {"A2A-Version": "1.0"}


@contextmanager
def cluster(logs: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tools.cluster", "--json", "--logs", str(logs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)
    finally:
        process.terminate()
        process.communicate(timeout=STOP_S)


def send(url: str, agent: str, text: str, *, wait: bool = True) -> dict[str, Any]:
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"message": message, "configuration": {"returnImmediately": not wait}}
    answer = httpx.post(f"{url}/agents/{agent}/message:send", json=body, headers=HEADERS, timeout=30, verify=False)
    sent: dict[str, Any] = answer.raise_for_status().json()["task"]
    return sent


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_three_replicas_answer_share_their_tasks_and_stop_cleanly(tmp_path: Path) -> None:
    with cluster(tmp_path) as (process, where):
        a, b, c = (replica["url"] for replica in where["replicas"])
        pids = [replica["pid"] for replica in where["replicas"]]
        for url in (a, b, c):
            assert send(url, "hello", "Ada")["status"]["state"] == "TASK_STATE_COMPLETED"
        task = send(a, "job", "600", wait=False)
        path = f"/agents/job/tasks/{task['id']}"
        assert httpx.get(f"{b}{path}", headers=HEADERS).json()["id"] == task["id"]
        canceled = httpx.post(f"{c}{path}:cancel", json={}, headers=HEADERS, timeout=30)
        assert canceled.json()["status"]["state"] == "TASK_STATE_CANCELED"
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_S) == 0
    assert not any(lives(pid) for pid in pids)
    for name in "ABC":
        assert "Traceback" not in (tmp_path / f"{name}.log").read_text()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["A.log", "B.log", "C.log"]
