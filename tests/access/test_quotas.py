"""Quotas and limits through the real door: what is too much is 429 with the time to wait, and nothing is begun."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from roost import Agent
from roost.settings import Settings
from tests.access.inside import inside, new_token
from tests.access.people import (
    ADMIN,
    ADMIN_SECRET,
    AGENTS,
    IDEMPOTENCY,
    MULTI_TENANT,
    OPERATOR,
    People,
    Person,
    Refusal,
    bearer,
    refusal,
)
from tests.doors.wire import Door, sending, text_of
from tests.processes import running
from tests.waiting import eventually

QUOTAS = {
    "principal:roost:quick.rate": 5,
    "principal:roost:worker.tasks": 1,
    "principal:roost:viewer.streams": 1,
    "principal:roost:hoarder.mb": 1,
    "tenant:metered.rate": 3,
    "tenant:chatty.rate": 3,
    "tenant:narrow.tasks": 1,
    "tenant:screen.streams": 1,
    "tenant:full.mb": 1,
    "agent:other.rate": 5,
    "surface:admin.rate": 40,
    "surface:observability.rate": 30,
}
TENANTS = {"metered", "chatty", "narrow", "full"}
SEVERAL = {"colleague": ["metered"], "both": ["default", "screen"]}


class Market:
    """Everyone is made at the beginning: later the admin routes may have no room."""

    def __init__(self, people: People) -> None:
        self.people = people
        names = ["quick", "worker", "viewer", "hoarder", "guest", "metered", "chatty", "narrow", "full", *SEVERAL]
        self.who = {
            name: people.new(name=name, tenants=[name] if name in TENANTS else SEVERAL.get(name, [])) for name in names
        }

    def __getitem__(self, name: str) -> Person:
        return self.who[name]


@pytest.fixture(scope="module")
def market() -> Iterator[Market]:
    quotas = ",".join(f"{name}={limit}" for name, limit in QUOTAS.items())
    args = ("--drain-s", "0", "--quotas", quotas, "--max-parts", "3", "--max-metadata", "100")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as people:
        yield Market(people)


def exhaust(ask: Callable[[], httpx.Response], at_least: int = 0) -> tuple[httpx.Response, int]:
    """Ask until it is too much: the answer then, and how many went before it.

    The window slides: where a minute ends in the midst of it, some more go through.
    """
    for count in range(100):
        answer = ask()
        if answer.status_code == 429:
            assert count >= at_least, "too soon"
            return answer, count
        assert answer.status_code == 200, answer.text
    raise AssertionError("there is no limit")


def refused(door: Door, operation: str) -> httpx.Response:
    """The response to a message over the quota."""
    return exhaust(lambda: door.call(operation, sending(), "teller"))[0]


def over(answer: httpx.Response, **said: str) -> Refusal:
    found = refusal(answer)
    assert found.reason == "TOO_MANY_REQUESTS"
    assert found.metadata["retry_after_seconds"] == answer.headers["retry-after"]
    assert said.items() <= found.metadata.items(), found.metadata
    return found


def tasks_of(person: Person, agent: str) -> int:
    found: int = person.rest.ok("ListTasks", {}, agent)["totalSize"]
    return found


# Rates


def test_the_requests_of_a_principal(market: Market) -> None:
    """Requests of every kind count, on both bindings, and the requests of others are still served."""
    quick = market["quick"]
    asks = iter([quick.rest, quick.rpc] * 100)
    answer, _ = exhaust(lambda: next(asks).call("ListTasks", {}, "teller"), 5)
    said = {"principal_id": "roost:quick", "quota": "rate", "limit": "5", "window_seconds": "60"}
    over(answer, **said)
    for door in quick.doors:
        over(refused(door, "SendMessage"), **said)
    assert market["guest"].status("teller") == 200


def test_the_requests_to_an_agent_whoever_sends_them(market: Market) -> None:
    asks = iter([market["guest"], market["worker"]] * 100)
    answer, _ = exhaust(lambda: next(asks).ask("GET", "/agents/other/tasks"), 5)
    over(answer, agent_id="other", quota="rate", limit="5")
    assert market["guest"].status("teller") == 200


def test_the_messages_of_a_tenant_and_not_its_reads(market: Market) -> None:
    metered, colleague = market["metered"], market["colleague"]
    doors = iter([metered.rest, colleague.rpc] * 100)
    answer, count = exhaust(lambda: next(doors).call("SendMessage", sending(), "teller"), 3)
    said = {"tenant_id": "metered", "quota": "rate", "limit": "3", "window_seconds": "60"}
    over(answer, **said)
    for door in (*metered.doors, *colleague.doors):
        over(refused(door, "SendMessage"), **said)
        over(refused(door, "SendStreamingMessage"), **said)
    assert metered.status("teller") == 200
    assert tasks_of(metered, "teller") + tasks_of(colleague, "teller") >= count


def test_the_requests_to_the_observability_surface(market: Market) -> None:
    answer, _ = exhaust(lambda: market.people.operator.ask("GET", "/metrics"))
    over(answer, surface_id="observability", quota="rate", limit="30")
    assert market["guest"].status("teller") == 200, "no other surface is harmed"
    assert market.people.operator.ask("GET", "/healthz").status_code == 200, "an orchestrator is never refused"


def test_the_requests_to_the_admin_surface(market: Market) -> None:
    answer, _ = exhaust(lambda: market.people.operator.ask("GET", f"{ADMIN}/tokens"))
    found = refusal(answer)
    assert (found.form, found.reason) == ("problem", "TOO_MANY_REQUESTS")
    assert "surface 'admin'" in found.message


async def test_the_requests_to_the_a2a_surface() -> None:
    async with inside(Settings(memory=True, quotas="surface:a2a.rate=3")) as http:
        found = [await http.get("/agents/teller/tasks") for _ in range(8)]
        assert {answer.status_code for answer in found[:3]} == {200}
        over(found[-1], surface_id="a2a", quota="rate", limit="3")
        assert (await http.get("/healthz")).status_code == 200


async def test_a_quota_without_a_name_is_for_each_of_them() -> None:
    async with inside(Settings(memory=True, quotas="principal.rate=3", admin_token=ADMIN_SECRET)) as http:
        secrets = [(await new_token(http, subject=name))["token"] for name in ("ada", "bob")]
        for secret in secrets:
            found = [await http.get("/agents/teller/tasks", headers=bearer(secret)) for _ in range(8)]
            assert {answer.status_code for answer in found[:3]} == {200}
            over(found[-1], quota="rate", limit="3")


async def test_who_is_refused_for_a_credential_uses_up_nothing() -> None:
    secret = "a-token-for-the-agents"
    async with inside(Settings(memory=True, quotas="agent.rate=3,principal.rate=3", token=secret)) as http:
        assert {(await http.get("/agents/teller/tasks")).status_code for _ in range(10)} == {401}
        assert (await http.get("/agents/teller/tasks", headers=bearer(secret))).status_code == 200
    settings = Settings(memory=True, quotas="surface.rate=3", token=secret, admin_token=ADMIN_SECRET)
    async with inside(settings) as http:
        for path in ("/agents/teller/tasks", "/agents/teller/.well-known/agent-card.json", "/api/v2/admin/tokens"):
            assert {(await http.get(path)).status_code for _ in range(8)} <= {200, 401}
        assert (await http.get("/agents/teller/tasks", headers=bearer(secret))).status_code == 200
        assert (await http.get("/api/v2/admin/tokens", headers=bearer(ADMIN_SECRET))).status_code == 200


async def test_a_message_that_is_refused_for_one_quota_uses_up_no_other() -> None:
    async with inside(Settings(memory=True, quotas="tenant.rate=6,tenant.tasks=0")) as http:
        for _ in range(10):
            over(await http.post("/agents/teller/message:send", json=sending()), quota="concurrency", limit="0")


# Tasks, streams and bytes


@pytest.mark.parametrize(("name", "said"), [("worker", "principal_id"), ("narrow", "tenant_id")])
def test_the_tasks_that_run_at_the_same_time(market: Market, name: str, said: str) -> None:
    person = market[name]
    whose = f"roost:{name}" if said == "principal_id" else name
    running = person.rest.begin("never", "turns")["id"]
    for door in person.doors:
        for operation in ("SendMessage", "SendStreamingMessage"):
            answer = door.call(operation, sending(), "teller")
            over(answer, **{said: whose, "quota": "concurrency", "limit": "1"})
    assert tasks_of(person, "teller") == 0
    assert person.rest.get(running, "turns")["id"] == running, "reads go on"
    person.rest.ok("CancelTask", {"id": running}, "turns")
    eventually(lambda: person.rest.call("SendMessage", sending(), "teller").status_code == 200)


def test_a_task_that_waits_for_an_answer_takes_no_place(market: Market) -> None:
    worker = market["worker"]
    for text in ("Ada", "Bob"):
        task = eventually(lambda: _paused(worker))
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        answered = worker.rest.ok("SendMessage", sending(text, taskId=task["id"]), "desk")["task"]
        assert text_of(answered) == f"hello {text}"


def _paused(person: Person) -> dict[str, Any] | None:
    """A new task, if there is room already; the one before may only just have ended."""
    answer = person.rest.call("SendMessage", sending(), "desk")
    return answer.json()["task"] if answer.status_code == 200 else None


def test_the_streams_that_are_open_at_the_same_time(market: Market) -> None:
    viewer = market["viewer"]
    said = {"principal_id": "roost:viewer", "quota": "streams", "limit": "1"}
    with viewer.rest.open("SendStreamingMessage", sending("never"), "turns") as frames:
        task = next(frames).data["task"]["id"]
        for door in viewer.doors:
            over(door.call("SubscribeToTask", {"id": task}, "turns"), **said)
            over(door.call("SendStreamingMessage", sending(), "teller"), **said)
        assert tasks_of(viewer, "teller") == 0, "no task was begun for a stream that could not be"
        assert viewer.rest.call("SendMessage", sending(), "teller").status_code == 200
    eventually(lambda: _streams(viewer.rest, task))
    viewer.rest.ok("CancelTask", {"id": task}, "turns")


def test_a_stream_counts_with_the_tenant_of_its_task(market: Market) -> None:
    """However the tenant was chosen."""
    both = market["both"]
    said = {"tenant_id": "screen", "quota": "streams", "limit": "1"}
    chosen = sending("never", metadata={"tenant_id": "screen"})
    with both.rest.open("SendStreamingMessage", chosen, "turns") as frames:
        task = next(frames).data["task"]["id"]
        for door in both.doors:
            again = sending("never", metadata={"tenant_id": "screen"})
            over(door.call("SendStreamingMessage", again, "turns"), **said)
            over(door.call("SubscribeToTask", {"id": task}, "turns"), **said)
        frames = both.rest.stream("SendStreamingMessage", sending("elsewhere"), "teller")
        assert "default" in str(frames)
    both.rest.ok("CancelTask", {"id": task}, "turns")


def _streams(door: Door, task: str) -> bool:
    with door.http.stream(
        "GET", f"{door.base}/agents/turns/tasks/{task}:subscribe", headers={"A2A-Version": "1.0"}
    ) as it:
        return it.status_code == 200


@pytest.mark.parametrize(("name", "said"), [("hoarder", "principal_id"), ("full", "tenant_id")])
def test_the_bytes_that_are_kept(market: Market, name: str, said: str) -> None:
    person = market[name]
    whose = f"roost:{name}" if said == "principal_id" else name
    heavy = sending("x" * 1_200_000, messageId=str(uuid.uuid4()))
    first = person.rest.ok("SendMessage", heavy, "teller")["task"]["id"]
    answer = eventually(
        lambda: found if (found := person.rest.call("SendMessage", sending(), "teller")).status_code == 429 else None
    )
    over(answer, **{said: whose, "quota": "storage", "limit": "1"})
    over(person.rpc.call("SendMessage", sending(), "teller"), **{said: whose, "quota": "storage"})
    assert person.rest.get(first, "teller")["id"] == first
    again = person.rest.call("SendMessage", heavy, "teller")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")


# Messages that come again


def test_a_message_that_comes_again_is_answered_though_there_is_no_room_for_another(market: Market) -> None:
    """The answer is on record: it costs no task and no message."""
    worker = market["worker"]
    known = sending("known", messageId=str(uuid.uuid4()))
    plain = sending("plain", messageId=str(uuid.uuid4()))
    asked = {"A2A-Extensions": IDEMPOTENCY}
    eventually(lambda: worker.rest.call("SendMessage", known, "teller").status_code == 200)
    eventually(lambda: worker.rest.call("SendMessage", plain, "teller", asked).status_code == 200)
    running = eventually(lambda: _begun(worker))
    for door in worker.doors:
        over(door.call("SendMessage", sending(), "teller"), quota="concurrency")
        again = door.call("SendMessage", known, "teller")
        assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
        again = door.call("SendMessage", plain, "teller", asked)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
        frames = door.stream("SendStreamingMessage", known, "teller")
        assert frames[-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    worker.rest.ok("CancelTask", {"id": running}, "turns")


def _begun(person: Person) -> str | None:
    params = sending("never", configuration={"returnImmediately": True})
    answer = person.rest.call("SendMessage", params, "turns")
    return answer.json()["task"]["id"] if answer.status_code == 200 else None


def test_a_message_that_comes_again_is_answered_though_its_tenant_has_sent_too_many(market: Market) -> None:
    chatty = market["chatty"]
    known = sending("known", messageId=str(uuid.uuid4()))
    first = chatty.rest.ok("SendMessage", known, "teller")["task"]["id"]
    exhaust(lambda: chatty.rest.call("SendMessage", sending(), "teller"))
    again = chatty.rpc.call("SendMessage", known, "teller")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["result"]["task"]["id"] == first


# What an enforced multi-tenant/v1 gives by itself


async def test_an_enforced_tenant_has_ten_tasks_at_the_same_time_unless_the_operator_says_otherwise() -> None:
    agent, gate = Agent("waiter", parallel=True), asyncio.Event()

    @agent.on_message
    async def wait(task):  # type: ignore[no-untyped-def]
        """Waits."""
        await gate.wait()

    async with inside(Settings(memory=True, multi_tenant="enforced"), agent) as http:
        headers = {"A2A-Extensions": MULTI_TENANT}
        at_once = {"returnImmediately": True}

        async def send(tenant: str) -> httpx.Response:
            body = sending(metadata={"tenant_id": tenant}, configuration=at_once)
            return await http.post("/agents/waiter/message:send", json=body, headers=headers)

        assert {(await send("acme")).status_code for _ in range(10)} == {200}
        over(await send("acme"), tenant_id="acme", quota="concurrency", limit="10")
        assert (await send("globex")).status_code == 200
        gate.set()


# Limits of a message


def test_a_message_of_too_many_parts_is_refused(market: Market) -> None:
    for door in market["guest"].doors:
        assert door.ok("SendMessage", sending(parts=[{"text": "x"}] * 3), "teller")["task"]
        found = refusal(door.call("SendMessage", sending(parts=[{"text": "x"}] * 4), "teller"))
        assert (found.reason, found.fields) == ("INVALID_PARAMS", ["message.parts"])


def test_metadata_that_is_too_long_is_refused(market: Market) -> None:
    long = {"note": "x" * 100}
    for door in market["guest"].doors:
        assert door.ok("SendMessage", sending(metadata={"note": "x" * 80}), "teller")["task"]
        found = refusal(door.call("SendMessage", sending(metadata=long), "teller"))
        assert (found.reason, found.fields) == ("INVALID_PARAMS", ["message.metadata"])
        found = refusal(door.call("SendMessage", {**sending(), "metadata": long}, "teller"))
        assert (found.reason, found.fields) == ("INVALID_PARAMS", ["metadata"])
