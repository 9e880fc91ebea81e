"""The admin routes and the commands beside them: tokens, keys, the audit log, and any task without its content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.access.people import ADMIN, AGENTS, CARD, JWKS, OPERATOR, People, bearer, refusal
from tests.access.signed import holds, kids
from tests.doors.wire import VERSION, sending
from tests.processes import roost, running
from tests.waiting import eventually


class Office:
    def __init__(self, people: People, data: Path) -> None:
        self.people = people
        self.admin = people.operator
        self.data = data

    def command(self, *words: str) -> Any:
        """Run a command with --json and return its output."""
        done = roost(*words, "--json", "--data", self.data)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def audit(self, query: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.admin.admin("GET", f"audit{query}")["items"]
        return found


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    data = tmp_path_factory.mktemp("data")
    with running(AGENTS, args=("--drain-s", "0"), data=data, env=OPERATOR) as server, People(server) as people:
        people.operator.make()  # so that nobody comes in without
        yield Office(people, data)


# Tokens


def test_a_token_is_made_listed_and_revoked(office: Office) -> None:
    wish = {"scopes": ["agent:desk", "metrics"], "tenants": ["acme", "globex"], "subject": "ada", "expiresIn": "90d"}
    answer = office.admin.ask("POST", f"{ADMIN}/tokens", {"name": "laptop", **wish})
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    made = answer.json()
    secret = made.pop("token")
    assert made.keys() == {"id", "name", "subject", "tenants", "scopes", "created", "expires", "revoked"}
    assert {name: made[name] for name in ("name", "scopes", "tenants", "subject")} == {
        "name": "laptop",
        **{name: wish[name] for name in ("scopes", "tenants", "subject")},
    }
    assert made["expires"] > made["created"]
    assert made in office.admin.admin("GET", "tokens")["items"]
    person = office.people.with_headers(bearer(secret))
    assert person.status() == 200
    revoked = office.admin.admin("DELETE", f"tokens/{made['id']}")
    assert revoked["revoked"]
    assert person.status() == 401
    assert office.admin.admin("DELETE", f"tokens/{made['id']}") == revoked, "it was revoked once"
    assert revoked in office.admin.admin("GET", "tokens")["items"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"subject": "a\x00b"}, "subject"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"scopes": ["agent:"]}, "scopes"),
        ({"scopes": ["agent:a/b"]}, "scopes"),
        ({"tenants": ["no/tenant"]}, "tenants"),
        ({"tenants": [f"t{number}" for number in range(101)]}, "tenants"),
        ({"expiresIn": "soon"}, "expiresIn"),
        ({"expiresIn": "0s"}, "expiresIn"),
        ({"name": 5}, "name"),
        ({"scopes": "admin"}, "scopes"),
    ],
)
def test_a_token_that_cannot_be_made_is_not_and_the_field_is_named(
    office: Office, changed: dict[str, Any], field: str
) -> None:
    before = office.admin.admin("GET", "tokens")
    answer = office.admin.ask("POST", f"{ADMIN}/tokens", {"name": "bad", "scopes": ["metrics"], **changed})
    found = refusal(answer)
    assert (found.form, found.reason) == ("problem", "INVALID_PARAMS")
    assert field in (found.fields or [""])[0]
    assert office.admin.admin("GET", "tokens") == before


def test_a_body_that_cannot_be_read_is_a_problem_too(office: Office) -> None:
    def post(content: bytes, kind: str = "application/json") -> tuple[int, str]:
        headers = {**VERSION, "Content-Type": kind}
        answer = office.admin.http.post(f"{office.people.base}{ADMIN}/tokens", content=content, headers=headers)
        assert answer.headers["content-type"] == "application/problem+json"
        return answer.status_code, answer.json()["code"]

    assert post(b"{") == (400, "request.invalid_json")
    assert post(b"[]") == (400, "validation.failed")
    assert post(b"") == (400, "validation.failed")
    assert post(b"name=x", "application/x-www-form-urlencoded") == (400, "request.content_type")
    assert post(b" " * 70_000) == (413, "request.too_large")


def test_what_is_not_there_cannot_be_revoked(office: Office) -> None:
    for name in ("tok-000000000000", "%2e%2e", "x" * 300):
        assert refusal(office.admin.ask("DELETE", f"{ADMIN}/tokens/{name}")).reason == "ROUTE_NOT_FOUND"


def test_the_commands_see_the_same_tokens(office: Office) -> None:
    made = office.command("token", "create", "by-command", "--scope", "agent:desk", "--tenant", "acme")
    person = office.people.with_headers(bearer(made["token"]))
    eventually(lambda: person.status() == 200)
    listed = {token["id"]: token for token in office.command("token", "list")["items"]}
    assert listed[made["id"]]["state"] == "valid"
    assert made["token"] not in json.dumps(listed)
    by_route = {token["id"] for token in office.admin.admin("GET", "tokens")["items"]}
    assert {*listed} <= by_route
    again = roost("token", "create", "by-command", "--data", office.data)
    assert again.returncode == 0
    both = roost("token", "revoke", "by-command", "--data", office.data)
    assert both.returncode == 1
    assert made["id"] in both.stderr, "two have that name, so it asks which"


def test_a_command_that_cannot_says_why_in_one_line(office: Office) -> None:
    wrong = [
        ("token", "create", "x", "--scope", "root"),
        ("token", "create", "x", "--expires", "soon"),
        ("token", "revoke", "nobody"),
        ("keys", "rotate", "nobody"),
    ]
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(lambda words: roost(*words, "--data", office.data), wrong)
    for words, command in zip(wrong, done, strict=True):
        assert command.returncode in (1, 2), words
        assert command.stdout == ""
        assert len(command.stderr.splitlines()) == 1, command.stderr
        assert command.stderr.startswith("roost: ")


# Keys


def published(office: Office, path: str = "/agents/desk") -> dict[str, Any]:
    return {key["kid"]: key for key in office.admin.ask("GET", path + JWKS).json()["keys"]}


def card_of(office: Office, path: str = "/agents/desk") -> dict[str, Any]:
    found: dict[str, Any] = office.admin.ask("GET", path + CARD).json()
    return found


def current(office: Office, agent: str) -> str:
    (found,) = [
        key["kid"] for key in office.admin.admin("GET", "keys")["items"] if key["agent"] == agent and not key["until"]
    ]
    assert isinstance(found, str)
    return found


def test_during_the_overlap_both_keys_verify_and_then_only_the_new_one(office: Office) -> None:
    before = card_of(office)
    (old,) = published(office)
    old_key = published(office)[old]
    assert holds(before, [old_key])
    new = office.admin.admin("POST", "keys/desk:rotate", {"overlap": "1h"})["kid"]
    during, keys = card_of(office), published(office)
    assert {*keys} == kids(during) == {old, new}
    assert holds(during, [keys[old]])
    assert holds(during, [keys[new]])
    assert not {"d", "k"} & {name for key in keys.values() for name in key}

    assert office.admin.ask("DELETE", f"{ADMIN}/keys/desk/{old}").status_code == 204
    after, keys = card_of(office), published(office)
    assert {*keys} == kids(after) == {new}
    assert old not in published(office, "")
    assert not holds(after, [old_key])
    assert office.admin.ask("DELETE", f"{ADMIN}/keys/desk/{old}").status_code == 204, "it is retired, and stays so"
    shown = {key["kid"]: key for key in office.admin.admin("GET", "keys")["items"]}
    assert shown[old]["retired"]
    assert not {"sealed", "private", "d"} & shown[old].keys()

    newest = office.admin.admin("POST", "keys/desk:rotate", {})["kid"]
    assert kids(card_of(office)) == {new, newest}, "a retired key never signs again"


def test_an_overlap_that_is_over_ends_the_key_by_itself(office: Office) -> None:
    card_of(office, "/agents/other")
    (old,) = published(office, "/agents/other")
    new = office.admin.admin("POST", "keys/other:rotate", {"overlap": "1s"})["kid"]
    eventually(lambda: {*published(office, "/agents/other")} == kids(card_of(office, "/agents/other")) == {new})
    eventually(lambda: any(key["kid"] == old and key["retired"] for key in office.admin.admin("GET", "keys")["items"]))


def test_no_overlap_ends_the_key_at_once(office: Office) -> None:
    card_of(office, "/agents/teller")
    new = office.admin.admin("POST", "keys/teller:rotate", {"overlap": "0s"})["kid"]
    assert {*published(office, "/agents/teller")} == kids(card_of(office, "/agents/teller")) == {new}


def test_the_fleet_has_a_key_of_its_own_and_publishes_all(office: Office) -> None:
    (old,) = kids(card_of(office, ""))
    new = office.admin.admin("POST", "keys/-:rotate", {"overlap": "1h"})["kid"]
    assert kids(card_of(office, "")) == {old, new}
    assert {old, new, *published(office)} <= {*published(office, "")}
    assert new not in published(office)


def test_a_current_key_is_not_retired_and_others_cannot_be(office: Office) -> None:
    card_of(office, "/agents/keyed")
    kid = current(office, "keyed")
    found = refusal(office.admin.ask("DELETE", f"{ADMIN}/keys/keyed/{kid}"))
    assert (found.reason, found.fields) == ("INVALID_PARAMS", ["kid"])
    assert "rotate" in found.message
    assert refusal(office.admin.ask("DELETE", f"{ADMIN}/keys/keyed/nothing")).reason == "ROUTE_NOT_FOUND"
    assert refusal(office.admin.ask("DELETE", f"{ADMIN}/keys/nobody/{kid}")).reason == "AGENT_NOT_FOUND"
    assert refusal(office.admin.ask("POST", f"{ADMIN}/keys/nobody:rotate", {})).reason == "AGENT_NOT_FOUND"
    found = refusal(office.admin.ask("POST", f"{ADMIN}/keys/keyed:rotate", {"overlap": "a week"}))
    assert (found.reason, found.fields) == ("INVALID_PARAMS", ["overlap"])


def test_the_commands_rotate_and_retire_for_a_running_host(office: Office) -> None:
    card_of(office, "/agents/turns")
    old = current(office, "turns")
    new = office.command("keys", "rotate", "turns", "--overlap", "1d")["kid"]
    eventually(lambda: kids(card_of(office, "/agents/turns")) == {old, new})
    done = roost("keys", "retire", "turns", old, "--data", office.data)
    assert done.returncode == 0, done.stderr
    eventually(lambda: {*published(office, "/agents/turns")} == kids(card_of(office, "/agents/turns")) == {new})
    listed = {key["kid"]: key["state"] for key in office.command("keys", "list")["items"] if key["agent"] == "turns"}
    assert listed == {old: "retired", new: "current"}


# The audit log


def test_what_was_done_is_on_record_with_who_did_it(office: Office) -> None:
    made = office.admin.make("metrics", name="recorded")
    office.admin.admin("DELETE", f"tokens/{made['id']}")
    kid = office.admin.admin("POST", "keys/desk:rotate", {})["kid"]
    person = office.people.new("agent:desk")
    task = person.rest.task("hi", "desk")["id"]
    office.admin.admin("POST", f"tasks/{task}:cancel", {})
    assert person.status("other") == 403
    lines = office.audit("?limit=20")
    mine = [line for line in lines if line["actor"] == "roost:ROOST_ADMIN_TOKEN" and line["outcome"] == "done"]
    assert [(line["action"], line["target"].split()[0]) for line in reversed(mine)][-5:] == [
        ("token.create", made["id"]),
        ("token.revoke", made["id"]),
        ("key.rotate", "desk"),
        ("token.create", mine[1]["target"].split()[0]),
        ("task.cancel", task),
    ]
    assert kid in mine[2]["target"]
    assert all(line["address"] == "127.0.0.1" for line in mine)
    assert lines[0]["action"] == "refused"
    assert lines[0]["target"] == "GET /agents/{agent}/tasks"
    assert lines[0]["outcome"] == "needs the scope agent:other"


def test_the_log_is_read_in_pages_the_newest_first(office: Office) -> None:
    for _ in range(5):
        office.admin.make("metrics")
    numbers = [line["number"] for line in office.audit("?limit=5")]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) == 5
    before = [line["number"] for line in office.audit(f"?limit=3&before={numbers[1]}")]
    assert before == numbers[2:5]
    for query, field in (("limit=0", "limit"), ("limit=%C2%B2", "limit"), ("before=-1", "before")):
        assert refusal(office.admin.ask("GET", f"{ADMIN}/audit?{query}")).fields == [field]


def test_the_command_shows_the_same_log_with_the_user_who_ran_commands(office: Office) -> None:
    office.command("token", "create", "for-the-log")
    lines = office.command("audit", "--limit", "3")["items"]
    assert len(lines) == 3
    made = next(line for line in lines if line["action"] == "token.create" and "for-the-log" in line["target"])
    assert made["actor"].startswith("unix:")
    assert made in office.audit("?limit=50")


# Any task, without its content


def test_an_operator_sees_the_state_of_any_task_and_nothing_that_is_in_it(office: Office) -> None:
    owner = office.people.new("agent:desk", name="patient", tenants=["clinic"])
    operator = office.people.new("operate")
    task = owner.rest.task("my diagnosis", "desk")
    answer = operator.ask("GET", f"{ADMIN}/tasks/{task['id']}")
    shown = answer.json()
    assert shown.keys() == {
        "id",
        "agent",
        "tenant",
        "owner",
        "contextId",
        "state",
        "created",
        "updated",
        "worker",
    }
    assert (shown["owner"], shown["tenant"], shown["agent"]) == ("roost:patient", "clinic", "desk")
    assert shown["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert "diagnosis" not in answer.text
    assert refusal(operator.rest.call("GetTask", {"id": task["id"]}, "desk")).reason == "FORBIDDEN"


def test_an_operator_cancels_any_task_and_its_owner_sees_that(office: Office) -> None:
    owner, operator = office.people.new("agent:turns"), office.people.new("operate")
    task = owner.rest.begin("never", "turns")["id"]
    answer = operator.ask("POST", f"{ADMIN}/tasks/{task}:cancel", {})
    assert (answer.status_code, answer.json()["state"]) == (200, "TASK_STATE_CANCELED")
    assert "never" not in answer.text
    assert owner.rest.get(task, "turns")["status"]["state"] == "TASK_STATE_CANCELED"
    found = refusal(operator.ask("POST", f"{ADMIN}/tasks/{task}:cancel", {}))
    assert (found.form, found.reason) == ("problem", "TASK_NOT_CANCELABLE")
    for method, path in (("GET", "tasks/nothing"), ("POST", "tasks/nothing:cancel")):
        assert refusal(operator.ask(method, f"{ADMIN}/{path}")).reason == "TASK_NOT_FOUND"


def test_an_operator_ends_a_stream_without_having_seen_it(office: Office) -> None:
    owner, operator = office.people.new("agent:turns"), office.people.new("operate")
    with owner.rest.open("SendStreamingMessage", sending("never"), "turns") as frames:
        task = next(frames).data["task"]["id"]
        operator.admin("POST", f"tasks/{task}:cancel", {})
        assert [*frames][-1].data["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
