"""Cards and the other pages that say what is served: true, strict, cacheable, and never from a request's headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import MethodNotFoundError
from google.api import field_behavior_pb2
from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage
from starlette.applications import Starlette
from starlette.routing import Mount

from roost import Agent, asgi
from roost._version import VERSION as RELEASE
from roost.doors import cards as card_pages
from roost.doors.cards import CardDoor
from tests.doors.agents import OPTIONAL, REQUIRED
from tests.doors.serving import AGENTS, free_port, healthy
from tests.doors.wire import VERSION, Door, Rest, Rpc, sending
from tests.processes import FLEET, Server
from tests.waiting import PATIENCE_S

CARD = "/.well-known/agent-card.json"
RESUME = "urn:roost:a2a:stream-resume:v1"
IDEMPOTENCY = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"
MULTI_TENANT = "https://agentic-sandbox.aiwg.io/extensions/multi-tenant/v1"
FLEET_EXTENSION = "https://scitex.ai/a2a/extensions/sac-fleet/v1"
PUBLIC = "https://agents.example.com/roost"


def agent_ids(http: httpx.Client, base: str) -> list[str]:
    return [agent["name"] for agent in http.get(f"{base}/agents/").json()["agents"]]


def parsed(card: dict[str, Any]) -> pb.AgentCard:
    """Parse a card with protobuf, which knows only the fields of the specification, and check the required ones.

    What is beyond the specification is in blocks named x-*, and nowhere else.
    """
    known = {key: value for key, value in card.items() if not key.startswith("x-")}
    found = json_format.ParseDict(known, pb.AgentCard(), ignore_unknown_fields=False)
    assert missing(found) == []
    return found


def missing(message: ProtoMessage, at: str = "") -> list[str]:
    """Paths of the fields that a2a.proto says are REQUIRED and that are not set, at any depth."""
    found = []
    for field in message.DESCRIPTOR.fields:
        path = f"{at}{field.name}"
        value = getattr(message, field.name)
        behavior = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
        given = message.HasField(field.name) if field.has_presence else bool(value)
        if field_behavior_pb2.REQUIRED in behavior and not given:
            found.append(path)
        if field.message_type is None or field.message_type.full_name.startswith("google.protobuf."):
            continue
        if field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            found += [name for index, item in enumerate(value) for name in missing(item, f"{path}[{index}].")]
        elif given:
            found += missing(value, f"{path}.")
    return found


@pytest.fixture(scope="module")
def behind_proxy() -> Iterator[Server]:
    """A host with a public URL that has a path, and a slash too much; `url` is the bound address."""
    port = free_port()
    with healthy(args=("--public-url", PUBLIC + "/"), port=port) as host:
        host.url = f"http://127.0.0.1:{port}"
        yield host


# What a card says


def test_every_card_is_a_card_to_protobuf_and_has_all_that_is_required(server: Server, http: httpx.Client) -> None:
    ids = agent_ids(http, server.url)
    assert {"hello", "files", "strict", "tck"} <= set(ids)
    for agent in ids:
        card = parsed(http.get(f"{server.url}/agents/{agent}{CARD}", headers=VERSION).json())
        assert card.skills
        assert card.default_input_modes
        assert card.default_output_modes
    assert parsed(http.get(f"{server.url}{CARD}").json()).name == "Roost fleet"


def test_missing_fields_are_found_by_this_test() -> None:
    assert missing(pb.AgentCard(name="x", skills=[pb.AgentSkill(id="y")]))[:2] == [
        "description",
        "supported_interfaces",
    ]
    assert "skills[0].tags" in missing(pb.AgentCard(skills=[pb.AgentSkill(id="y")]))


def test_a_card_says_what_its_agent_said_of_itself(server: Server, http: httpx.Client) -> None:
    card = http.get(f"{server.url}/agents/hello{CARD}", headers=VERSION).json()
    assert card.pop("signatures")
    modes = ["text/plain", "application/json"]
    assert card == {
        "name": "hello",
        "description": "Greets whoever writes to it.",
        "version": "1.0.0",
        "supportedInterfaces": [
            {
                "url": f"{server.url}/agents/hello",
                "protocolBinding": binding,
                "protocolVersion": version,
                **tenant,
            }
            for version, tenant in (("1.0", {"tenant": "hello"}), ("0.3", {}))
            for binding in ("JSONRPC", "HTTP+JSON")
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": True,
            "extendedAgentCard": False,
            "extensions": [
                {
                    "uri": RESUME,
                    "description": "SSE events carry ids; SubscribeToTask with Last-Event-ID goes on after that event.",
                },
                {
                    "uri": MULTI_TENANT,
                    "description": "message.metadata.tenant_id chooses one of the caller's tenants; tasks of others do"
                    " not exist.",
                    "params": {"enforcement": "declared"},
                },
                {
                    "uri": IDEMPOTENCY,
                    "description": "A message sent again with its messageId is answered as it was the first time, and"
                    " makes no second task; with another content it is refused.",
                    "params": {
                        "ttl_seconds": 86_400,
                        "canonicalization": "jcs-rfc8785",
                        "hash_algorithm": "sha-256",
                        "max_cache_entries": 100_000,
                    },
                },
            ],
        },
        "defaultInputModes": modes,
        "defaultOutputModes": modes,
        "skills": [
            {
                "id": "hello",
                "name": "hello",
                "description": "Greets whoever writes to it.",
                "tags": ["hello"],
                "inputModes": modes,
                "outputModes": modes,
            }
        ],
    }


def test_a_card_declares_the_extensions_of_the_agent(server: Server, http: httpx.Client) -> None:
    declared = http.get(f"{server.url}/agents/strict{CARD}").json()["capabilities"]["extensions"]
    assert [(extension["uri"], extension.get("required", False)) for extension in declared] == [
        (RESUME, False),
        (MULTI_TENANT, False),
        (IDEMPOTENCY, False),
        (REQUIRED, True),
        (OPTIONAL, False),
    ]


def test_a_card_declares_only_what_is_enforced(server: Server, http: httpx.Client) -> None:
    """No credentials are asked for, so no scheme is named."""
    card = http.get(f"{server.url}/agents/hello{CARD}").json()
    assert not {"securitySchemes", "securityRequirements"} & card.keys()


@pytest.mark.parametrize("agent", ["hello", "files", "strict", "tasks"])
def test_every_interface_of_a_card_answers(server: Server, http: httpx.Client, agent: str) -> None:
    """No path is doubled, no host is one that nobody can reach (agentgateway #3500, #3587)."""
    for interface in http.get(f"{server.url}/agents/{agent}{CARD}").json()["supportedInterfaces"]:
        url = interface["url"]
        assert not url.endswith("/")
        if interface["protocolBinding"] == "HTTP+JSON":
            answer = http.get(f"{url}/tasks/x", headers={**VERSION, "A2A-Extensions": REQUIRED})
            assert Rest.problem(answer).reason == "TASK_NOT_FOUND"
        else:
            body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
            answer = http.post(url, json=body, headers={**VERSION, "A2A-Extensions": REQUIRED})
            assert Rpc.problem(answer).reason == "TASK_NOT_FOUND"


# Where its URLs come from


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "x.localhost:9999", "[::1]:7"])
def test_urls_come_from_the_bound_address_whatever_the_host_header_says(
    server: Server, http: httpx.Client, host: str
) -> None:
    for path in (f"/agents/hello{CARD}", CARD, "/agents/", "/"):
        plain = http.get(f"{server.url}{path}")
        other = http.get(f"{server.url}{path}", headers={"Host": host})
        assert server.url in plain.text
        assert other.content == plain.content


