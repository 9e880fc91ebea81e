"""A host that was frozen, or cut off from its store, costs no task an attempt; a task that kills its hosts is found."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from tools.services import new_database, postgres

from tests.doors.wire import metrics
from tests.processes import Server, running
from tests.replicas.conftest import AGENTS, Start
from tests.replicas.test_replicas import get, said, state, text
from tests.waiting import PATIENCE_S, eventually

MORE_THAN_ALLOWED = 6
DEATHS = 7
"""Two in the crowd, one with a few others, four alone."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def send(host: Server, count: int) -> dict[str, str]:
    """Begin patient tasks, and return the text that each ends with by its id."""
    return {host.send("patient", f"two {number}", wait=False)["id"]: f"one two {number}" for number in range(count)}


def called(log: Path, tasks: dict[str, str]) -> int:
    return min(said(log, task_id).count("called") for task_id in tasks)


def completed(host: Server, log: Path, tasks: dict[str, str]) -> None:
    (log / "all.go").touch()
    for task_id, ending in tasks.items():
        eventually(lambda task_id=task_id: state(host, "patient", task_id) in ("COMPLETED", "FAILED"))
        assert (state(host, "patient", task_id), text(get(host, "patient", task_id))) == ("COMPLETED", ending)


def lapses(host: Server) -> float:
    with httpx.Client(timeout=PATIENCE_S) as http:
        series = metrics(http, host.url)
    return series["roost_leases_lost_total", frozenset()] if series["roost_lease_held", frozenset()] else -1


def test_hosts_that_are_frozen_again_and_again_cost_no_task_an_attempt(start: Start, log: Path) -> None:
    with start() as a, start() as b:
        tasks = send(a, 5)
        eventually(lambda: called(log, tasks) == 1)
        alone = {a.send("patient", "two", wait=False)["id"]: "one two"}
        tasks |= alone
        for number in range(MORE_THAN_ALLOWED):
            frozen = (a, b)[number % 2]
            before = lapses(frozen)
            frozen.process.send_signal(signal.SIGSTOP)
            try:
                eventually(lambda number=number: called(log, tasks) >= 2 + number, "the other host runs all tasks")
            finally:
                frozen.process.send_signal(signal.SIGCONT)
            eventually(lambda frozen=frozen, before=before: lapses(frozen) > before, "another lease")
        completed(a, log, tasks)


def test_a_store_that_is_away_again_and_again_costs_no_task_an_attempt(tmp_path: Path, key: Path, log: Path) -> None:
    log.mkdir()
    with postgres(fsync=False) as server:
        store = ("--store", new_database(server.url), "--secret-file", str(key))
        with running(AGENTS, store=store, env={"AGENT_LOG": str(log)}) as host:
            tasks = send(host, 1)
            for number in range(MORE_THAN_ALLOWED):
                eventually(lambda number=number: called(log, tasks) == 1 + number, "the task runs")
                server.kill()
                host.wait_said("this host lost its lease", 1 + number)
                server.start()
            completed(host, log, tasks)


class Supervised:
    """A host that is started again whenever it has died."""

    def __init__(self, start: Callable[[], AbstractContextManager[Server]]) -> None:
        self.start = start
        self.deaths = -1
        self.context: AbstractContextManager[Server] | None = None
        self.server: Server | None = None

    def look(self) -> Server | None:
        """Return the host, or None if it has died again."""
        if self.server is None or self.server.process.poll() is not None:
            self.close()
            self.deaths += 1
            self.context = self.start()
            with suppress(AssertionError):  # it may die before it says that it serves
                self.server = self.context.__enter__()
        return self.server

    def close(self) -> None:
        if self.server is not None and self.context is not None:
            self.context.__exit__(None, None, None)
        self.server = None


@contextmanager
def supervised(*starts: Callable[[], AbstractContextManager[Server]]) -> Iterator[list[Supervised]]:
    hosts = [Supervised(start) for start in starts]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.close()


def until_failed(hosts: list[Supervised], task_id: str) -> None:
    """Restart hosts that die until the killer is FAILED."""
    deadline = time.monotonic() + 4 * PATIENCE_S
    while time.monotonic() < deadline:
        for host in hosts:
            server = host.look()
            with suppress(httpx.TransportError):
                if server is not None and state(server, "killer", task_id) == "FAILED":
                    return
        time.sleep(0.05)
    raise AssertionError("the killer is not found")


def test_a_task_that_kills_its_host_is_failed_and_the_crowd_beside_it_is_not(tmp_path: Path, log: Path) -> None:
    """On SQLite, where a supervisor starts the host again."""
    log.mkdir()
    env = {"AGENT_LOG": str(log)}
    with supervised(lambda: running(AGENTS, data=tmp_path / "data", env=env)) as hosts:
        check_killer(hosts, log)


def test_a_task_that_kills_replica_after_replica_is_failed_and_no_other(start: Start, log: Path) -> None:
    with supervised(start, start) as hosts:
        check_killer(hosts, log)


def check_killer(hosts: list[Supervised], log: Path) -> None:
    first = next(server for host in hosts if (server := host.look()) is not None)
    for host in hosts:
        host.look()
    tasks = send(first, 15)
    eventually(lambda: called(log, tasks) == 1)
    killer = first.send("killer", "go", wait=False)["id"]
    (log / f"{killer}.go").touch()
    until_failed(hosts, killer)
    last = next(server for host in hosts if (server := host.look()) is not None)
    assert "The host died 4 times while this task was running" in str(get(last, "killer", killer)["status"]["message"])
    assert said(log, killer) == ["called"] * DEATHS
    assert sum(host.deaths for host in hosts) == DEATHS
    completed(last, log, tasks)
