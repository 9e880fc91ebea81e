"""Requests that are not MCP are refused in JSON-RPC's form: never a 500, never a hang, nothing changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.mcp_door.raw import HEADERS, MODERN, VERSION, Session, asking, modern, opening
from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S

OLD = {**HEADERS}
NEW = {**HEADERS, "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


BODIES = {
    "nothing": (b"", 400),
    "no JSON": (b"{", 400),
    "not UTF-8": (b'{"jsonrpc": "\xff"}', 400),
    "half a pair": (json.dumps(asking("ping", {"a": "\ud800"})).encode(), 400),
    "not a number": (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": NaN}}', 400),
    "a list": (json.dumps([asking("ping", {})]).encode(), 400),
    "a string": (b'"ping"', 400),
    "no version": (b'{"id": 1, "method": "ping"}', 400),
    "no method": (b'{"jsonrpc": "2.0", "id": 1}', 400),
    "an id that is none": (json.dumps(asking("ping", {}, {"a": 1})).encode(), 400),
    "params that are none": (json.dumps({**asking("ping", {}), "params": 5}).encode(), 400),
}


@pytest.mark.parametrize("headers", [OLD, NEW], ids=["sessions", "no sessions"])
@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_no_message(server: Server, http: httpx.Client, name: str, headers: dict[str, str]) -> None:
    body, status = BODIES[name]
    answer = http.post(f"{server.url}/mcp", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert error["jsonrpc"] == "2.0"
    assert error["error"]["code"] in (-32700, -32600, -32602)
    assert error["error"]["message"]


@pytest.mark.parametrize("headers", [OLD, NEW], ids=["sessions", "no sessions"])
def test_a_body_that_is_too_deep_or_too_long(server: Server, http: httpx.Client, headers: dict[str, str]) -> None:
    deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + b'{"a":' * 200 + b"1" + b"}" * 201
    assert "nested" in http.post(f"{server.url}/mcp", content=deep, headers=headers).json()["error"]["message"]
    long = json.dumps(asking("tools/list", {"a": "x" * 9_000_000}))
    assert http.post(f"{server.url}/mcp", content=long, headers=headers).status_code == 413


def test_other_types_and_methods(server: Server, http: httpx.Client) -> None:
    url = f"{server.url}/mcp"
    text = http.post(url, content=b"{}", headers={**HEADERS, "Content-Type": "text/plain"})
    assert text.json()["error"]["data"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
    for method in ("GET", "PUT", "PATCH", "HEAD", "OPTIONS"):
        answer = http.request(method, url, headers={"Accept": "text/event-stream"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST, DELETE")
    assert http.post(url, json=asking("initialize", opening()), headers={"Accept": "text/html"}).status_code == 406


def test_a_slash_at_the_end_is_no_other_path(server: Server, http: httpx.Client) -> None:
    url = f"{server.url}/mcp/"
    opened = http.post(url, json=asking("initialize", opening()), headers=HEADERS)
    assert opened.status_code == 200
    assert http.post(url, content=b"{", headers=HEADERS).json()["error"]["code"] == -32700
    assert http.delete(url, headers={"Mcp-Session-Id": opened.headers["mcp-session-id"]}).status_code == 200


def test_sessions_that_are_none(server: Server, http: httpx.Client) -> None:
    url = f"{server.url}/mcp"
    assert http.post(url, json=asking("tools/list", {}), headers=HEADERS).status_code == 400
    for session in ("nothing", "x" * 2000, "a b"):
        headers = {**HEADERS, "Mcp-Session-Id": session}
        assert http.post(url, json=asking("tools/list", {}), headers=headers).status_code == 404
        assert http.delete(url, headers=headers).status_code == 404
    assert http.delete(url).status_code == 400


def test_versions_that_are_none(server: Server, http: httpx.Client) -> None:
    body, headers = modern("tools/list", {})
    headers["MCP-Protocol-Version"] = "1999-01-01"
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "1999-01-01"
    answer = http.post(f"{server.url}/mcp", json=body, headers=headers)
    assert answer.status_code == 400
    assert MODERN in answer.json()["error"]["data"]["supported"]
    old = http.post(f"{server.url}/mcp", json=asking("initialize", {**opening(), "protocolVersion": "1"}), headers=OLD)
    assert VERSION in old.text, "a client is offered what there is"


def test_a_session_that_was_ended_is_over(server: Server) -> None:
    with Session(server.url) as session:
        session.end()
        assert session.http.post(session.url, json=asking("tools/list", {})).status_code == 404


def test_methods_that_are_none(server: Server) -> None:
    with Session(server.url) as session:
        for method in ("resources/list", "prompts/get", "nothing", "message/send"):
            with session.sent(method, {"name": "x"}, 5) as answer:
                error = session.answer(answer, 5)["error"]
                assert error["code"] in (-32601, -32602)
        with session.sent("tools/call", {"name": 5}, 6) as answer:
            assert session.answer(answer, 6)["error"]["code"] == -32602
        with session.sent("tools/call", {"name": "release", "arguments": [1]}, 7) as answer:
            assert session.answer(answer, 7)["error"]["code"] == -32602


CANCELS: list[Any] = [None, {}, {"requestId": None}, {"requestId": {}}, {"requestId": "nothing"}, [], 5]


@pytest.mark.parametrize("params", CANCELS, ids=repr)
def test_a_cancel_of_nothing(server: Server, params: Any) -> None:
    with Session(server.url) as session:
        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        assert session.http.post(session.url, json=body).status_code in (202, 400)
        assert session.call("release", {"text": "x"})["structuredContent"]["state"] == "completed"


def test_a_host_without_mcp() -> None:
    with running(FLEET, args=("--no-mcp",)) as server:
        answer = httpx.post(f"{server.url}/mcp", json=asking("initialize", opening()), headers=HEADERS)
        assert answer.status_code == 404
        assert answer.json()["error"]["details"][0]["reason"] == "ROUTE_NOT_FOUND"
