"""Tenants: who belongs to which, which one a message is for, and that all that comes of it says so."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.settings import Settings
from tests.access.inside import inside
from tests.access.people import (
    AGENTS,
    CARD,
    MULTI_TENANT,
    OPERATOR,
    People,
    Person,
    bearer,
    refusal,
)
from tests.doors.wire import Door, sending, text_of
from tests.processes import running
from tests.push.receiver import receiving

ACTIVATED = {"A2A-Extensions": MULTI_TENANT}
MALFORMED = ["", "-dash", ".dot", "two words", "slash/es", "ümlaut", "a" * 129, "semi;colon", "null\x00", "line\n"]


def tenant_of(thing: dict[str, Any]) -> str | None:
    found: str | None = thing.get("metadata", {}).get("tenant_id")
    return found


def declared(person: Person) -> dict[str, Any] | None:
    """The extension on the card."""
    extensions = person.ask("GET", f"/agents/teller{CARD}").json()["capabilities"]["extensions"]
    return next((extension for extension in extensions if extension["uri"] == MULTI_TENANT), None)


# A message may choose (declared, the default)


class Club:
    def __init__(self, people: People) -> None:
        self.people = people
        self.member = people.new(name="member", tenants=["acme", "globex"])
        self.acme = people.new(name="acme", tenants=["acme"])
        self.nobody = people.new(name="nobody")


@pytest.fixture(scope="module")
def club() -> Iterator[Club]:
    args = ("--drain-s", "0", "--push-allow-hosts", "127.0.0.1")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as people:
        yield Club(people)


@pytest.fixture(params=["rest", "rpc"])
def member(request: pytest.FixtureRequest, club: Club) -> Door:
    """Somebody of two tenants, on each binding in turn."""
    found: Door = getattr(club.member, request.param)
    return found


def test_a_task_goes_to_the_first_tenant_or_to_the_one_that_is_chosen(member: Door) -> None:
    assert text_of(member.task("hi", "teller")) == "roost:member acme hi"
    chosen = {"metadata": {"tenant_id": "globex"}}
    assert text_of(member.task("hi", "teller", **chosen)) == "roost:member globex hi"
    by_header = member.ok("SendMessage", sending("hi"), "teller", {"X-Tenant-Id": "globex"})["task"]
    assert text_of(by_header) == "roost:member globex hi"
    both = member.ok("SendMessage", sending("hi", **chosen), "teller", {"X-Tenant-Id": "globex"})["task"]
    assert text_of(both) == "roost:member globex hi"


def test_all_that_comes_of_a_message_names_its_tenant(member: Door) -> None:
    params = sending("hi", metadata={"tenant_id": "globex"})
    frames = member.stream("SendStreamingMessage", params, "teller")
    things = [next(iter(frame.data.values())) for frame in frames]
    assert len(things) >= 5
    assert {tenant_of(thing) for thing in things} == {"globex"}
    task = things[0]["id"]
    assert tenant_of(member.get(task, "teller")) == "globex"
    assert tenant_of(member.task("hi", "teller", metadata={"tenant_id": "globex"})) == "globex"
    listed = member.ok("ListTasks", {}, "teller", {"X-Tenant-Id": "globex"})["tasks"]
    assert {tenant_of(found) for found in listed} == {"globex"}
    replayed = member.stream("SubscribeToTask", {"id": task}, "teller", {"Last-Event-ID": "1"})
    assert {tenant_of(next(iter(frame.data.values()))) for frame in replayed} == {"globex"}


def test_the_default_tenant_is_named_only_to_those_who_care(club: Club) -> None:
    for door in club.nobody.doors:
        assert tenant_of(door.task("hi", "teller")) is None
        assert tenant_of(door.task("hi", "teller", metadata={"tenant_id": "default"})) == "default"
        assert tenant_of(door.ok("SendMessage", sending("hi"), "teller", ACTIVATED)["task"]) == "default"


def test_webhooks_hear_of_the_tenant_too(club: Club) -> None:
    with receiving() as hooks:
        push = {"taskPushNotificationConfig": {"url": hooks.url()}}
        club.member.rest.ok("SendMessage", sending("hi", configuration=push), "teller")
        hooks.wait_said("COMPLETED")
        assert {tenant_of(next(iter(call.json.values()))) for call in hooks.at()} == {"acme"}


@pytest.mark.parametrize("value", MALFORMED)
def test_a_tenant_that_cannot_be_one_is_a_bad_request(member: Door, value: str) -> None:
    found = refusal(member.call("SendMessage", sending("hi", metadata={"tenant_id": value}), "teller"))
    assert (found.reason, found.fields) == ("INVALID_PARAMS", ["message.metadata.tenant_id"])
    if value.isprintable() and value.isascii():
        found = refusal(member.call("SendMessage", sending("hi"), "teller", {"X-Tenant-Id": value}))
        assert (found.reason, found.fields) == ("INVALID_PARAMS", ["X-Tenant-Id"])


@pytest.mark.parametrize("value", [5, True, ["acme"], {"id": "acme"}])
def test_a_tenant_that_is_no_text_is_a_bad_request(member: Door, value: object) -> None:
    found = refusal(member.call("SendMessage", sending("hi", metadata={"tenant_id": value}), "teller"))
    assert (found.reason, found.fields) == ("INVALID_PARAMS", ["message.metadata.tenant_id"])


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
def test_a_message_for_a_tenant_that_is_not_ones_own_is_forbidden(member: Door, operation: str) -> None:
    for params, headers in (
        (sending("hi", metadata={"tenant_id": "initech"}), {}),
        (sending("hi"), {"X-Tenant-Id": "initech"}),
        (sending("hi", metadata={"tenant_id": "globex"}), {"X-Tenant-Id": "acme"}),
    ):
        found = refusal(member.call(operation, params, "teller", headers))
        assert found.reason == "FORBIDDEN"
        assert found.metadata["tenant_id"] in ("initech", "globex")


def test_a_read_in_another_tenant_finds_nothing(club: Club, member: Door) -> None:
    """Not even what is one's own in one's other tenant."""
    task = member.task("hi", "desk", metadata={"tenant_id": "globex"})["id"]
    assert member.get(task, "desk")["id"] == task
    for operation in ("GetTask", "CancelTask", "SubscribeToTask"):
        found = refusal(member.call(operation, {"id": task}, "desk", {"X-Tenant-Id": "acme"}))
        assert found.reason == "TASK_NOT_FOUND"
    for door in (*club.acme.doors, *club.nobody.doors):
        assert refusal(door.call("GetTask", {"id": task}, "desk")).reason == "TASK_NOT_FOUND"


def test_a_tenant_that_is_not_ones_own_tells_nothing_of_its_tasks(club: Club) -> None:
    """Whether the task is there or not, the answer is the same."""
    task = club.member.rest.task("hi", "desk")["id"]
    for door in club.nobody.doors:
        asked = (task, str(uuid.uuid4()))
        answers = [door.call("GetTask", {"id": wanted}, "desk", {"X-Tenant-Id": "acme"}) for wanted in asked]
        assert {refusal(answer).reason for answer in answers} == {"FORBIDDEN"}
        first, second = ({**answer.json(), "id": None} for answer in answers)
        assert first == second
        for operation, params in (
            ("ListTasks", {}),
            ("SendMessage", sending("hi")),
            ("SendStreamingMessage", sending("hi")),
            ("GetExtendedAgentCard", {}),
        ):
            answer = door.call(operation, params, "desk", {"X-Tenant-Id": "acme"})
            assert refusal(answer).reason == "FORBIDDEN", operation


def test_a_list_is_of_one_tenant(club: Club) -> None:
    person = club.people.new(tenants=["acme", "globex"])
    ours = person.rest.task("hi", "teller")["id"]
    theirs = person.rest.task("hi", "teller", metadata={"tenant_id": "globex"})["id"]
    for door in person.doors:
        for headers, task in (({}, ours), ({"X-Tenant-Id": "acme"}, ours), ({"X-Tenant-Id": "globex"}, theirs)):
            found = door.ok("ListTasks", {}, "teller", headers)
            assert [one["id"] for one in found["tasks"]] == [task]


def test_the_message_id_of_another_tenant_is_not_taken(member: Door) -> None:
    said: dict[str, Any] = {"messageId": str(uuid.uuid4())}
    tasks = [
        member.ok("SendMessage", sending("hi", **said), "teller", {"X-Tenant-Id": tenant})["task"]["id"]
        for tenant in ("acme", "acme", "globex")
    ]
    assert tasks[0] == tasks[1] != tasks[2]


def test_a2as_own_tenant_field_selects_an_agent_and_no_tenant(member: Door) -> None:
    assert (
        text_of(member.ok("SendMessage", {**sending("hi"), "tenant": "teller"}, "teller")["task"]).split()[1] == "acme"
    )
    found = refusal(member.call("SendMessage", {**sending("hi"), "tenant": "globex"}, "teller"))
    assert (found.reason, found.fields) == ("INVALID_PARAMS", ["tenant"])


def test_a_task_is_of_its_tenant_after_a_restart_too(tmp_path: Path) -> None:
    """The tenant is in its responses and events, and the token is the same as before."""
    args = ("--drain-s", "0")
    with running(AGENTS, args=args, data=tmp_path, env=OPERATOR) as server, People(server) as people:
        secret = people.operator.make(tenants=["acme", "globex"])["token"]
        task = people.with_headers(bearer(secret)).rest.task("hi", "desk", metadata={"tenant_id": "globex"})["id"]
    with running(AGENTS, args=args, data=tmp_path, env=OPERATOR) as server, People(server) as people:
        member = people.with_headers(bearer(secret))
        assert tenant_of(member.rpc.get(task, "desk")) == "globex"
        found = member.rest.call("GetTask", {"id": task}, "desk", {"X-Tenant-Id": "acme"})
        assert refusal(found).reason == "TASK_NOT_FOUND"
        frames = member.rest.stream("SendStreamingMessage", sending("Ada", taskId=task), "desk")
        assert {tenant_of(next(iter(frame.data.values()))) for frame in frames} == {"globex"}
        ended = member.rest.get(task, "desk")
        assert (tenant_of(ended), text_of(ended)) == ("globex", "hello Ada")


def test_the_card_says_that_a_tenant_may_be_chosen(club: Club) -> None:
    found = declared(club.nobody)
    assert found is not None
    assert (found.get("required", False), found["params"]) == (False, {"enforcement": "declared"})


# A message must choose, and tasks belong to the whole tenant


@pytest.fixture(scope="module")
def shared() -> Iterator[Club]:
    args = ("--drain-s", "0", "--multi-tenant", "enforced", "--ownership", "tenant")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as people:
        yield Club(people)


def test_without_a_tenant_no_message_is_taken(shared: Club) -> None:
    for door in shared.member.doors:
        found = refusal(door.call("SendMessage", sending("hi"), "teller", ACTIVATED))
        assert (found.reason, found.fields) == ("INVALID_PARAMS", ["message.metadata.tenant_id"])
        found = refusal(door.call("SendMessage", sending("hi", metadata={"tenant_id": "acme"}), "teller"))
        assert (found.reason, found.metadata["extension"]) == ("EXTENSION_SUPPORT_REQUIRED", MULTI_TENANT)
        task = door.ok("SendMessage", sending("hi", metadata={"tenant_id": "acme"}), "teller", ACTIVATED)["task"]
        assert (tenant_of(task), text_of(task)) == ("acme", "* acme hi")
    extension = declared(shared.nobody)
    assert extension is not None
    assert (extension["required"], extension["params"]) == (True, {"enforcement": "enforced"})


def test_colleagues_share_tasks_and_strangers_do_not(shared: Club) -> None:
    acme = sending("hi", metadata={"tenant_id": "acme"})
    task = shared.member.rest.ok("SendMessage", acme, "desk", ACTIVATED)["task"]
    for door in (*shared.acme.doors, *shared.member.doors):
        assert door.ok("GetTask", {"id": task["id"]}, "desk", ACTIVATED)["id"] == task["id"]
        listed = door.ok("ListTasks", {"contextId": task["contextId"]}, "desk", ACTIVATED)["tasks"]
        assert [one["id"] for one in listed] == [task["id"]]
    for door in shared.nobody.doors:
        assert refusal(door.call("GetTask", {"id": task["id"]}, "desk", ACTIVATED)).reason == "TASK_NOT_FOUND"
        assert door.ok("ListTasks", {}, "desk", ACTIVATED)["tasks"] == []
    answer = sending("Ada", taskId=task["id"], metadata={"tenant_id": "acme"})
    assert text_of(shared.acme.rest.ok("SendMessage", answer, "desk", ACTIVATED)["task"]) == "hello Ada"


def test_a_message_of_a_colleague_is_the_same_message_if_its_id_is(shared: Club) -> None:
    said = sending("hi", metadata={"tenant_id": "acme"}, messageId=str(uuid.uuid4()))
    tasks = [
        person.rest.ok("SendMessage", said, "teller", ACTIVATED)["task"]["id"]
        for person in (shared.member, shared.acme)
    ]
    assert tasks[0] == tasks[1]


# Tenants that nobody speaks of


async def test_where_tenants_are_off_a_message_cannot_choose_and_nothing_is_echoed() -> None:
    async with inside(Settings(memory=True, multi_tenant="off")) as http:
        said = sending("hi", metadata={"tenant_id": "acme"})
        answer = await http.post("/agents/teller/message:send", json=said, headers=ACTIVATED)
        task = answer.json()["task"]
        assert (text_of(task), tenant_of(task)) == ("roost:local default", None)
        assert "a2a-extensions" not in answer.headers
        card = (await http.get(f"/agents/teller{CARD}")).json()
        assert MULTI_TENANT not in {one["uri"] for one in card["capabilities"]["extensions"]}