def test_urls_come_from_the_public_url(behind_proxy: Server, http: httpx.Client) -> None:
    for headers in ({}, {"Host": "agents.example.com"}):
        base = behind_proxy.url
        card = http.get(f"{base}/agents/hello{CARD}", headers=headers).json()
        assert {interface["url"] for interface in card["supportedInterfaces"]} == {f"{PUBLIC}/agents/hello"}
        fleet = http.get(f"{base}{CARD}", headers=headers).json()
        assert [interface["url"] for interface in fleet["supportedInterfaces"]] == [f"{PUBLIC}/agents"]
        for path in ("/agents/", "/"):
            text = http.get(f"{base}{path}", headers=headers).text
            assert f"{PUBLIC}/agents/hello" in text
            assert base not in text
        page = http.get(f"{base}/", headers={**headers, "Accept": "text/html"}).text
        assert all(link.startswith(PUBLIC + "/") for link in re.findall(r'href="([^"]*)"', page))


def test_the_public_host_and_origin_are_taken_and_no_other(behind_proxy: Server, http: httpx.Client) -> None:
    rest = Rest(http, behind_proxy.url)
    own = {"Host": "agents.example.com", "Origin": "https://agents.example.com"}
    assert "task" in rest.ok("SendMessage", sending(), headers=own)
    assert "task" in rest.ok("SendMessage", sending(), headers={"Origin": "https://agents.example.com"})
    for headers in (
        {"Host": "example.com"},
        {"Origin": "https://example.com"},
        {"Origin": "http://agents.example.com"},
    ):
        assert rest.refused("SendMessage", sending(), headers=headers).reason == "FORBIDDEN"


