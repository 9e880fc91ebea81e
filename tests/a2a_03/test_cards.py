"""The card of A2A 0.3: true, in its own form, cacheable, and what it says can be used."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from a2a.client import A2ACardResolver
from a2a.client.card_resolver import parse_agent_card
from a2a.compat.v0_3.types import AgentCard
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import create_signature_verifier
from google.protobuf import json_format
from jwt import PyJWK

from roost.identity import card_verification
from roost.identity.card_verification import SignatureFault
from roost.protocol.codec import encode
from tests.a2a_03.wire import Old, message, proto_sending, text_of
from tests.access.people import AGENTS, CARD, JWKS, OPERATOR, People
from tests.cards.conftest import js as js
from tests.cards.javascript import JavaScript
from tests.doors.serving import healthy
from tests.doors.wire import VERSION, Rest
from tests.grpc.wire import GRPC, place_of
from tests.processes import Server, running
from tests.waiting import PATIENCE_S

PATHS = ("/.well-known/agent.json", "/.well-known/agent")


@pytest.mark.parametrize("path", PATHS)
def test_a_card_is_one_of_0_3(server: Server, place: str, http: httpx.Client, path: str) -> None:
    url = f"{server.url}/agents/hold"
    answer = http.get(url + path)
    assert answer.headers["content-type"] == "application/json"
    card = answer.json()
    AgentCard.model_validate(card)
    assert (card["protocolVersion"], card["url"], card["preferredTransport"]) == ("0.3.0", url, "JSONRPC")
    assert card["additionalInterfaces"] == [
        {"transport": "HTTP+JSON", "url": url},
        {"transport": "GRPC", "url": place},
    ]
    assert card["supportsAuthenticatedExtendedCard"] is False
    assert (card["capabilities"]["streaming"], card["capabilities"]["pushNotifications"]) == (True, True)
    assert card["capabilities"]["stateTransitionHistory"] is False
    assert [(skill["inputModes"], skill["outputModes"]) for skill in card["skills"]] == [
        (card["defaultInputModes"], card["defaultOutputModes"])
    ]
    new = http.get(url + CARD, headers=VERSION).json()
    same = ("name", "description", "version", "skills", "defaultInputModes", "defaultOutputModes")
    assert {name: card[name] for name in same} == {name: new[name] for name in same}
    assert not {"signatures", "supportedInterfaces", "securitySchemes"} & card.keys()
    assert http.get(server.url + path).json() == card, "hold is at the root"


def test_grpc_is_only_on_the_card_of_the_agent_that_it_leads_to(server: Server, http: httpx.Client) -> None:
    faces = http.get(f"{server.url}/agents/hello{PATHS[0]}").json()["additionalInterfaces"]
    assert [face["transport"] for face in faces] == ["HTTP+JSON"]
    new = http.get(f"{server.url}/agents/hello{CARD}").json()["supportedInterfaces"]
    assert [(face["protocolBinding"], face["protocolVersion"]) for face in new] == [
        *(("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("GRPC", "1.0")),
        *(("JSONRPC", "0.3"), ("HTTP+JSON", "0.3")),
    ]


def test_what_it_says_can_be_used(server: Server, http: httpx.Client) -> None:
    card = http.get(f"{server.url}/agents/hello{PATHS[0]}").json()
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message("Ada")}}
    assert text_of(http.post(card["url"], json=body).json()["result"]) == "Hello, Ada!"
    (rest,) = [face["url"] for face in card["additionalInterfaces"]]
    assert text_of(http.post(f"{rest}/v1/message:send", json=proto_sending("Ada")).json()["task"]) == "Hello, Ada!"


def test_it_is_cached_like_the_card_of_1_0(server: Server, http: httpx.Client) -> None:
    url = f"{server.url}/agents/hello{PATHS[0]}"
    first, new = http.get(url), http.get(f"{server.url}/agents/hello{CARD}", headers=VERSION)
    assert first.headers["etag"] != new.headers["etag"]
    assert first.headers["vary"] == "accept"
    assert first.headers["cache-control"] == new.headers["cache-control"]
    again = http.get(url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    since = http.get(url, headers={"If-Modified-Since": first.headers["last-modified"]})
    assert since.status_code == 304
    assert http.head(url).headers["etag"] == first.headers["etag"]
    assert http.post(url).status_code == 405


# The card of 1.0 with the fields of 0.3


def has(found: Any, part: Any) -> bool:
    """Whether a value has everything that a part of it has, at any depth."""
    if isinstance(part, dict):
        return isinstance(found, dict) and all(name in found and has(found[name], part[name]) for name in part)
    if isinstance(part, list):
        return isinstance(found, list) and len(found) == len(part) and all(map(has, found, part))
    return bool(found == part)


@pytest.mark.parametrize("version", [None, "", "0.3", "0.3.0"])
def test_a_reader_without_a_version_gets_a_card_that_clients_of_both_versions_read(
    server: Server, http: httpx.Client, version: str | None
) -> None:
    url = f"{server.url}/agents/hello"
    asked = {} if version is None else {"A2A-Version": version}
    card = http.get(url + CARD, headers=asked).json()
    new, old = http.get(url + CARD, headers=VERSION).json(), http.get(url + PATHS[0]).json()
    assert (AgentCard.model_validate(card).url, card["protocolVersion"]) == (url, "0.3.0")
    assert has(card, {name: value for name, value in new.items() if name != "signatures"})
    assert has(card, old)
    assert card.keys() == new.keys() | old.keys()
    known = parse_agent_card(card.copy())
    assert [(face.protocol_version, face.tenant) for face in known.supported_interfaces] == [
        *[("1.0", "hello")] * 3,
        *[("0.3", "")] * 2,
    ]


@pytest.mark.parametrize("version", ["1.0", "1.0.1", "2.0"])
def test_a_reader_with_a_version_gets_the_card_of_1_0(server: Server, http: httpx.Client, version: str) -> None:
    url = f"{server.url}/agents/hello{CARD}"
    card = http.get(url, headers={"A2A-Version": version}).json()
    json_format.ParseDict(card, pb.AgentCard(), ignore_unknown_fields=False)
    assert http.get(url, params={"A2A-Version": version}).json() == card
    assert (
        http.head(url, headers={"A2A-Version": version}).headers["etag"]
        == http.get(url, headers=VERSION).headers["etag"]
    )


def test_caches_keep_the_two_forms_apart(server: Server, http: httpx.Client) -> None:
    url = f"{server.url}/agents/hello{CARD}"
    both, new = http.get(url), http.get(url, headers=VERSION)
    for one, other, asked in ((both, new, {}), (new, both, VERSION)):
        assert {name.strip() for name in one.headers["vary"].split(",")} == {"a2a-version", "accept"}
        again = http.get(url, headers={**asked, "If-None-Match": one.headers["etag"]})
        assert (again.status_code, again.headers["vary"]) == (304, one.headers["vary"])
        changed = http.get(url, headers={**asked, "If-None-Match": other.headers["etag"]})
        assert (changed.status_code, changed.content) == (200, one.content)


def test_the_root_serves_both_forms_of_the_card_of_its_agent(server: Server, http: httpx.Client) -> None:
    for asked in ({}, VERSION):
        at_root = http.get(server.url + CARD, headers=asked)
        assert at_root.json() == http.get(f"{server.url}/agents/hold{CARD}", headers=asked).json()


def test_a_fleets_card_is_that_of_1_0_for_everyone(http: httpx.Client) -> None:
    with healthy() as host:
        assert http.get(host.url + CARD).content == http.get(host.url + CARD, headers=VERSION).content


async def test_the_signatures_of_both_forms_hold_for_every_verifier(js: JavaScript) -> None:
    """With credentials and fields beyond A2A, which is where forms of cards differ."""
    args = ("--drain-s", "0", "--jwt-issuer", "https://login.example.com", "--jwt-audience", "roost")
    with running(AGENTS, args=args, env=OPERATOR) as server:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            base = f"{server.url}/agents/desk"
            keys = (await client.get(base + JWKS)).json()["keys"]
            known = {key["kid"]: PyJWK(key) for key in keys}
            check = create_signature_verifier(lambda kid, jku: known[kid or ""], ["EdDSA"])
            covered = {}
            for asked in ({}, VERSION):
                resolver = A2ACardResolver(client, base)
                read = await resolver.get_agent_card(http_kwargs={"headers": asked}, signature_verifier=check)
                assert {*read.security_schemes} == {"bearer", "apiKey", "jwt"}
                served = (await client.get(base + CARD, headers=asked)).content
                card = msgspec.json.decode(served)
                assert js.ask(card, keys).valid
                verdicts = card_verification.verify(served, keys)
                assert all(verdict.valid for verdict in verdicts)
                covered[bool(asked)] = {verdict.covers: verdict.uncovered for verdict in verdicts}
                assert covered[bool(asked)]["document"] == ()
            assert "url" in covered[False]["card"], (
                "the fields of 0.3 are covered by the signature of the document alone"
            )
            moved = {**msgspec.json.decode((await client.get(base + CARD)).content), "url": "https://example.com"}
            faults = {verdict.covers or verdict.fault for verdict in card_verification.verify(encode(moved), keys)}
            assert faults == {"card", SignatureFault.MISMATCH}


def test_a_fleet_has_none_because_0_3_cannot_name_the_agent(http: httpx.Client) -> None:
    with healthy() as host:
        for path in PATHS:
            problem = Rest.problem(http.get(host.url + path))
            assert problem.reason == "ROUTE_NOT_FOUND"
            assert f"GET /agents/{{agent}}{path}" in problem.message
        assert http.get(f"{host.url}/agents/nobody{PATHS[0]}").status_code == 404


def test_a_host_of_one_agent_needs_no_metadata_for_grpc(http: httpx.Client) -> None:
    with healthy(AGENTS.parents[2] / "examples" / "fleet" / "hello.py", args=GRPC) as host:
        faces = http.get(host.url + PATHS[0]).json()["additionalInterfaces"]
        assert {"transport": "GRPC", "url": place_of(host)} in faces


def test_credentials_and_the_extended_card_are_in_the_old_form() -> None:
    with running(AGENTS, args=("--drain-s", "0"), env=OPERATOR) as server, People(server) as people:
        someone, stranger = people.new("agent:desk", name="ada"), people.with_headers({})
        card = stranger.http.get(f"{server.url}/agents/desk{PATHS[0]}").json()
        AgentCard.model_validate(card)
        assert card["securitySchemes"] == {
            "bearer": {"type": "http", "scheme": "Bearer"},
            "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        assert card["security"] == [{"bearer": []}, {"apiKey": []}]
        both = AgentCard.model_validate(stranger.http.get(f"{server.url}/agents/desk{CARD}").json())
        assert (both.security, both.security_schemes) == (
            card["security"],
            AgentCard.model_validate(card).security_schemes,
        )
        assert card["supportsAuthenticatedExtendedCard"] is True
        assert card["x-desk"] == {"floor": 3}
        old = Old(someone.http, server.url)
        extended = old.ok("agent/getAuthenticatedExtendedCard", {}, "desk")
        AgentCard.model_validate(extended)
        assert (extended["description"], extended["protocolVersion"]) == ("The desk, to ada.", "0.3.0")
        assert [skill["id"] for skill in extended["skills"]] == ["desk", "vault"]
        assert "signatures" not in extended
        over_rest: dict[str, Any] = old.rest_ok("GET", "card", "desk")
        assert over_rest["description"] == "The desk, to ada."
        assert over_rest["securitySchemes"]["bearer"] == {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
        assert over_rest["security"] == [{"schemes": {"bearer": {}}}, {"schemes": {"apiKey": {}}}]
        assert httpx.get(f"{server.url}/agents/desk/v1/card", timeout=PATIENCE_S).status_code == 401
