"""The journal's files are taken from under a host: nothing is acknowledged into a file that nobody finds again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import Server, roost, running
from tests.waiting import PATIENCE_S, eventually

from .agents import expected
from .client import HEADERS, text_of
from .conftest import AGENTS

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="flock is apart from POSIX locks only there")
TAKE = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, {how}); print('taken', flush=True); input()"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def host(data: Path) -> Iterator[Server]:
    with running(AGENTS, data=data) as made:
        yield made


def read(host: Server, task: dict[str, Any]) -> httpx.Response:
    return httpx.get(f"{host.url}/agents/counting/tasks/{task['id']}", headers=HEADERS, timeout=PATIENCE_S)


def readiness(host: Server, status: int) -> httpx.Response | None:
    answer = httpx.get(f"{host.url}/readyz", timeout=PATIENCE_S)
    return answer if answer.status_code == status else None


def reports(host: Server, *said: str) -> bool:
    ready = readiness(host, 503)
    return ready is not None and all(words in ready.json().get("store", "") for words in said)


def refuses(host: Server, *said: str) -> None:
    """Check that the host says why it accepts nothing, and accepts nothing."""
    eventually(lambda: reports(host, *said), f"a readiness that says {said}")
    message = {"message": {"messageId": "lost", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
    answer = httpx.post(f"{host.url}/agents/counting/message:send", json=message, headers=HEADERS, timeout=PATIENCE_S)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert httpx.get(f"{host.url}/healthz").status_code == 200


def refuses_at_once(host: Server, *said: str) -> None:
    """Check that the host accepts nothing although nobody has asked whether it is ready."""
    message = {"message": {"messageId": "lost at once", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
    answer = httpx.post(f"{host.url}/agents/counting/message:send", json=message, headers=HEADERS, timeout=PATIENCE_S)
    assert answer.status_code == 503
    refuses(host, *said)


def accepts(host: Server, text: str) -> dict[str, Any]:
    eventually(lambda: readiness(host, 200), "a host that is ready")
    task = host.send("counting", text)
    assert text_of(task) == expected(text)
    return task


def ids_of(host: Server) -> set[str]:
    found = httpx.get(f"{host.url}/agents/counting/tasks", headers=HEADERS, timeout=PATIENCE_S).json()
    return {task["id"] for task in found["tasks"]}


def test_a_journal_that_was_deleted_takes_no_messages(host: Server, data: Path) -> None:
    """The open file can still be read. A second journal is not made in its place."""
    kept = accepts(host, "kept")
    (data / "journal.db").unlink()
    refuses_at_once(host, "journal.db was deleted or moved away", "Move it back")
    assert read(host, kept).json()["id"] == kept["id"]
    assert ids_of(host) == {kept["id"]}
    assert not (data / "journal.db").exists()
    host.stop()
    assert "journal.db was deleted or moved away" in host.stderr


def test_a_journal_that_was_moved_away_and_back_goes_on_where_it_was(host: Server, data: Path) -> None:
    kept = accepts(host, "kept")
    (data / "journal.db").rename(data / "elsewhere.db")
    refuses_at_once(host, "journal.db was deleted or moved away")
    (data / "elsewhere.db").rename(data / "journal.db")
    more = accepts(host, "more")
    assert ids_of(host) == {kept["id"], more["id"]}  # the refused message is no task


@pytest.mark.parametrize("how", ["renamed over", "copied beside"])
def test_a_journal_that_was_replaced_while_the_host_runs_takes_no_messages(
    host: Server, data: Path, tmp_path: Path, how: str
) -> None:
    kept = accepts(host, "kept")
    assert roost("backup", tmp_path / "backup.db", "--data", data).returncode == 0
    late = accepts(host, "late")
    if how == "copied beside":
        (data / "journal.db").unlink()
    shutil.copy(tmp_path / "backup.db", data / "restored.db")
    (data / "restored.db").replace(data / "journal.db")
    refuses_at_once(host, "journal.db was replaced while the host has another file open")
    assert ids_of(host) == {kept["id"], late["id"]}


@pytest.mark.parametrize("name", ["journal.db-wal", "journal.db-shm"])
def test_a_log_or_index_that_was_deleted_loses_nothing_if_the_host_is_stopped(data: Path, name: str) -> None:
    with running(AGENTS, data=data) as host:
        kept = accepts(host, "kept")
        (data / name).unlink()
        refuses(host, f"{name} was deleted or moved away", "Stop the host with SIGTERM")
        assert ids_of(host) == {kept["id"]}
        host.stop()
    with running(AGENTS, data=data) as host:
        assert ids_of(host) == {kept["id"]}
        accepts(host, "after")


def test_a_log_that_was_replaced_takes_no_messages(host: Server, data: Path) -> None:
    kept = accepts(host, "kept")
    (data / "new.log").touch()
    (data / "new.log").replace(data / "journal.db-wal")
    refuses(host, "journal.db-wal was replaced", "Stop the host with SIGTERM")
    assert ids_of(host) == {kept["id"]}


def test_a_folder_that_was_moved_and_moved_back_goes_on_where_it_was(host: Server, data: Path, tmp_path: Path) -> None:
    kept = accepts(host, "kept")
    data.rename(tmp_path / "moved")
    refuses_at_once(host, "journal.db was deleted or moved away")
    assert ids_of(host) == {kept["id"]}
    (tmp_path / "moved").rename(data)
    more = accepts(host, "more")
    assert ids_of(host) == {kept["id"], more["id"]}


def test_a_folder_that_was_deleted_takes_no_messages_and_another_host_may_begin_anew(host: Server, data: Path) -> None:
    kept = accepts(host, "kept")
    shutil.rmtree(data)
    refuses_at_once(host, "journal.db was deleted or moved away")
    assert not data.exists()
    with running(AGENTS, data=data) as second:
        assert ids_of(second) == set()
        accepts(second, "anew")
        refuses(host, "journal.db was replaced")
        assert ids_of(host) == {kept["id"]}


def test_a_writer_that_dies_meanwhile_writes_into_no_other_file(host: Server, data: Path) -> None:
    """Its successor opens the path anew, and must find the file that its predecessor had."""
    kept = accepts(host, "kept")
    [writer] = [pid for pid in children_of(host) if "sqlite_process" in command_of(pid)]
    (data / "journal.db").rename(data / "elsewhere.db")
    (data / "journal.db").touch()
    os.kill(writer, 9)
    eventually(lambda: reports(host, "journal.db was replaced"), "what is wrong")
    refuses(host, "journal.db was replaced")
    assert (data / "journal.db").stat().st_size == 0
    (data / "elsewhere.db").replace(data / "journal.db")
    more = accepts(host, "more")
    assert ids_of(host) >= {kept["id"], more["id"]}


def children_of(host: Server) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(host.process.pid)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


# Two hosts


def refused_second(data: Path) -> None:
    ended = roost("serve", AGENTS, "--port", "0", "--data", data)
    assert ended.returncode == 1
    assert "in use by another roost process" in ended.stderr


def linked(data: Path, link: Callable[[Path, Path], None]) -> Path:
    """Another folder with a link to the journal."""
    other = data.with_name("other")
    other.mkdir()
    link(data / "journal.db", other / "journal.db")
    return other


@ONLY_LINUX
def test_a_second_host_is_kept_out_though_the_lock_file_was_deleted(host: Server, data: Path) -> None:
    (data / "journal.lock").unlink()
    refused_second(data)
    accepts(host, "still here")


def test_a_lock_file_that_was_deleted_is_made_again_for_hosts_of_earlier_releases(host: Server, data: Path) -> None:
    (data / "journal.lock").unlink()

    def made_again() -> bool:
        accepts(host, "one")
        return (data / "journal.lock").exists()

    eventually(made_again, "a new lock file")
    attempt = TAKE.format(how="fcntl.LOCK_EX | fcntl.LOCK_NB")
    done = subprocess.run(
        [sys.executable, "-c", attempt, data / "journal.lock"], capture_output=True, text=True, check=False
    )
    assert "BlockingIOError" in done.stderr


def test_a_host_whose_lock_file_an_earlier_release_has_taken_takes_no_messages(host: Server, data: Path) -> None:
    lock = data / "new.lock"
    lock.touch()
    command = [sys.executable, "-c", TAKE.format(how="fcntl.LOCK_EX"), lock]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        lock.replace(data / "journal.lock")
        refuses(host, "another roost process has locked a new one")
        other.kill()
    accepts(host, "alone again")


@ONLY_LINUX
@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard link", "symbolic link"])
def test_a_second_host_is_kept_out_on_any_path_to_the_file(
    host: Server, data: Path, link: Callable[[Path, Path], None]
) -> None:
    refused_second(linked(data, link))
    accepts(host, "still here")


def test_a_second_host_is_kept_out_on_a_link_to_the_folder(host: Server, data: Path) -> None:
    data.with_name("link").symlink_to(data)
    refused_second(data.with_name("link"))
    accepts(host, "still here")


@ONLY_LINUX
def test_a_second_host_is_kept_out_of_a_folder_that_was_moved(host: Server, data: Path, tmp_path: Path) -> None:
    accepts(host, "one")
    data.rename(tmp_path / "moved")
    (tmp_path / "moved" / "journal.lock").unlink()
    refused_second(tmp_path / "moved")


def test_a_journal_behind_a_symbolic_link_is_checked_where_it_is(data: Path) -> None:
    with running(AGENTS, data=data) as host:
        kept = accepts(host, "kept")
    other = linked(data, os.symlink)
    with running(AGENTS, data=other) as host:
        assert ids_of(host) == {kept["id"]}
        accepts(host, "more")
        (other / "journal.db").unlink()
        refuses(host, "journal.db was deleted or moved away")
