"""Whoever tries credentials is slowed down and put on record, and no secret is ever written anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from roost.identity.audit import PER_MINUTE
from roost.settings import Settings
from tests.access.inside import inside
from tests.access.issuing import issuing
from tests.access.people import ADMIN, ADMIN_SECRET, AGENTS, OPERATOR, People, Person, api_key, bearer, refusal
from tests.doors.wire import metrics, sending
from tests.identity.issuer import AUDIENCE, signer
from tests.processes import Server, roost, running

MOST = 5
SECRET = "the-agents-secret-token"


class Watched:
    def __init__(self, server: Server, people: People, data: Path) -> None:
        self.server = server
        self.people = people
        self.data = data

    def at(self, address: str, headers: dict[str, str]) -> Person:
        """A caller at this address, as a proxy tells."""
        return self.people.with_headers({**headers, "X-Forwarded-For": address})


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    data = tmp_path_factory.mktemp("data")
    args = ("--auth-failures", str(MOST), "--trusted-proxy", "127.0.0.1/32", "--log-level", "debug", "--drain-s", "0")
    env = {**OPERATOR, "ROOST_TOKEN": SECRET}
    with running(AGENTS, args=args, data=data, env=env) as server, People(server) as people:
        yield Watched(server, people, data)


def slowed(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """The first answer that is no 401. The window slides: where a minute ends, one more may go through."""
    for _ in range(2 * MOST):
        answer = ask()
        if answer.status_code != 401:
            return answer
    raise AssertionError("there is always one more try")


def exhaust(person: Person) -> None:
    """Fail until there are no more tries; not sooner than it is told."""
    for _ in range(MOST):
        assert person.status() == 401
    answer = slowed(lambda: person.ask("GET", "/agents/desk/tasks"))
    assert refusal(answer).reason == "TOO_MANY_REQUESTS"


def test_beyond_so_many_failures_an_address_has_to_wait(watched: Watched) -> None:
    guesser = watched.at("203.0.113.1", bearer("roost_guess-number-one"))
    exhaust(guesser)
    asks: list[Callable[[], httpx.Response]] = [
        lambda: guesser.ask("GET", "/agents/desk/tasks"),
        lambda: guesser.rpc.call("SendMessage", sending(), "desk"),
        lambda: guesser.ask("GET", f"{ADMIN}/tokens"),
        lambda: guesser.ask("GET", "/agents/"),
        lambda: guesser.ask("GET", "/metrics"),
        lambda: watched.at("203.0.113.1", api_key("roost_guess-by-key")).ask("GET", "/agents/desk/tasks"),
        lambda: watched.at("203.0.113.1", {"Authorization": "Basic Z3Vlc3M="}).ask("GET", "/agents/desk/tasks"),
    ]
    for ask in asks:
        answer = slowed(ask)
        assert refusal(answer).reason == "TOO_MANY_REQUESTS"
        assert 0 < int(answer.headers["retry-after"]) <= 120


def test_who_goes_on_and_on_does_not_fill_the_log_or_the_audit(watched: Watched) -> None:
    guesser = watched.at("203.0.113.9", bearer("roost_guess-number-nine"))
    for _ in range(10 * MOST):
        guesser.status()
    lines = watched.people.operator.admin("GET", "audit?limit=1000")["items"]
    recorded = [line for line in lines if line["address"] == "203.0.113.9"]
    assert MOST <= len(recorded) <= PER_MINUTE
    watched.server.wait_said("from 203.0.113.9 was refused", times=MOST)
    assert watched.server.stderr.count("from 203.0.113.9 was refused") <= 2 * MOST


def test_a_good_token_from_that_address_still_works_and_so_does_asking_what_is_needed(watched: Watched) -> None:
    exhaust(watched.at("203.0.113.2", bearer("roost_guess-number-two")))
    assert watched.at("203.0.113.2", bearer(SECRET)).status() == 200
    assert watched.at("203.0.113.2", api_key(SECRET)).status() == 200
    assert watched.at("203.0.113.2", {}).status() == 401
    assert watched.at("203.0.113.2", {}).ask("GET", "/agents/desk/.well-known/agent-card.json").status_code == 200


def test_other_addresses_are_not_slowed_down(watched: Watched) -> None:
    exhaust(watched.at("203.0.113.3", bearer("roost_guess-number-three")))
    assert watched.at("203.0.113.4", bearer("roost_guess-number-three")).status() == 401
    assert watched.people.with_headers(bearer("roost_guess-number-three")).status() == 401


def test_an_address_that_the_caller_makes_up_does_not_help(watched: Watched) -> None:
    """Addresses before the one that the proxy has seen are not trusted."""
    exhaust(watched.at("203.0.113.5", bearer("roost_guess-number-five")))
    behind = watched.at("198.51.100.77, 203.0.113.5", bearer("roost_guess-number-five"))
    assert slowed(lambda: behind.ask("GET", "/agents/desk/tasks")).status_code == 429


def test_who_comes_without_a_credential_has_not_failed(watched: Watched) -> None:
    curious = watched.at("203.0.113.6", {})
    assert {curious.status() for _ in range(MOST * 2)} == {401}
    assert watched.at("203.0.113.6", bearer("roost_guess-number-six")).status() == 401


def test_a_lack_of_scope_is_no_failure_to_say_who_one_is(watched: Watched) -> None:
    person = watched.people.new("agent:other")
    assert {refusal(person.ask("GET", "/agents/desk/tasks")).reason for _ in range(MOST * 2)} == {"FORBIDDEN"}
    assert person.status("other") == 200


async def test_signatures_are_not_verified_for_an_address_that_has_failed_too_often() -> None:
    """A token that was verified before is known at sight, and still works."""
    with issuing() as issuer:
        settings = Settings(memory=True, jwt_issuer=issuer.url, jwt_audience=AUDIENCE, auth_failures=MOST)
        async with inside(settings) as http:

            async def status(token: str) -> int:
                return (await http.get("/agents/teller/tasks", headers=bearer(token))).status_code

            good = issuer.token()
            assert await status(good) == 200
            forged = [signer("EdDSA", "nobody's").sign(issuer.claims(sub=f"n{number}")) for number in range(2 * MOST)]
            found = [await status(token) for token in forged]
            assert (found[:MOST], {*found[MOST + 1 :]}) == ([401] * MOST, {429})
            assert await status(good) == 200


def test_refusals_are_counted_by_reason(watched: Watched) -> None:
    def counted(reason: str) -> float:
        series = metrics(watched.people.operator.http, watched.people.base)
        return series.get(("roost_auth_refusals_total", frozenset({("reason", reason)})), 0)

    before = {reason: counted(reason) for reason in ("missing", "unknown", "malformed", "scope")}
    watched.at("203.0.113.7", {}).status()
    watched.at("203.0.113.7", bearer("roost_guess-number-seven")).status()
    watched.at("203.0.113.7", {"Authorization": "Negotiate YII="}).status()
    watched.people.new("metrics").status()
    assert {reason: counted(reason) - count for reason, count in before.items()} == dict.fromkeys(before, 1)


def test_no_secret_is_in_a_log_in_the_audit_or_in_an_answer(watched: Watched) -> None:
    """Good ones and bad ones, wherever they were sent."""
    wrong = {
        "header": "roost_SecretInAHeader",
        "key": "roost_SecretInAKey",
        "basic": "U2VjcmV0SW5CYXNpYw==",
        "jwt": "eyJhbGciOiJub25lIn0.U2VjcmV0SW5BSldU.",
        "query": "roost_SecretInAQuery",
        "odd": "roost_Secret In Two Words",
    }
    made = watched.people.operator.make("agent:desk")
    person = watched.at("203.0.113.8", {})
    answers = [
        person.ask("GET", "/agents/desk/tasks", **bearer(wrong["header"])),
        person.ask("GET", "/agents/desk/tasks", **api_key(wrong["key"])),
        person.ask("GET", "/agents/desk/tasks", Authorization=f"Basic {wrong['basic']}"),
        person.ask("GET", f"{ADMIN}/tokens", **bearer(wrong["jwt"])),
        person.ask("GET", "/agents/desk/tasks", **bearer(wrong["odd"])),
        person.ask("GET", f"/agents/desk/tasks?access_token={wrong['query']}"),
        person.ask("GET", "/agents/desk/tasks", **bearer(made["token"])),
        person.ask("GET", "/agents/other/tasks", **bearer(made["token"])),
        watched.people.operator.ask("GET", f"{ADMIN}/tokens"),
    ]
    shown = watched.people.operator.ask("GET", f"{ADMIN}/audit?limit=1000").text
    done = roost("audit", "--json", "--limit", "1000", "--data", watched.data)
    lines = json.loads(done.stdout)["items"]
    assert {line["outcome"] for line in lines} >= {"unknown", "malformed", "needs the scope agent:other"}
    assert any(line["address"] == "203.0.113.8" for line in lines)
    listed = roost("token", "list", "--all", "--data", watched.data).stdout
    secrets = {*wrong.values(), made["token"], SECRET, ADMIN_SECRET}
    answers.append(watched.people.operator.ask("GET", "/metrics"))
    told = [answer.text + str(answer.headers) for answer in answers]
    for where in (watched.server.stderr, shown, done.stdout, listed, *told):
        assert not [secret for secret in secrets if secret in where]
    assert "refused: unknown" in watched.server.stderr


def test_no_secret_is_in_a_file(watched: Watched) -> None:
    made = watched.people.operator.make("agent:desk")
    kept = [file.read_bytes() for file in watched.data.rglob("*") if file.is_file()]
    assert any(made["id"].encode() in content for content in kept)
    for secret in (made["token"], SECRET, ADMIN_SECRET):
        assert not any(secret.encode() in content for content in kept)
