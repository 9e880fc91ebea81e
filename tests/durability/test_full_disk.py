"""A disk without any room: messages are refused, all that is there can be read, and with room again all goes on."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import Server, roost, running
from tests.waiting import PATIENCE_S, eventually

from .agents import expected
from .client import HEADERS, text_of
from .conftest import AGENTS

SIZE = 12 << 20
CARD, KEYS = "/.well-known/agent-card.json", "/.well-known/jwks.json"


class SmallDisk:
    """A file system of its own in memory; or, where none can be mounted, hosts that may not write to files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
        self.mounted = (
            sys.platform == "linux"
            and shutil.which("mount") is not None
            and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        )

    @contextmanager
    def full(self, host: Server) -> Iterator[None]:
        limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in ([] if self.mounted else _tree(host))}
        if self.mounted:
            self.fill()
        for pid, (_, hard) in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
        try:
            yield
        finally:
            (self.folder / "ballast").unlink(missing_ok=True)
            for pid, before in limits.items():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    def fill(self) -> None:
        with suppress(OSError), (self.folder / "ballast").open("ab", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "small")
    yield made
    made.close()


def _tree(host: Server) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(host.process.pid)], capture_output=True, text=True, check=False)
    return [host.process.pid, *map(int, found.stdout.split())]


def get(host: Server, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{host.url}{path}", headers={**HEADERS, **headers}, timeout=PATIENCE_S)


def post(host: Server, text: str, *, wait: bool = True) -> httpx.Response:
    message = {
        "message": {"messageId": text[:100], "role": "ROLE_USER", "parts": [{"text": text}]},
        "configuration": {"returnImmediately": not wait},
    }
    return httpx.post(f"{host.url}/agents/counting/message:send", json=message, headers=HEADERS, timeout=PATIENCE_S)


def paths_of(task: dict[str, Any]) -> list[str]:
    """Return the paths at which a task and the host can be read, none of which was read before."""
    agent = "/agents/counting"
    return [
        f"{agent}/tasks/{task['id']}",
        f"{agent}/tasks/{task['id']}?historyLength=1",
        f"{agent}/tasks",
        f"{agent}/tasks?pageSize=100&includeArtifacts=true&status=TASK_STATE_COMPLETED",
        agent + CARD,
        CARD,
        agent + KEYS,
        KEYS,
        "/.well-known/evidence-jwks.json",
        "/agents/",
        "/metrics",
        "/healthz",
    ]


def test_everything_can_be_read_while_the_disk_is_full(disk: SmallDisk) -> None:
    """Nothing was read before: neither a connection to read nor a key to sign has to be made now."""
    with running(AGENTS, data=disk.folder / "data", args=("--min-free-mb", "0")) as host:
        task = post(host, "kept").json()["task"]
        with disk.full(host):
            assert post(host, "lost").status_code == 503
            eventually(lambda: get(host, "/readyz").status_code == 503, "a host that is not ready")
            assert "cannot write" in get(host, "/readyz").json()["store"]
            assert {path: get(host, path).status_code for path in paths_of(task)} == dict.fromkeys(paths_of(task), 200)
            assert get(host, f"/agents/counting/tasks/{task['id']}").json() == task
            replay = {"Last-Event-ID": "1", "Accept": "text/event-stream"}
            stream = get(host, f"/agents/counting/tasks/{task['id']}:subscribe", **replay)
            assert stream.status_code == 200
            last = stream.text.strip().split("data: ")[-1]
            assert "TASK_STATE_COMPLETED" in json.dumps(json.loads(last.split("\n")[0]))
        eventually(lambda: get(host, "/readyz").status_code == 200, "a host that is ready")
        assert text_of(post(host, "after").json()["task"]) == expected("after")
        assert len(get(host, "/agents/counting/tasks").json()["tasks"]) == 2


def test_a_log_that_filled_the_disk_can_be_read(disk: SmallDisk) -> None:
    """The last commit that fitted is there, the first that did not is not, and the log can be written on."""
    with running(AGENTS, data=disk.folder / "data", args=("--min-free-mb", "0")) as host:
        task = post(host, "first").json()["task"]
        with disk.full(host):
            (disk.folder / "ballast").unlink(missing_ok=True)
            kept, size = 1, 1 << 18
            while size >= 1 << 6 and disk.mounted:
                if post(host, f"{kept} {size} {'x' * size}", wait=False).status_code == 200:
                    kept += 1
                else:
                    size >>= 1
            assert get(host, f"/agents/counting/tasks/{task['id']}").json() == task
            found = get(host, "/agents/counting/tasks?pageSize=100").json()
            assert found["totalSize"] == kept


def test_a_host_that_has_no_room_to_start_says_that_the_disk_is_full(disk: SmallDisk) -> None:
    if not disk.mounted:
        return  # a limit cannot be set before the process is there
    data = disk.folder / "data"
    with running(AGENTS, data=data, args=("--min-free-mb", "0")) as host:
        host.send("counting", "kept")
    disk.fill()
    ended = roost("serve", AGENTS, "--port", "0", "--data", data)
    assert ended.returncode == 1
    assert "the disk is full: free some space" in ended.stderr
    (disk.folder / "ballast").unlink()
    with running(AGENTS, data=data) as host:
        assert len(get(host, "/agents/counting/tasks").json()["tasks"]) == 1
