"""The card of A2A 0.3: true, in its own form, cacheable, and what it says can be used."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from a2a.compat.v0_3.types import AgentCard

from tests.a2a_03.wire import Old, message, proto_sending, text_of
from tests.access.people import AGENTS, CARD, OPERATOR, People
from tests.doors.serving import healthy
from tests.doors.wire import Rest
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
    new = http.get(url + CARD).json()
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
    first, new = http.get(url), http.get(f"{server.url}/agents/hello{CARD}")
    assert first.headers["etag"] != new.headers["etag"]
    assert first.headers["cache-control"] == new.headers["cache-control"]
    again = http.get(url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    since = http.get(url, headers={"If-Modified-Since": first.headers["last-modified"]})
    assert since.status_code == 304
    assert http.head(url).headers["etag"] == first.headers["etag"]
    assert http.post(url).status_code == 405


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