async def test_a_host_that_is_mounted_in_another_app_says_where() -> None:
    agent = Agent("inner")
    agent.on_message(lambda task: "hello")
    host = asgi(agent)
    app = Starlette(routes=[Mount("/a", app=host)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8000") as http:
        card = (await http.get(f"/a/agents/inner{CARD}")).json()
        url = card["supportedInterfaces"][0]["url"]
        assert url == "http://localhost:8000/a/agents/inner"
        answer = await http.post(f"{url}/message:send", json=sending(), headers=VERSION)
        assert answer.json()["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]
        assert (await http.get("/a/agents/")).json()["agents"][0]["card"] == f"{url}{CARD}"
    await host.close()


# Caching


@pytest.mark.parametrize("path", [CARD, f"/agents/hello{CARD}"])
def test_a_card_can_be_cached_and_asked_for_again(server: Server, http: httpx.Client, path: str) -> None:
    url = f"{server.url}{path}"
    first = http.get(url)
    assert re.fullmatch(r"public, max-age=[1-9]\d*", first.headers["cache-control"])
    assert re.fullmatch(r'"[0-9a-f]{32}"', first.headers["etag"])
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", first.headers["last-modified"])
    etag = first.headers["etag"]
    for tags in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = http.get(url, headers={"If-None-Match": tags})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
        assert again.headers["cache-control"] == first.headers["cache-control"]
        assert "content-length" not in again.headers
    assert http.get(url, headers={"If-Modified-Since": first.headers["last-modified"]}).status_code == 304


async def test_a_card_that_is_made_again_and_comes_out_the_same_was_not_modified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("here", description="It is here.")
    agent.on_message(lambda task: "hello")
    host = asgi(agent)
    transport = httpx.ASGITransport(host, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as local:
        first = await local.get(CARD)
        assert host.app is not None
        door = next(door for door in host.app.doors if isinstance(door, CardDoor))
        with monkeypatch.context() as later:
            later.setattr(card_pages.time, "time", lambda: 4_000_000_000.0)
            door.context.cards.forget()
        again = await local.get(CARD)
    await host.close()
    assert again.headers["last-modified"] == first.headers["last-modified"]


def test_another_tag_gets_the_whole_card(server: Server, http: httpx.Client) -> None:
    url = f"{server.url}/agents/hello{CARD}"
    modified = http.get(url).headers["last-modified"]
    for headers in (
        {"If-None-Match": '"other"'},
        {"If-None-Match": '"other"', "If-Modified-Since": modified},
        {"If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"},
    ):
        response = http.get(url, headers=headers)
        assert (response.status_code, response.json()["name"]) == (200, "hello")


def test_the_tag_changes_with_the_content_and_only_with_it(
    server: Server, behind_proxy: Server, http: httpx.Client
) -> None:
    def tag(base: str, agent: str) -> str:
        return http.get(f"{base}/agents/{agent}{CARD}").headers["etag"]

    assert tag(server.url, "hello") == tag(server.url, "hello")
    assert len({tag(server.url, "hello"), tag(server.url, "stream"), tag(behind_proxy.url, "hello")}) == 3


def test_a_card_is_the_same_after_a_restart_to_the_last_byte(http: httpx.Client, tmp_path: Path) -> None:
    """Its key is in the store."""
    cards = []
    for _ in range(2):
        with healthy(FLEET / "hello.py", data=tmp_path, args=("--public-url", PUBLIC), port=(port := free_port())):
            cards.append(http.get(f"http://127.0.0.1:{port}/agents/hello{CARD}").content)
    assert cards[0] == cards[1]


def test_head_is_get_without_the_body(server: Server, http: httpx.Client) -> None:
    for path in (CARD, f"/agents/hello{CARD}", "/", "/agents/"):
        got, head = http.get(f"{server.url}{path}"), http.head(f"{server.url}{path}")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(got.content))


# What is at the root


def test_a_fleets_root_card_leads_to_its_members(server: Server, http: httpx.Client) -> None:
    card = http.get(f"{server.url}{CARD}").json()
    assert (card["name"], card["version"]) == ("Roost fleet", RELEASE)
    assert [member["name"] for member in card["x-scitex-agent-container"]["agents"]] == agent_ids(http, server.url)
    (fleet,) = [item for item in card["capabilities"]["extensions"] if item["uri"] == FLEET_EXTENSION]
    members = http.get(server.url + fleet["params"]["members_path"]).json()["agents"]
    for member in members:
        path = fleet["params"]["member_card_path"].replace("<name>", member["name"])
        assert http.get(server.url + path).json()["supportedInterfaces"] == member["supportedInterfaces"]


async def test_the_interface_of_a_fleet_is_no_members_and_the_tenant_names_the_agent(server: Server) -> None:
    """A client that is given the root card must not talk to some member that it has not chosen."""
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        card = await A2ACardResolver(http, server.url).get_agent_card()
        assert [(face.url, face.protocol_binding, face.protocol_version) for face in card.supported_interfaces] == [
            (f"{server.url}/agents", "HTTP+JSON", "1.0")
        ]
        assert card.supported_interfaces[0].tenant == ""
        config = ClientConfig(streaming=True, httpx_client=http, supported_protocol_bindings=["HTTP+JSON", "JSONRPC"])
        client = ClientFactory(config).create(card)
        message = pb.Message(message_id="m", role=pb.ROLE_USER, parts=[pb.Part(text="Ada")])
        for agent, said in (("hello", "Hello, Ada!"), ("stream", "Ada")):
            events = [
                event async for event in client.send_message(pb.SendMessageRequest(message=message, tenant=agent))
            ]
            (task,) = [event.task for event in events if event.HasField("task")]
            texts = [
                part.text
                for event in events
                if event.HasField("artifact_update")
                for part in event.artifact_update.artifact.parts
            ]
            assert said in "".join(texts)
            assert (await client.get_task(pb.GetTaskRequest(id=task.id, tenant=agent))).id == task.id
            assert [one.id for one in (await client.list_tasks(pb.ListTasksRequest(tenant=agent, page_size=1))).tasks]
        with pytest.raises(MethodNotFoundError, match="/agents/message:stream"):
            _ = [event async for event in client.send_message(pb.SendMessageRequest(message=message))]
        refused = await http.post(f"{server.url}/agents/message:send", json=sending(), headers=VERSION)
        assert "the tenant of a request to the fleet names the agent" in Rest.problem(refused).message


def test_without_a_root_agent_the_root_takes_no_messages(rest: Rest, server: Server, http: httpx.Client) -> None:
    answer = http.post(f"{server.url}/message:send", json=sending(), headers=VERSION)
    assert rest.problem(answer).reason == "ROUTE_NOT_FOUND"
    assert http.post(f"{server.url}/", json={}, headers=VERSION).status_code == 405


@pytest.mark.parametrize(
    ("sources", "args", "agent"),
    [((FLEET,), ("--root", "stream"), "stream"), ((FLEET / "hello.py",), (), "hello")],
    ids=["--root", "single file"],
)
def test_a_root_agent_answers_at_the_root_too(
    http: httpx.Client, sources: tuple[Any, ...], args: tuple[str, ...], agent: str
) -> None:
    with healthy(*sources, args=args) as host:
        assert http.get(f"{host.url}{CARD}").json() == http.get(f"{host.url}/agents/{agent}{CARD}").json()
        made = http.post(f"{host.url}/message:send", json=sending(), headers=VERSION).json()["task"]
        assert http.get(f"{host.url}/tasks/{made['id']}", headers=VERSION).json()["id"] == made["id"]
        assert http.get(f"{host.url}/{agent}/tasks/{made['id']}", headers=VERSION).json()["id"] == made["id"]
        assert Rest(http, host.url).get(made["id"], agent)["id"] == made["id"]
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sending()}
        assert "task" in http.post(f"{host.url}/", json=call, headers=VERSION).json()["result"]
        broken = http.post(f"{host.url}/", content=b"{", headers={**VERSION, "Content-Type": "application/json"})
        assert Rpc.problem(broken).reason == "INVALID_JSON"
        foreign = http.post(f"{host.url}/", json=call, headers={**VERSION, "Host": "evil.example"})
        assert Rpc.problem(foreign).reason == "FORBIDDEN"
        assert http.get(f"{host.url}/").json()["agents"][-1]["url"].startswith(host.url)
        for path in ("/healthz", "/readyz", "/metrics", "/agents/"):
            assert http.get(f"{host.url}{path}").status_code == 200


def test_a_single_file_with_several_agents_has_no_root_agent(http: httpx.Client) -> None:
    with healthy(AGENTS) as host:
        assert http.get(f"{host.url}{CARD}").json()["name"] == "Roost fleet"


# Directory and index


@pytest.mark.parametrize("path", ["/agents", "/agents/"])
def test_the_directory_lists_every_agent_and_its_card(server: Server, http: httpx.Client, path: str) -> None:
    response = http.get(f"{server.url}{path}")
    assert response.headers["content-type"] == "application/json"
    agents = response.json()["agents"]
    assert {"ask", "files", "hello", "job", "stream", "tck", "strict"} <= {agent["name"] for agent in agents}
    for agent in agents:
        assert agent["card"] == f"{server.url}/agents/{agent['name']}{CARD}"
        assert agent["description"]
        assert {interface["protocolBinding"] for interface in agent["supportedInterfaces"]} == {"JSONRPC", "HTTP+JSON"}


def test_the_index_is_json_for_programs(server: Server, http: httpx.Client) -> None:
    response = http.get(f"{server.url}/")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["vary"] == "accept"
    index = response.json()
    assert index["directory"] == f"{server.url}/agents/"
    (hello,) = [agent for agent in index["agents"] if agent["id"] == "hello"]
    assert hello["url"] == f"{server.url}/agents/hello"
    assert hello["try"]["cli"] == f"roost send --url {server.url} hello 'hello'"


def test_the_index_is_a_page_for_browsers(server: Server, http: httpx.Client) -> None:
    accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    response = http.get(f"{server.url}/", headers={"Accept": accept})
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    for link in re.findall(r'href="([^"]*)"', response.text):
        assert http.get(unescape(link)).status_code == 200
    for agent in agent_ids(http, server.url):
        assert f'id="{agent}"' in response.text


def test_the_curl_command_of_the_index_works_as_it_is(server: Server, http: httpx.Client) -> None:
    (hello,) = [agent for agent in http.get(f"{server.url}/").json()["agents"] if agent["id"] == "hello"]
    words = re.fullmatch(r"curl -s (\S+) -H '(.*?): (.*?)' -H '(.*?): (.*?)' -d '(.*)'", hello["try"]["curl"])
    assert words is not None
    url, name, value, other, kind, body = words.groups()
    answer = http.post(url, content=body, headers={name: value, other: kind})
    assert answer.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


# Negotiation


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "application/a2a+json"),
        ("*/*", "application/a2a+json"),
        ("application/a2a+json", "application/a2a+json"),
        ("application/json", "application/json"),
        ("application/json, application/a2a+json", "application/a2a+json"),
        ("application/json, application/a2a+json;q=0.5", "application/json"),
        ("application/json;q=0.1, application/a2a+json;q=0.9", "application/a2a+json"),
        ("application/json;q=x", "application/a2a+json"),
        ("text/event-stream", "application/a2a+json"),
    ],
)
def test_the_rest_binding_answers_in_the_type_that_is_preferred(
    rest: Rest, http: httpx.Client, accept: str | None, kind: str
) -> None:
    """Section 11.1: application/a2a+json; older clients say application/json and get it."""
    headers = {"Accept": accept}
    assert rest.call("SendMessage", sending(), headers=headers).headers["content-type"] == kind
    assert rest.call("GetTask", {"id": "x"}, headers=headers).headers["content-type"] == kind


