"""Commands that work on the store itself, and what a host says of a store that it cannot use."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import FLEET, Server, roost, running
from tests.waiting import eventually

VERSION = {"A2A-Version": "1.0"}


def tasks_of(host: Server, agent: str = "hello") -> list[str]:
    found = httpx.get(f"{host.url}/agents/{agent}/tasks", headers=VERSION).json()
    return sorted(task["id"] for task in found["tasks"])


def where(place: Path | tuple[str, ...]) -> tuple[str, ...]:
    return ("--data", str(place)) if isinstance(place, Path) else place


# Backup and restore


def test_a_backup_of_a_running_host_is_restored_into_another_folder(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path / "data") as host:
        done = host.send("hello", "Ada")
        asked = host.send("ask", "hi")
        made = roost("backup", tmp_path / "copy.db", "--json", "--data", tmp_path / "data")
        assert made.returncode == 0, made.stderr
        assert json.loads(made.stdout) == {
            "file": str(tmp_path / "copy.db"),
            "bytes": (tmp_path / "copy.db").stat().st_size,
        }
        late = host.send("hello", "too late")
    back = roost("restore", tmp_path / "copy.db", "--data", tmp_path / "other")
    assert back.returncode == 0, back.stderr
    with running(FLEET, data=tmp_path / "other") as host:
        assert tasks_of(host) == [done["id"]]
        assert late["id"] not in tasks_of(host)
        answered = host.send("ask", "Bo", task=asked["id"])
        assert answered["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_restore_replaces_nothing_unless_it_is_told_to_and_never_under_a_running_host(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path / "data") as host:
        host.send("hello", "Ada")
        assert roost("backup", tmp_path / "copy.db", "--data", tmp_path / "data").returncode == 0
        refused = roost("restore", tmp_path / "copy.db", "--force", "--data", tmp_path / "data")
        assert refused.returncode == 1
        assert "nothing was restored" in refused.stderr
        assert len(tasks_of(host)) == 1
    refused = roost("restore", tmp_path / "copy.db", "--data", tmp_path / "data")
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert roost("restore", tmp_path / "copy.db", "--force", "--data", tmp_path / "data").returncode == 0
    broken = tmp_path / "broken.db"
    broken.write_bytes((tmp_path / "copy.db").read_bytes()[:5000])
    refused = roost("restore", broken, "--force", "--data", tmp_path / "data")
    assert refused.returncode == 1
    with running(FLEET, data=tmp_path / "data") as host:
        assert len(tasks_of(host)) == 1


def test_a_backup_of_postgresql_is_restored_into_another_database(
    tmp_path: Path, database: str, key: Path, request: pytest.FixtureRequest
) -> None:
    from tools.services import drop_database, new_database

    place = ("--store", database, "--secret-file", str(key))
    with running(FLEET, store=place) as host:
        done = host.send("hello", "Ada")
        asked = host.send("ask", "hi")
        made = roost("backup", tmp_path / "copy.zip", *place)
        assert made.returncode == 0, made.stderr
        refused = roost("restore", tmp_path / "copy.zip", *place)
        assert refused.returncode == 1
        assert "already has tasks" in refused.stderr
    other = new_database(request.getfixturevalue("postgres_server").url)
    there = ("--store", other, "--secret-file", str(key))
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes((tmp_path / "copy.zip").read_bytes()[:-100])
    assert roost("restore", damaged, *there).returncode == 1
    back = roost("restore", tmp_path / "copy.zip", "--json", *there)
    assert back.returncode == 0, back.stderr
    with running(FLEET, store=there) as host:
        assert tasks_of(host) == [done["id"]]
        assert host.send("ask", "Bo", task=asked["id"])["status"]["state"] == "TASK_STATE_COMPLETED"
        assert host.send("hello", "new")["id"] in tasks_of(host)
    drop_database(other)


# Pruning


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_ended_tasks_are_pruned_while_the_host_runs(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    place: Any = tmp_path / "data"
    options: dict[str, Any] = {"data": place}
    if store == "postgresql":
        place = ("--store", request.getfixturevalue("database"), "--secret-file", str(request.getfixturevalue("key")))
        options = {"store": place}
    with running(FLEET, **options) as host:
        tasks = [host.send("hello", str(number))["id"] for number in range(5)]
        asked = host.send("ask", "hi")["id"]
        kept = roost("tasks", "prune", "--older-than", "1h", *where(place))
        assert kept.stdout == "0 tasks deleted\n"
        gone = roost("tasks", "prune", "--keep", "2", "--agent", "hello", "--json", *where(place))
        assert json.loads(gone.stdout) == {"pruned": {"hello": 3}}
        assert tasks_of(host) == sorted(tasks[3:])
        missing = httpx.get(f"{host.url}/agents/hello/tasks/{tasks[0]}", headers=VERSION)
        assert missing.status_code == 404
        everything = roost("tasks", "prune", "--older-than", "0s", *where(place))
        assert everything.stdout == "2 tasks deleted\n"
        assert tasks_of(host, "ask") == [asked], "what waits is not over"


def test_prune_asks_which(tmp_path: Path) -> None:
    refused = roost("tasks", "prune", "--data", tmp_path)
    assert (refused.returncode, "--older-than" in refused.stderr) == (1, True)
    refused = roost("tasks", "prune", "--older-than", "soon", "--data", tmp_path)
    assert (refused.returncode, "30d" in refused.stderr) == (1, True)
    refused = roost("tasks", "prune", "--keep", "1", "--data", tmp_path / "nowhere")
    assert (refused.returncode, "no journal" in refused.stderr) == (1, True)


def test_retention_deletes_by_itself_and_the_banner_says_when(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path / "data", args=("--retention-tasks", "1")) as host:
        assert "Tasks are kept: 30 days after their end, at most the newest 1 of each agent" in host.stderr
        tasks = [host.send("hello", str(number))["id"] for number in range(3)]
        eventually(lambda: tasks_of(host) == [tasks[-1]])


# Stores that cannot be used


def test_a_damaged_journal_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "journal.db").write_bytes(b"this is no database" * 500)
    ended = roost("serve", FLEET, "--port", "0", "--data", tmp_path / "data")
    assert ended.returncode == 1
    assert "roost restore" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_host_on_one_folder_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path / "data") as host:
        ended = roost("serve", FLEET, "--port", "0", "--data", tmp_path / "data")
        assert ended.returncode == 1
        assert "in use by another roost process" in ended.stderr
        assert host.send("hello", "Ada")["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_disk_with_too_little_room_takes_no_new_tasks(tmp_path: Path) -> None:
    with running(FLEET, data=tmp_path / "data", args=("--min-free-mb", str(2**40))) as host:
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "x"}]}
        refused = httpx.post(f"{host.url}/agents/hello/message:send", headers=VERSION, json={"message": message})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "60"
        assert "disk" in refused.json()["error"]["message"]
        ready = httpx.get(f"{host.url}/readyz")
        assert (ready.status_code, "disk" in ready.json()) == (503, True)
