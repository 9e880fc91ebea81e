"""The addresses on which a host may listen, the credentials that it accepts, and cards that declare exactly these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from roost.host import Host, HostError
from roost.settings import Settings
from tests.access.inside import inside, teller
from tests.access.people import (
    ADMIN_SECRET,
    AGENTS,
    CARD,
    JWKS,
    OPERATOR,
    People,
    Person,
    api_key,
    bearer,
    check_challenges,
    refusal,
)
from tests.access.signed import holds
from tests.cli.test_serve import refusal as refused_start
from tests.doors.wire import VERSION, text_of
from tests.processes import roost, running

SECRET = "a-token-for-the-agents"


# Where


def test_without_credentials_a_host_for_others_does_not_start_and_says_what_to_do() -> None:
    said = refused_start(roost("serve", AGENTS, "--memory", "--port", "0", "--host", "0.0.0.0"))
    assert "0.0.0.0" in said
    for way in ("roost token create", "ROOST_TOKEN", "--jwt-issuer", "--client-ca", "--host 127.0.0.1"):
        assert way in said


def test_an_open_host_for_others_does_not_start_even_if_there_is_a_token() -> None:
    env = {"ROOST_TOKEN": SECRET}
    done = roost("serve", AGENTS, "--memory", "--port", "0", "--host", "0.0.0.0", "--auth", "open", env=env)
    said = refused_start(done)
    assert "--host 127.0.0.1" in said
    assert "--auth" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "agents.example.com"])
async def test_what_is_not_loopback_needs_a_credential_that_opens_agents(host: str) -> None:
    for settings in (
        Settings(memory=True),
        Settings(memory=True, admin_token=ADMIN_SECRET),
        Settings(memory=True, auth="required"),
        Settings(memory=True, auth="open", token=SECRET),
    ):
        with pytest.raises(HostError, match=host):
            await Host([teller()], settings, hosts=["127.0.0.1", host]).start()
    for settings in (
        Settings(memory=True, token=SECRET),
        Settings(memory=True, jwt_issuer="https://idp.example.com", jwt_audience="roost"),
        Settings(memory=True, client_ca="ca.pem"),
    ):
        started = Host([teller()], settings, hosts=["127.0.0.1", host])
        await started.start()
        await started.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
async def test_loopback_needs_none(host: str) -> None:
    started = Host([teller()], Settings(memory=True), hosts=[host])
    await started.start()
    assert started.engine is not None
    assert started.engine.accepting
    await started.close()


@pytest.fixture(scope="module")
def world() -> Iterator[People]:
    """A host that listens to all, with a token."""
    env = {**OPERATOR, "ROOST_TOKEN": SECRET}
    with running(AGENTS, args=("--drain-s", "0", "--host", "0.0.0.0"), env=env) as server:
        assert server.url.startswith("http://0.0.0.0:")
        with People(f"http://127.0.0.1:{server.port}") as people:
            yield people


def test_with_a_token_it_starts_and_is_closed(world: People) -> None:
    assert world.with_headers({}).status() == 401
    assert world.with_headers(bearer(SECRET)).status() == 200


def test_with_credentials_any_name_and_any_proxy_may_lead_to_it(world: People) -> None:
    """An open host would refuse these requests; here only the credential counts."""
    person = world.with_headers(bearer(SECRET))
    assert person.status(Host="agents.example.com", X_Forwarded_For="203.0.113.9") == 200


async def test_a_host_that_requires_a_credential_has_none_to_begin_with() -> None:
    async with inside(Settings(memory=True, auth="required", admin_token=ADMIN_SECRET)) as http:
        assert (await http.get("/agents/teller/tasks")).status_code == 401
        card = (await http.get(f"/agents/teller{CARD}")).json()
        assert [*card["securitySchemes"]] == ["bearer", "apiKey"]


async def test_a_host_that_is_open_on_purpose_asks_for_no_token_but_for_its_own_routes() -> None:
    settings = Settings(memory=True, auth="open", token=SECRET, admin_token=ADMIN_SECRET)
    async with inside(settings) as http:
        for headers in ({}, bearer(SECRET)):
            assert (await http.get("/agents/teller/tasks", headers=headers)).status_code == 200
        assert "securitySchemes" not in (await http.get(f"/agents/teller{CARD}")).json()
        assert refusal(await http.get("/api/v2/admin/tokens")).reason == "UNAUTHENTICATED"
        assert (await http.get("/api/v2/admin/tokens", headers=bearer(ADMIN_SECRET))).status_code == 200
        for headers in ({"Host": "evil.example"}, {"X-Forwarded-For": "203.0.113.9"}):
            assert refusal(await http.get("/agents/teller/tasks", headers=headers)).reason == "FORBIDDEN"


# Which credentials


def schemes(person: Person, path: str) -> tuple[dict[str, Any], list[Any]]:
    card = person.ask("GET", path + CARD).json()
    return card.get("securitySchemes", {}), card.get("securityRequirements", [])


def test_the_operator_narrows_what_is_taken_and_declared() -> None:
    env = {
        "ROOST_TOKEN": SECRET,
        **OPERATOR,
        "AGENT_SECURITY_SCHEME": "apiKey",
        "AGENT_SECURITY_DESCRIPTION": "Ask at the desk.",
    }
    with running(AGENTS, args=("--drain-s", "0"), env=env) as server, People(server) as people:
        key = people.with_headers(api_key(SECRET))
        assert key.status() == 200
        for answer in (
            people.with_headers(bearer(SECRET)).ask("GET", "/agents/desk/tasks"),
            people.with_headers({}).ask("GET", "/agents/desk/tasks"),
        ):
            assert refusal(answer).reason == "UNAUTHENTICATED"
            assert answer.headers.get_list("www-authenticate") == ['ApiKey realm="roost", header="X-API-Key"']
            assert "X-API-Key" in refusal(answer).message
            assert "Bearer" not in refusal(answer).message
        declared = {
            "apiKeySecurityScheme": {"location": "header", "name": "X-API-Key", "description": "Ask at the desk."}
        }
        for path in ("", "/agents/desk", "/agents/keyed"):
            assert schemes(key, path) == ({"apiKey": declared}, [{"schemes": {"apiKey": {}}}])
        admin = people.with_headers(api_key(ADMIN_SECRET))
        assert admin.ask("GET", "/api/v2/admin/tokens").status_code == 200
        assert refusal(people.operator.ask("GET", "/api/v2/admin/tokens")).reason == "UNAUTHENTICATED"


def test_a_scheme_that_there_is_not_is_refused_at_the_start() -> None:
    done = roost("serve", AGENTS, "--memory", "--port", "0", "--security-scheme", "bearer,password")
    said = refused_start(done)
    assert "'password'" in said
    assert "apiKey" in said


def test_an_agent_narrows_it_for_itself(world: People) -> None:
    token, key = world.with_headers(bearer(SECRET)), world.with_headers(api_key(SECRET))
    for door in key.doors:
        assert text_of(door.task("hi", "keyed")) == "roost:ROOST_TOKEN"
    for answer in (token.ask("GET", "/agents/keyed/tasks"), token.rpc.call("ListTasks", {}, "keyed")):
        found = refusal(answer)
        assert (found.reason, found.metadata) == ("UNAUTHENTICATED", {"cause": "scheme"})
        assert answer.headers.get_list("www-authenticate") == ['ApiKey realm="roost", header="X-API-Key"']
    assert [*schemes(key, "/agents/keyed")[0]] == ["apiKey"]
    assert [*schemes(key, "/agents/desk")[0]] == [*schemes(key, "")[0]] == ["bearer", "apiKey"]
    assert token.ask("GET", "/agents/").status_code == 200, "it is narrowed for this agent only"


async def test_an_agent_that_nobody_could_call_keeps_the_host_from_starting() -> None:
    """Its card would declare nothing, as if it were open to all."""
    only_jwt = teller(schemes=["jwt"])
    for settings, agent in (
        (Settings(memory=True), only_jwt),
        (Settings(memory=True, token=SECRET), only_jwt),
        (Settings(memory=True, token=SECRET, security_scheme="mtls,unix"), teller()),
        (Settings(memory=True, token=SECRET, security_scheme="bearer"), teller(schemes=["apiKey"])),
    ):
        with pytest.raises(HostError, match=r"'teller' accepts only .*security_scheme"):
            await Host([agent], settings).start()
    issued = Settings(memory=True, jwt_issuer="https://idp.example.com", jwt_audience="roost")
    async with inside(issued, only_jwt) as http:
        assert (await http.get("/agents/teller/tasks")).status_code == 401
        assert [*(await http.get(f"/agents/teller{CARD}")).json()["securitySchemes"]] == ["jwt"]


def test_a_challenge_names_all_that_would_do(world: People) -> None:
    answer = world.with_headers({}).ask("GET", "/agents/desk/tasks")
    check_challenges(answer)
    assert [said.split()[0] for said in answer.headers.get_list("www-authenticate")] == ["Bearer", "ApiKey"]


# What a card tells those who are known


def keys(person: Person) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = person.ask("GET", f"/agents/desk{JWKS}").json()["keys"]
    return found


def test_the_public_card_says_that_there_is_more_and_not_what(world: People) -> None:
    card = world.with_headers({}).ask("GET", f"/agents/desk{CARD}").json()
    assert card["capabilities"]["extendedAgentCard"] is True
    assert card["x-desk"] == {"floor": 3}
    assert [skill["id"] for skill in card["skills"]] == ["desk"]
    assert "vault" not in str(card)
    assert holds(card, keys(world.operator))


def test_the_extended_card_is_by_caller_and_signed(world: People) -> None:
    some, all_of_them = world.new("agent:desk", name="some"), world.new("agent:*", name="all")
    public = some.ask("GET", f"/agents/desk{CARD}").json()
    for person, subject, skills in ((some, "some", ["desk", "vault"]), (all_of_them, "all", ["desk", "vault", "keys"])):
        cards = [door.ok("GetExtendedAgentCard", {}, "desk") for door in person.doors]
        assert cards[0] == cards[1]
        assert [skill["id"] for skill in cards[0]["skills"]] == skills
        assert cards[0]["description"] == f"The desk, to {subject}."
        assert cards[0]["x-desk"] == {"floor": 3}
        same = {"name", "supportedInterfaces", "securitySchemes", "securityRequirements", "capabilities", "version"}
        assert {name: cards[0][name] for name in same} == {name: public[name] for name in same}
        assert holds(cards[0], keys(person))


def test_who_is_told_no_more_gets_the_ordinary_card(world: People) -> None:
    stranger = world.new(tenants=["acme"])
    public = stranger.ask("GET", f"/agents/desk{CARD}").json()
    assert stranger.rest.ok("GetExtendedAgentCard", {}, "desk") == public


def test_an_extended_card_is_in_no_cache(world: People) -> None:
    answer = world.new().ask("GET", "/agents/desk/extendedAgentCard")
    assert answer.headers["cache-control"] == "no-store"


def test_where_no_extended_card_is_declared_the_operation_is_not_supported(world: People) -> None:
    """Specification, section 3.3.4."""
    person = world.new()
    assert person.ask("GET", f"/agents/other{CARD}").json()["capabilities"]["extendedAgentCard"] is False
    for door in person.doors:
        assert refusal(door.call("GetExtendedAgentCard", {}, "other")).reason == "UNSUPPORTED_OPERATION"


async def test_a_host_that_knows_nobody_has_no_extended_card() -> None:
    agent = teller()
    agent.extended_card(lambda caller: None)
    async with inside(Settings(memory=True), agent) as http:
        card = (await http.get(f"/agents/teller{CARD}")).json()
        assert card["capabilities"]["extendedAgentCard"] is False
        answer = await http.get("/agents/teller/extendedAgentCard", headers=VERSION)
        assert refusal(answer).reason == "UNSUPPORTED_OPERATION"


async def test_an_extended_card_that_fails_is_an_error_with_an_id_and_no_more() -> None:
    agent = teller()

    @agent.extended_card
    def fail(caller: object) -> None:
        raise RuntimeError("the password is hunter2")

    async with inside(Settings(memory=True, token=SECRET), agent) as http:
        answer = await http.get("/agents/teller/extendedAgentCard", headers=bearer(SECRET))
        assert answer.status_code == 500
        assert "hunter2" not in answer.text
        assert answer.json()["error"]["details"][0]["metadata"]["errorId"]


def test_the_client_commands_say_who_they_are(world: People) -> None:
    sent = roost("send", "teller", "hi", url=world.base, env={"ROOST_TOKEN": SECRET})
    assert (sent.returncode, sent.stdout.strip()) == (0, "roost:ROOST_TOKEN default hi")
    sent = roost("send", "teller", "hi", url=world.base)
    assert sent.returncode == 1
    assert "--token or ROOST_TOKEN" in sent.stderr


def test_metrics_can_be_opened() -> None:
    """Only the metrics are open, for scrapers without a credential."""
    args = ("--drain-s", "0", "--open-metrics")
    with running(AGENTS, args=args, env={"ROOST_TOKEN": SECRET}) as server:
        assert httpx.get(f"{server.url}/metrics").status_code == 200
        assert httpx.get(f"{server.url}/agents/").status_code == 401