@pytest.mark.parametrize("accept", ["*/*", "application/a2a+json", "text/event-stream"])
def test_the_json_rpc_binding_always_answers_in_json(rpc: Rpc, accept: str) -> None:
    """Section 9.1."""
    response = rpc.call("SendMessage", sending(), headers={"Accept": accept})
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [("*/*", "application/json"), ("application/a2a+json", "application/a2a+json"), ("text/html", "application/json")],
)
def test_a_card_is_json_unless_its_own_type_is_asked_for(
    server: Server, http: httpx.Client, accept: str, kind: str
) -> None:
    response = http.get(f"{server.url}/agents/hello{CARD}", headers={"Accept": accept})
    assert response.headers["content-type"] == kind
    assert response.headers["vary"] == "a2a-version, accept"


def test_activated_extensions_are_named_in_every_answer(door: Door) -> None:
    asked = {"A2A-Extensions": f"{RESUME.upper()}, urn:other:v1"}
    assert door.call("SendMessage", sending(), headers=asked).headers["a2a-extensions"] == RESUME
    assert door.call("SendStreamingMessage", sending(), headers=asked).headers["a2a-extensions"] == RESUME
    assert door.call("GetTask", {"id": "x"}, headers=asked).headers["a2a-extensions"] == RESUME
    assert "a2a-extensions" not in door.call("SendMessage", sending()).headers


def test_the_agent_learns_which_extensions_are_activated(door: Door) -> None:
    asked = {"A2A-Extensions": f"urn:other:v1,{REQUIRED}"}
    task = door.ok("SendMessage", sending(), "strict", headers=asked)["task"]
    assert task["artifacts"][0]["parts"] == [{"text": REQUIRED}]
