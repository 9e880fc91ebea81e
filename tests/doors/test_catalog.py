"""/.well-known/ai-catalog.json: the fleet as an AI Catalog, to each caller its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from a2a.client import A2ACardResolver

from tests.access.people import AGENTS, OPERATOR, People
from tests.doors.serving import free_port
from tests.processes import Server, running

PATH = "/.well-known/ai-catalog.json"
TYPE = "application/ai-catalog+json"
ENTRY = {
    "type": "object",
    "required": ["identifier", "type"],
    "properties": {
        "identifier": {"type": "string", "format": "uri"},
        "type": {"type": "string"},
        "url": {"type": "string", "format": "uri"},
        "displayName": {"type": "string"},
        "description": {"type": "string"},
    },
    "oneOf": [{"required": ["url"]}, {"required": ["data"]}],
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["specVersion", "entries"],
    "properties": {
        "specVersion": {"type": "string", "pattern": r"^\d+\.\d+$"},
        "host": {"type": "object", "required": ["displayName"]},
        "entries": {"type": "array", "items": ENTRY},
    },
}
"""The draft's requirements of a catalog, as in docs/adr/0017-ai-catalog.md."""


@pytest.fixture(scope="module")
def people() -> Iterator[People]:
    args = ("--drain-s", "0", "--auth", "required")
    with running(AGENTS, args=args, env=OPERATOR) as server, People(server) as people:
        yield people


def test_it_is_a_catalog_of_all_agents(server: Server, http: httpx.Client) -> None:
    answer = http.get(server.url + PATH)
    assert answer.headers["content-type"] == TYPE
    jsonschema_rs.Draft202012Validator(SCHEMA, validate_formats=True).validate(answer.json())
    directory = http.get(f"{server.url}/agents/").json()["agents"]
    entries = answer.json()["entries"]
    assert [entry["url"] for entry in entries] == [agent["card"] for agent in directory]
    assert [entry["description"] for entry in entries] == [agent["description"] for agent in directory]
    assert {entry["type"] for entry in entries} == {"application/a2a-agent-card+json"}
    assert len({entry["identifier"] for entry in entries}) == len(entries) == len(directory)


async def test_its_entries_lead_to_cards_that_can_be_used(server: Server, http: httpx.Client) -> None:
    """Read the cards as the official client does."""
    entry = next(entry for entry in catalog(http, server.url) if entry["identifier"].endswith("/hello"))
    base, _, path = entry["url"].partition("/.well-known/")
    async with httpx.AsyncClient() as client:
        card = await A2ACardResolver(client, base, f"/.well-known/{path}").get_agent_card()
    assert (card.name, card.description) == (entry["displayName"], entry["description"])
    assert entry["identifier"] in [interface.url for interface in card.supported_interfaces]


def catalog(http: httpx.Client, base: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(base + PATH).json()["entries"]
    return found


def test_who_has_it_is_not_sent_it_again(server: Server, http: httpx.Client) -> None:
    first = http.get(server.url + PATH)
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = http.get(server.url + PATH, headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    for other in ('"other"', "", tag.strip('"')):
        assert http.get(server.url + PATH, headers={"If-None-Match": other}).content == first.content
    assert http.head(server.url + PATH).headers["etag"] == tag


def test_no_cache_shows_it_to_somebody_else(server: Server, http: httpx.Client) -> None:
    answer = http.get(server.url + PATH)
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["vary"] == "authorization, x-api-key"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_can_only_be_read(server: Server, http: httpx.Client, method: str) -> None:
    answer = http.request(method, server.url + PATH)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_it_is_the_callers(people: People) -> None:
    def named(*scopes: str) -> list[str]:
        person = people.new(*scopes)
        return [entry["identifier"].rpartition("/")[2] for entry in catalog(person.http, person.base)]

    assert named("agent:desk") == ["desk"]
    listed = {*named("agent:*")}
    assert {"desk", "other"} <= listed
    assert "keyed" not in listed, "it takes no bearer token"
    assert named("audit") == []
    refused = httpx.get(people.base + PATH)
    assert (refused.status_code, "www-authenticate" in refused.headers) == (401, True)
    tags = {people.new(scope).http.get(people.base + PATH).headers["etag"] for scope in ("agent:desk", "agent:other")}
    assert len(tags) == 2


def test_its_urls_are_those_of_the_settings_whatever_a_request_says(http: httpx.Client) -> None:
    public, port = "https://agents.example.com/fleet", free_port()
    with running(AGENTS, args=("--drain-s", "0", "--public-url", public), port=port):
        (first, *_) = catalog(http, f"http://127.0.0.1:{port}")
    assert first["identifier"] == f"{public}/agents/desk"
    assert first["url"] == f"{public}/agents/desk/.well-known/agent-card.json"
