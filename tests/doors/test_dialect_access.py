"""The dialect on a host with credentials: the same people, the same tasks, its own words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from roost.doors.sandbox import ROUTES
from tests.access.people import AGENTS, OPERATOR, People, Person, check_challenges
from tests.doors.test_dialect import HOOK, IDEMPOTENCY, problem
from tests.doors.wire import frames, sending
from tests.processes import running

MULTI_TENANT = "https://agentic-sandbox.aiwg.io/extensions/multi-tenant/v1"
BY_EXTENSION = {"A2A-Extensions": IDEMPOTENCY}


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    args = ("--drain-s", "0", "--multi-tenant", "declared", "--push-allow-hosts", "127.0.0.1", "--push-attempts", "1")
    with running(AGENTS, args=(*args, "--root", "desk"), env=OPERATOR) as server, People(server) as people:
        yield people


@pytest.fixture(scope="module")
def owner(people: People) -> Person:
    return people.new("agent:desk", name="owner", tenants=["default", "acme"])


def path_of(template: str, task: str) -> str:
    return template.replace("{id}", "hook" if "{taskId}" in template else task).replace("{taskId}", task)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
@pytest.mark.parametrize("prefix", ["/agents/desk", ""])
def test_nobody_comes_in_without_a_credential(people: People, owner: Person, route: Any, prefix: str) -> None:
    task = owner.rest.task(agent="desk")["id"]
    for headers in ({"A2A-Version": "1.0"}, BY_EXTENSION):
        answer = httpx.request(route.method, people.base + prefix + path_of(route.template, task), headers=headers)
        assert (problem(answer, "desk")["code"], answer.status_code) == ("auth.required", 401)
        check_challenges(answer)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.template}")
def test_a_credential_for_another_agent_opens_nothing(people: People, route: Any) -> None:
    answer = people.new("agent:other").ask(route.method, f"/agents/desk{path_of(route.template, 'none')}")
    assert (problem(answer, "desk")["code"], answer.status_code) == ("auth.forbidden", 403)


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if "tasks/" in route.template],
    ids=lambda route: f"{route.method} {route.template}",
)
def test_the_task_of_somebody_else_does_not_exist(people: People, owner: Person, route: Any) -> None:
    task = owner.rest.task(agent="desk")["id"]
    owner.rest.ok("CreateTaskPushNotificationConfig", {"taskId": task, "id": "hook", "url": HOOK}, "desk")
    before = owner.rest.get(task, "desk")
    body = {"url": HOOK} if "pushNotificationConfigs" in route.template and route.method == "POST" else None
    answer = people.new("agent:desk").ask(route.method, f"/agents/desk{path_of(route.template, task)}", body)
    assert (problem(answer, "desk")["code"], answer.status_code) == ("task.not_found", 404)
    assert owner.rest.get(task, "desk") == before


def test_a_list_holds_the_callers_own(people: People, owner: Person) -> None:
    task = owner.rest.task(agent="desk")["id"]
    mine = owner.ask("GET", "/agents/desk/v1/tasks").json()
    assert task in [found["id"] for found in mine["tasks"]]
    assert people.new("agent:desk").ask("GET", "/agents/desk/v1/tasks").json()["tasks"] == []


def test_the_extended_card_is_the_callers(owner: Person) -> None:
    found = owner.ask("GET", "/agents/desk/v1/extendedAgentCard").json()
    assert found == owner.rest.ok("GetExtendedAgentCard", {}, "desk")
    assert "vault" in [skill["id"] for skill in found["skills"]]
    assert owner.ask("GET", "/v1/extendedAgentCard").json() == found


def test_a_message_chooses_its_tenant(owner: Person) -> None:
    headers = {"A2A_Extensions": MULTI_TENANT}
    body = sending(metadata={"tenant_id": "acme"})
    answer = owner.ask("POST", "/agents/desk/v1/messages:send", body, **headers)
    assert answer.headers["a2a-extensions"] == MULTI_TENANT
    task = answer.json()["task"]
    assert task["metadata"]["tenant_id"] == "acme"
    assert owner.ask("GET", f"/agents/desk/v1/tasks/{task['id']}", X_Tenant_Id="acme").status_code == 200
    bad = owner.ask("POST", "/agents/desk/v1/messages:send", sending(metadata={"tenant_id": "a b"}), **headers)
    assert problem(bad, "desk")["code"] == "request.invalid_params"


def test_a_stream_ends_with_the_credential_that_opened_it(people: People) -> None:
    made = people.operator.make("agent:desk")
    person = people.with_headers({"Authorization": f"Bearer {made['token']}"})
    task = person.rest.task(agent="desk")["id"]
    url = f"{person.base}/agents/desk/v1/tasks/{task}/subscribe"
    with person.http.stream("GET", url, headers={"A2A-Version": "1.0"}) as answer:
        found = frames(answer.iter_raw())
        assert next(found).data["task"]["id"] == task
        people.operator.admin("DELETE", f"tokens/{made['id']}")
        assert list(found) == []
