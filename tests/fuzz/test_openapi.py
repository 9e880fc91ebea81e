"""/openapi.json says what is served, all of it and nothing else, in a form that tools can read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from roost.doors.access import SCHEMES
from roost.doors.openapi import document
from roost.doors.openapi_components import EXACTLY_ONE, Demands
from roost.protocol.codec import encode
from roost.settings import Settings
from tests.fuzz.target import Target
from tests.protocol.strategies import structs
from tests.protocol.test_descriptors import STRUCTS
from tests.routes import all_routes, routes_of

BASE = "https://agents.example.com"
OPEN = Demands(agents=(), always=("bearer", "apiKey"))
CLOSED = Demands(agents=("bearer", "apiKey"), always=("bearer", "apiKey"))
EVERYTHING = Settings(memory=True)


def made(demands: Demands = CLOSED, settings: Settings = EVERYTHING) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document(BASE, "1.2.3", demands, tuple(all_routes(settings))))
    return found


def operations(found: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation for path, item in found["paths"].items() for method, operation in item.items()
    }


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)


@cache
def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    schema = {**made(), "$ref": f"#/components/schemas/{name}"}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


# What is in it


@pytest.mark.parametrize("off", [{}, {"openai": False}, {"mcp": False}, {"a2a_03": False}, {"strict": True}], ids=str)
def test_every_route_is_in_it_and_no_other(off: dict[str, bool]) -> None:
    settings = Settings(memory=True, **off)
    known = {(route.method, route.path) for route in all_routes(settings)}
    assert operations(made(settings=settings)).keys() == known
    assert (known < operations(made()).keys()) == bool(off)


def test_what_a_request_must_have_is_required() -> None:
    found = operations(made())
    for path, what in (("chat/completions", "messages"), ("responses", "input")):
        asked = found["POST", f"/openai/v1/{path}"]["requestBody"]["content"]["application/json"]["schema"]
        assert {*followed(made(), asked)["required"]} == {what, "model"}
    for path in ("message:send", "message:stream", "v1/messages:send"):
        body = found["POST", f"/agents/{{agent}}/{path}"]["requestBody"]
        assert body["required"]
        assert followed(made(), body["content"]["application/json"]["schema"])["required"] == ["message"]
    alias = found["POST", "/agents/{agent}/v1/chat/completions"]["requestBody"]["content"]["application/json"]["schema"]
    assert "model" not in followed(made(), alias)["required"], "there the path names the model"
    old = found["POST", "/agents/{agent}/v1/message:send"]["requestBody"]["content"]["application/json"]["schema"]
    assert old["required"] == ["message"]


def test_the_version_is_required_only_where_nothing_else_is_served() -> None:
    found = made()

    def required(operation: dict[str, Any]) -> bool:
        given = [_followed(found, one) for one in operation["parameters"]]
        return any(one.get("required", False) for one in given if one["name"] == "A2A-Version")

    described = operations(found)
    old_and_dialect = {key for key in described if key[1].startswith("/agents/{agent}/v1/")}
    assert {("GET", "/agents/{agent}/v1/tasks"), ("POST", "/agents/{agent}/v1/messages:send")} < old_and_dialect
    assert [key for key in old_and_dialect if required(described[key])] == [], "without it 0.3 or the dialect is meant"
    assert required(described["GET", "/agents/{agent}/tasks"])
    assert required(described["POST", "/agents/{agent}/message:send"])


def followed(found: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = found["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return inner


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    found = made()
    references = {node["$ref"] for node in nodes(found) if isinstance(node.get("$ref"), str)}
    for reference in references:
        at: Any = found
        for step in reference.removeprefix("#/").split("/"):
            at = at[step]
        assert at
    for schema in found["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_operations_have_ids_of_their_own_and_the_parameters_of_their_paths() -> None:
    found = made()
    ids = [operation["operationId"] for operation in operations(found).values()]
    assert len(set(ids)) == len(ids)
    for (_, path), operation in operations(found).items():
        given = [_followed(found, parameter) for parameter in operation["parameters"]]
        assert {one["name"] for one in given if one["in"] == "path"} == set(re.findall(r"{(\w+)}", path))
        assert all(one.get("required") for one in given if one["in"] == "path")


def _followed(found: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return node
    inner: dict[str, Any] = found["components"]["parameters"][node["$ref"].rpartition("/")[2]]
    return inner


def test_schemathesis_can_read_all_of_it() -> None:
    schema = schemathesis.openapi.from_dict(made())
    schema.validate()
    assert {found.ok().label for found in schema.get_all_operations()} == {
        f"{method} {path}" for method, path in operations(made())
    }


def test_it_names_the_release_and_where_the_host_is() -> None:
    found = made()
    assert (found["openapi"], found["info"]["version"]) == ("3.1.0", "1.2.3")
    assert found["servers"] == [{"url": BASE}]


def test_it_is_made_once() -> None:
    routes = tuple(all_routes())
    assert document(BASE, "1.2.3", CLOSED, routes) is document(BASE, "1.2.3", CLOSED, routes)
    assert document(BASE, "1.2.3", CLOSED, routes) != document(BASE, "1.2.3", OPEN, routes)


# Security, as it is enforced


def security(demands: Demands, method: str, path: str, settings: Settings = EVERYTHING) -> list[dict[str, list[str]]]:
    found: list[dict[str, list[str]]] = operations(made(demands, settings))[method, path]["security"]
    return found


def test_an_open_host_asks_for_a_credential_only_where_there_is_always_one_needed() -> None:
    asking = {path for (_, path), operation in operations(made(OPEN)).items() if operation["security"]}
    assert asking == {route.path for route in routes_of("AdminDoor")}


def test_any_scheme_and_any_scope_of_those_named_is_enough() -> None:
    assert security(CLOSED, "POST", "/agents/{agent}/message:send") == [{"bearer": []}, {"apiKey": []}]
    assert security(CLOSED, "GET", "/agents/") == [{"bearer": []}, {"apiKey": []}]
    assert security(CLOSED, "GET", "/api/v2/admin/audit") == [
        *[{"bearer": ["audit"]}, {"bearer": ["admin"]}],
        *[{"apiKey": ["audit"]}, {"apiKey": ["admin"]}],
    ]
    assert {"apiKey": ["metrics"]} in security(CLOSED, "GET", "/metrics")


def test_what_is_public_asks_for_nothing() -> None:
    for path in ("/healthz", "/readyz", "/.well-known/agent-card.json", "/agents/{agent}/.well-known/jwks.json"):
        assert security(CLOSED, "GET", path) == []
    assert security(CLOSED, "GET", "/metrics", Settings(memory=True, open_metrics=True)) == []


def test_every_scheme_that_openapi_has_a_word_for_is_described() -> None:
    every = CLOSED._replace(agents=SCHEMES, always=SCHEMES)
    found = made(every)["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in found.items()} == {
        "bearer": "http",
        "apiKey": "apiKey",
        "jwt": "http",
        "mtls": "mutualTLS",
    }
    assert {name for one in security(every, "GET", "/agents/") for name in one} == found.keys()
    url = "https://issuer.example.com/.well-known/openid-configuration"
    assert made(every._replace(openid_url=url))["components"]["securitySchemes"]["jwt"] == {
        "type": "openIdConnect",
        "openIdConnectUrl": url,
    }


# Schemas, as the codec has them


SCHEMAS = made()["components"]["schemas"]
WRITTEN = [name for name in STRUCTS if name in SCHEMAS]


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.sampled_from(WRITTEN).flatmap(structs).filter(lambda value: _is_answer(value)))
def test_what_is_written_fits_its_schema(value: Struct) -> None:
    validator(type(value).__name__).validate(json.loads(encode(value)))


def _is_answer(value: Struct) -> bool:
    """One that says neither this nor that is never written."""
    return type(value).__name__ not in EXACTLY_ONE or encode(value) != b"{}"


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("Part", {"text": ""}, True),
        ("Part", {"data": None}, True),
        ("Part", {"raw": "AAEC", "filename": "f", "mediaType": "a/b"}, True),
        ("Part", {}, False),
        ("Part", {"text": "a", "url": "b"}, False),
        ("Part", {"metadata": {}}, False),
        ("Message", {"messageId": "", "role": "ROLE_USER", "parts": [{"text": ""}]}, False),
        ("Message", {"messageId": "1", "role": "ROLE_USER", "parts": []}, False),
        ("Message", {"messageId": "1", "role": "ROLE_UNSPECIFIED", "parts": [{"text": ""}]}, False),
        ("TaskStatus", {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-01T00:00:00.000Z"}, True),
        ("TaskStatus", {"state": "TASK_STATE_WORKING", "timestamp": "today"}, False),
        ("TaskStatus", {"state": "working"}, False),
        ("SendMessageResponse", {}, False),
        ("GetTaskCall", {"jsonrpc": "2.0", "id": None, "method": "GetTask", "params": {"id": "t"}}, True),
        ("GetTaskCall", {"jsonrpc": "2.0", "id": 1, "method": "GetTask"}, False),
        ("GetTaskCall", {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"id": "t"}}, False),
        ("ListTasksCall", {"jsonrpc": "2.0", "method": "ListTasks"}, True),
    ],
)
def test_the_schema_draws_the_line_where_the_codec_does(name: str, value: Any, fits: bool) -> None:
    assert validator(name).is_valid(value) is fits


# Who may have it


def test_an_open_host_shows_it_to_everyone_and_says_that_agents_are_open(opened: Target) -> None:
    answer = httpx.get(f"{opened.url}/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["servers"] == [{"url": opened.url}]
    assert operations(found)["GET", "/agents/"]["security"] == []


@pytest.mark.parametrize(("caller", "status"), [("nobody", 401), ("stranger", 401), ("user", 200), ("auditor", 200)])
def test_a_closed_host_shows_it_to_those_whom_it_shows_the_directory(closed: Target, caller: str, status: int) -> None:
    for path in ("/openapi.json", "/agents/"):
        assert httpx.get(closed.url + path, headers=closed.callers[caller]).status_code == status


def test_a_closed_host_says_what_it_asks_for(closed: Target) -> None:
    assert operations(closed.document())["GET", "/agents/"]["security"] == [{"bearer": []}, {"apiKey": []}]
