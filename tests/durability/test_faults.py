"""A disk that refuses: nothing is acknowledged, everyone is told why, and all goes on when it works again."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.processes import ROOT, Server, environment
from tests.waiting import PATIENCE_S, eventually

from .agents import expected
from .client import CALLS, HEADERS, sent, text_of
from .conftest import Disk


@contextmanager
def broken(disk: Disk) -> Iterator[None]:
    disk.tell("fail")
    try:
        yield
    finally:
        disk.untell("fail")


def post(server: Server, how: str, text: str, agent: str = "counting") -> httpx.Response:
    call = CALLS[how]
    return httpx.post(
        f"{server.url}/agents/{agent}{call.path}", json=call.body(text), headers=HEADERS, timeout=PATIENCE_S
    )


def listed(server: Server, agent: str = "counting") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{server.url}/agents/{agent}/tasks", headers=HEADERS).json()["tasks"]
    return found


def failed_commits(server: Server) -> int:
    found = re.search(r"^roost_commit_failures_total (\S+)", httpx.get(f"{server.url}/metrics").text, re.MULTILINE)
    assert found is not None
    return int(float(found.group(1)))


def readiness(server: Server, status: int) -> httpx.Response | None:
    """The answer of /readyz, if it has this status."""
    answer = httpx.get(f"{server.url}/readyz", timeout=PATIENCE_S)
    return answer if answer.status_code == status else None


def expect_unavailable(how: str, response: httpx.Response) -> None:
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    error = response.json()["error"]
    if CALLS[how].method is None:
        assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
        details = error["details"]
    else:
        assert (response.json()["id"], error["code"]) == (7, -32030)
        details = error["data"]
    assert details[0]["reason"] == "UNAVAILABLE"


def test_a_message_that_cannot_be_kept_is_refused_and_is_no_task_afterwards(server: Server, disk: Disk) -> None:
    assert post(server, "rest-send", "before").status_code == 200
    with broken(disk):
        for how in CALLS:
            expect_unavailable(how, post(server, how, "lost"))
    answer = post(server, "rest-send", "after")
    assert answer.status_code == 200
    assert text_of(answer.json()["task"]) == expected("after")
    assert len(listed(server)) == 2


def test_readyz_says_what_is_wrong_while_it_is_and_healthz_is_not_concerned(server: Server, disk: Disk) -> None:
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    with broken(disk):
        answer = eventually(lambda: readiness(server, 503), "a host that is not ready")
        assert "cannot write" in answer.json()["store"]
        assert "disk I/O error" in answer.json()["store"]
        assert httpx.get(f"{server.url}/healthz").status_code == 200
    assert eventually(lambda: readiness(server, 200), "a host that is ready")


def test_a_running_task_finishes_after_the_fault_and_its_stream_has_no_gap(server: Server, disk: Disk) -> None:
    with sent(server.url, "held", "rest-stream", "hello") as stream:
        stream.read_until(b'"one"')
        with broken(disk):
            before = failed_commits(server)
            disk.tell("go")
            eventually(lambda: failed_commits(server) > before, "a failed commit")
            assert stream.is_silent()
        frames = stream.frames()
    ids = [number for number, _ in frames]
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert "TASK_STATE_COMPLETED" in json.dumps(frames[-1])
    [task] = listed(server, "held")
    whole = httpx.get(f"{server.url}/agents/held/tasks/{task['id']}", headers=HEADERS).json()
    assert text_of(whole) == "one two"


def test_a_running_task_that_waits_for_the_disk_can_be_read_as_it_is_in_the_journal(server: Server, disk: Disk) -> None:
    with sent(server.url, "held", "rest-stream", "hello") as stream:
        stream.read_until(b'"one"')
        [task] = listed(server, "held")
        with broken(disk):
            before = failed_commits(server)
            disk.tell("go")
            eventually(lambda: failed_commits(server) > before, "a failed commit")
            url = f"{server.url}/agents/held/tasks/{task['id']}"
            found = httpx.get(url, headers=HEADERS, timeout=PATIENCE_S).json()
            assert (found["status"]["state"], text_of(found)) == ("TASK_STATE_WORKING", "one")
            assert [one["status"]["state"] for one in listed(server, "held")] == ["TASK_STATE_WORKING"]
        stream.read_all()
    assert "TASK_STATE_COMPLETED" in json.dumps(listed(server, "held"))


def test_a_message_is_refused_while_a_running_task_waits_for_the_disk(server: Server, disk: Disk) -> None:
    with sent(server.url, "held", "rest-stream", "hello") as stream:
        stream.read_until(b'"one"')
        with broken(disk):
            before = failed_commits(server)
            disk.tell("go")
            eventually(lambda: failed_commits(server) > before, "a failed commit")
            expect_unavailable("rest-send", post(server, "rest-send", "lost"))
        stream.read_all()


def test_what_was_acknowledged_before_the_fault_survives_a_crash_in_it(
    start: Callable[[], AbstractContextManager[Server]], disk: Disk
) -> None:
    with start() as server:
        task = post(server, "rest-send", "kept").json()["task"]
        with broken(disk):
            expect_unavailable("rest-send", post(server, "rest-send", "lost"))
            server.kill()
    with start() as server:
        found = httpx.get(f"{server.url}/agents/counting/tasks/{task['id']}", headers=HEADERS)
        assert found.json() == task


FAILED_COMMIT = """
import asyncio, os, sys
from pathlib import Path
from roost.engine.store_types import StoreUnavailable
from roost.stores.sqlite import SQLiteStore
from tests.stores.samples import creation

async def main():
    fail = Path(os.environ["SYNCGATE"]) / "fail"
    store = SQLiteStore(Path(sys.argv[1]))
    fail.touch()
    try:
        await store.commit([creation("refused")])
    except StoreUnavailable:
        print("refused")
    fail.unlink()
    print(await store.read_task("refused"))
    print(await store.commit([creation("accepted")]))
    print(await store.read_task("refused"))
    await store.close()

asyncio.run(main())
"""


def test_a_commit_whose_sync_failed_is_not_there_afterwards(disk: Disk, tmp_path: Path) -> None:
    """Its frames are in the file: a connection that reads the file anew would take them for committed."""
    done = subprocess.run(
        [sys.executable, "-c", FAILED_COMMIT, str(tmp_path / "data")],
        env=environment(disk.environment()),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split("\n") == ["refused", "None", "[None]", "None", ""], done.stderr
