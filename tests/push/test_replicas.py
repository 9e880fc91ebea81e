"""Webhooks on one PostgreSQL: any host sets them, one calls them, and another goes on when that one dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from roost.identity.seal import make_key
from tests.doors.serving import AGENTS
from tests.doors.wire import Rest, sending
from tests.processes import FLEET, Server, roost, running
from tests.push.receiver import Receiver
from tests.push.test_configs import CREATE, DELETE, LIST
from tests.push.test_delivery import FAST, with_hook
from tests.waiting import PATIENCE_S, eventually

Start = Callable[..., AbstractContextManager[Server]]


@pytest.fixture
def store(database: str, tmp_path: Path) -> tuple[str, ...]:
    """The flags that say where it is."""
    make_key(tmp_path / "secret.key")
    return ("--store", database, "--secret-file", str(tmp_path / "secret.key"))


@pytest.fixture
def start(store: tuple[str, ...]) -> Start:
    def started(*args: str) -> AbstractContextManager[Server]:
        return running(FLEET, AGENTS, store=store, args=("--drain-s", "1", *FAST, *args))

    return started


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as http:
        yield http


def test_a_webhook_that_is_set_at_one_host_hears_of_a_task_at_another(
    start: Start, client: httpx.Client, hook: Receiver
) -> None:
    with start() as one, start() as two:
        here, there = Rest(client, one.url), Rest(client, two.url)
        task = here.begin("gate", "hold")
        eventually(lambda: "three" in str(there.get(task["id"], "hold")))
        there.ok(CREATE, {"taskId": task["id"], "id": "mine", "url": hook.url()}, "hold")
        assert [config["id"] for config in here.ok(LIST, {"taskId": task["id"]}, "hold")["configs"]] == ["mine"]
        here.task("gate", "release")
        assert hook.wait_said("COMPLETED") == ["four ", "five ", "six", "COMPLETED"]


def test_a_webhook_that_is_deleted_at_one_host_is_not_called_by_another(
    start: Start, client: httpx.Client, hook: Receiver
) -> None:
    with start() as one, start() as two:
        here, there = Rest(client, one.url), Rest(client, two.url)
        task = here.ok(
            "SendMessage",
            sending("gate", configuration={**with_hook(hook.url(), id="mine"), "returnImmediately": True}),
            "hold",
        )["task"]
        hook.wait_said("three ")
        there.ok(CREATE, {"taskId": task["id"], "id": "other", "url": hook.url("/other")}, "hold")
        there.ok(DELETE, {"taskId": task["id"], "id": "mine"}, "hold")
        here.task("gate", "release")
        hook.wait_said("COMPLETED", "/other")
        assert hook.said()[-1] == "three "


def test_when_a_host_dies_another_goes_on_with_its_webhooks(
    start: Start, client: httpx.Client, hook: Receiver, store: tuple[str, ...]
) -> None:
    hook.answers["/hook"] = 503
    with start("--push-attempts", "100", "--push-retry-s", "0.5") as one:
        sent = Rest(client, one.url).ok("SendMessage", sending("a b", configuration=with_hook(hook.url())), "stream")
        hook.wait(2)
        one.kill()
    hook.answers.clear()
    hook.calls.clear()
    with start():
        said = hook.wait_said("COMPLETED")
        assert said[0] == "SUBMITTED"
        assert len(said) == len(set(said))
        listed = roost("push", "list", *store)
        assert listed.returncode == 0, listed.stderr
        assert sent["task"]["id"] in listed.stdout
        assert f"127.0.0.1:{hook.port}" in listed.stdout
        eventually(lambda: "at rest" in roost("push", "list", *store).stdout)


def test_a_task_that_goes_on_at_another_host_takes_its_webhook_along(
    start: Start, client: httpx.Client, hook: Receiver
) -> None:
    with start() as one, start() as two:
        here, there = Rest(client, one.url), Rest(client, two.url)
        there.task("gate", "release")
        task: dict[str, Any] = here.ok(
            "SendMessage", sending("gate", configuration=with_hook(hook.url())), "interview"
        )["task"]
        hook.wait_said("INPUT_REQUIRED")
        there.ok("SendMessage", sending("Ada", taskId=task["id"]), "interview")
        eventually(lambda: hook.said().count("INPUT_REQUIRED") == 2)
        assert [word for word in hook.said() if not word.replace("_", "").isupper()] == ["Welcome. ", "Hello, Ada. "]
