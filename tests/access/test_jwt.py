"""JWTs of an issuer that the operator named, through the real door."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from roost.identity import jwks
from roost.settings import Settings
from tests.access.inside import inside
from tests.access.issuing import Issuer, issuing
from tests.access.people import AGENTS, CARD, OPERATOR, People, Person, bearer, refusal
from tests.doors.wire import text_of
from tests.identity.issuer import AUDIENCE, forge, signer
from tests.processes import running
from tests.waiting import eventually


class World:
    def __init__(self, people: People, issuer: Issuer) -> None:
        self.people = people
        self.issuer = issuer

    def bearer(self, token: str) -> Person:
        return self.people.with_headers(bearer(token))

    def cause(self, token: str) -> str:
        """Why a token is refused, the same on every surface."""
        person = self.bearer(token)
        answers = (
            person.ask("GET", "/agents/desk/tasks"),
            person.rpc.call("ListTasks", {}, "desk"),
            person.ask("GET", "/api/v2/admin/tokens"),
        )
        assert {refusal(answer).reason for answer in answers} == {"UNAUTHENTICATED"}
        (cause,) = {refusal(answer).metadata["cause"] for answer in answers[:2]}
        assert all(f'error_description="{cause}"' in answer.headers["www-authenticate"] for answer in answers)
        return cause


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with issuing() as issuer:
        args = ("--jwt-issuer", issuer.url, "--jwt-audience", AUDIENCE, "--jwt-scopes", "agent:desk,agent:teller")
        many = ("--drain-s", "0", "--auth-failures", "100000")
        with running(AGENTS, args=(*args, *many), env=OPERATOR) as server, People(server) as people:
            yield World(people, issuer)


def test_a_good_token_is_somebody_of_that_issuer(world: World) -> None:
    alice = world.bearer(world.issuer.token())
    for door in alice.doors:
        assert text_of(door.task("hi", "teller")) == f"{quote(world.issuer.url, safe='')}:alice default hi"
    assert (
        world.bearer(world.issuer.token(jti="another token of hers")).rest.ok("ListTasks", {}, "teller")["totalSize"]
        == 2
    )
    bob = world.bearer(world.issuer.token(sub="bob"))
    assert bob.rest.ok("ListTasks", {}, "teller")["totalSize"] == 0


def test_a_subject_of_the_issuer_is_not_one_of_our_own(world: World) -> None:
    task = world.bearer(world.issuer.token(sub="carol")).rest.task("hi", "desk")["id"]
    ours = world.people.new(name="carol")
    assert refusal(ours.rest.call("GetTask", {"id": task}, "desk")).reason == "TASK_NOT_FOUND"


def test_without_roosts_scopes_it_has_those_that_the_operator_gives(world: World) -> None:
    for token in (world.issuer.token(), world.issuer.token(scope="openid email")):
        person = world.bearer(token)
        assert person.status("desk") == 200
        assert refusal(person.ask("GET", "/agents/other/tasks")).metadata == {"scope": "agent:other"}


@pytest.mark.parametrize("claim", [{"scope": "openid agent:other metrics"}, {"scp": ["agent:other", "metrics"]}])
def test_its_scopes_are_what_it_opens(world: World, claim: dict[str, Any]) -> None:
    person = world.bearer(world.issuer.token(**claim))
    assert person.status("other") == 200
    assert refusal(person.ask("GET", "/agents/desk/tasks")).reason == "FORBIDDEN"
    assert person.ask("GET", "/metrics").status_code == 200
    assert refusal(person.ask("GET", "/api/v2/admin/tokens")).reason == "FORBIDDEN"


def test_its_tenants_are_those_it_may_choose_from(world: World) -> None:
    person = world.bearer(world.issuer.token(sub="dora", tenant=["acme", "globex"]))
    assert text_of(person.rest.task("hi", "teller")).split()[1] == "acme"
    assert text_of(person.rest.task("hi", "teller", metadata={"tenant_id": "globex"})).split()[1] == "globex"
    assert refusal(person.ask("GET", "/agents/teller/tasks", X_Tenant_Id="initech")).reason == "FORBIDDEN"
    assert world.cause(world.issuer.token(tenant="no/tenant")) == "tenant"


def test_a_bad_token_is_refused_with_its_reason_and_tells_nobody_more(world: World) -> None:
    issuer, now = world.issuer, time.time()
    key = issuer.keys[0]
    public = json.dumps(key.jwk()).encode()
    stranger = signer("EdDSA", "nobody's")
    bad = {
        "expired": issuer.token(exp=now - 1),
        "no expiry": issuer.token(exp=None),
        "not yet valid": issuer.token(nbf=now + 600),
        "wrong audience": issuer.token(aud="somebody-else"),
        "wrong issuer": issuer.token(iss="https://idp.example"),
        "no subject": issuer.token(sub=None),
        "algorithm": forge({"alg": "none", "kid": key.kid}, issuer.claims()),
        "unknown key": stranger.sign(issuer.claims()),
        "signature": issuer.token()[:-6] + "AAAAAA",
        "critical header": key.sign(issuer.claims(), crit=["exp"]),
        "oversized": issuer.token(padding="x" * 9000),
        "malformed": "not.a.token",
    }
    assert {name: world.cause(token) for name, token in bad.items()} == {name: name for name in bad}
    confused = forge({"alg": "HS256", "kid": key.kid}, issuer.claims(), secret=public)
    assert world.cause(confused) == "algorithm"
    elsewhere = key.sign(issuer.claims(), jku="https://evil.example/keys", kid="evil")
    assert world.cause(elsewhere) == "unknown key"


def test_a_token_that_was_good_is_not_when_its_time_is_over(world: World) -> None:
    """Although it was verified a moment ago, and is remembered."""

    def let_in() -> Person | None:
        found = world.bearer(world.issuer.token(exp=time.time() + 1))
        return found if found.status() == 200 else None

    person = eventually(let_in)
    eventually(lambda: person.status() == 401)


def test_a_jwt_is_no_api_key(world: World) -> None:
    answer = world.people.with_headers({"X-API-Key": world.issuer.token()}).ask("GET", "/agents/desk/tasks")
    assert refusal(answer).metadata["cause"] == "unknown"


def test_roosts_own_tokens_are_taken_beside_them_and_nothing_is_open(world: World) -> None:
    assert world.people.new("agent:desk").status() == 200
    assert world.people.with_headers({}).status() == 401


def test_the_card_says_where_to_get_a_token(world: World) -> None:
    card = world.people.operator.ask("GET", f"/agents/desk{CARD}").json()
    where = f"{world.issuer.url}/.well-known/openid-configuration"
    assert card["securitySchemes"]["jwt"] == {"openIdConnectSecurityScheme": {"openIdConnectUrl": where}}
    assert {"schemes": {"jwt": {}}} in card["securityRequirements"]


# The issuer's own troubles


def settings(issuer: Issuer, **more: Any) -> Settings:
    return Settings(memory=True, jwt_issuer=issuer.url, jwt_audience=AUDIENCE, **more)


async def status(http: httpx.AsyncClient, token: str) -> int:
    return (await http.get("/agents/teller/tasks", headers=bearer(token))).status_code


async def test_an_issuer_that_cannot_be_asked_is_503_and_not_the_callers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "RETRY_S", 0)
    with issuing() as issuer:
        issuer.up = False
        async with inside(settings(issuer)) as http:
            for answer in (
                await http.get("/agents/teller/tasks", headers=bearer(issuer.token())),
                await http.post("/agents/teller", headers=bearer(issuer.token()), json={}),
                await http.get("/api/v2/admin/tokens", headers=bearer(issuer.token())),
            ):
                assert refusal(answer).reason == "UNAVAILABLE"
                assert issuer.url not in answer.text
            issuer.up = True
            assert await status(http, issuer.token()) == 200
            issuer.up = False
            assert await status(http, issuer.token(sub="bob")) == 200, "keys that are known serve on"


async def test_a_new_key_is_fetched_when_it_is_first_used_and_an_old_one_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwks, "RETRY_S", 0)
    with issuing() as issuer:
        async with inside(settings(issuer)) as http:
            before = issuer.token()
            assert await status(http, before) == 200
            old, new = issuer.keys[0], signer("ES256", "second")
            issuer.keys = [new, old]
            assert await status(http, issuer.token()) == 200
            assert await status(http, before) == 200, "both are good while both are published"
            issuer.keys = [new]
            assert await status(http, signer("EdDSA", "third").sign(issuer.claims())) == 401
            assert await status(http, before) == 401


async def test_made_up_key_ids_do_not_make_us_ask_the_issuer_again_and_again() -> None:
    with issuing() as issuer:
        async with inside(settings(issuer, auth_failures=1000)) as http:
            assert await status(http, issuer.token()) == 200
            for number in range(20):
                assert await status(http, issuer.keys[0].sign(issuer.claims(), kid=f"made-up-{number}")) == 401
            assert issuer.asked.count("/keys") == 1


async def test_keys_by_their_own_url_and_claims_by_other_names() -> None:
    with issuing() as issuer:
        named = settings(
            issuer, jwt_jwks=f"{issuer.url}/keys", jwt_scope_claim="roles", jwt_tenant_claim="org", jwt_scopes=""
        )
        async with inside(named) as http:
            assert await status(http, issuer.token(roles=["agent:*"], org="acme")) == 200
            assert await status(http, issuer.token(scope="agent:*")) == 403
            card = (await http.get(f"/agents/teller{CARD}")).json()
            assert card["securitySchemes"]["jwt"] == {
                "httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}
            }
        assert "/.well-known/openid-configuration" not in issuer.asked


async def test_an_operators_token_that_looks_like_a_jwt_is_still_a_token() -> None:
    with issuing() as issuer:
        async with inside(settings(issuer, token="a.token.with.dots.in.it")) as http:
            assert await status(http, "a.token.with.dots.in.it") == 200
        assert issuer.asked == []
