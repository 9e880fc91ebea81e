"""A strict host serves A2A 1.0 to A2A clients and nothing beside it; that 0.3 is off is in tests/a2a_03/test_off.py."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.doors.serving import healthy
from tests.doors.wire import VERSION, Rest, sending, text_of
from tests.processes import FLEET, Server
from tests.waiting import PATIENCE_S

SANDBOX = {"A2A-Extensions": "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"}
CHAT = {"model": "hello", "messages": [{"role": "user", "content": "Ada"}]}


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    with healthy(FLEET, args=("--strict", "--root", "hello")) as host:
        yield host


@pytest.fixture(scope="module")
def lenient() -> Iterator[Server]:
    """The same host without --strict, where all that is closed there is open."""
    with healthy(FLEET, args=("--root", "hello")) as host:
        yield host


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


def test_a2a_1_0_is_served_at_its_paths(strict: Server, http: httpx.Client) -> None:
    for base in (strict.url, f"{strict.url}/hello", f"{strict.url}/agents/hello", f"{strict.url}/agents/hello/hello"):
        sent = http.post(f"{base}/message:send", json=sending("Ada"), headers=VERSION).json()
        assert text_of(sent["task"]) == "Hello, Ada!"
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sending("Ada")}
    assert text_of(http.post(strict.url, json=call, headers=VERSION).json()["result"]["task"]) == "Hello, Ada!"


@pytest.mark.parametrize("headers", [VERSION, SANDBOX, {**VERSION, **SANDBOX}], ids=["version", "extension", "both"])
@pytest.mark.parametrize("prefix", ["", "/agents/hello"], ids=["root", "agent"])
def test_the_paths_of_agentic_sandbox_are_closed(
    strict: Server, lenient: Server, http: httpx.Client, prefix: str, headers: dict[str, str]
) -> None:
    def sends(host: Server) -> httpx.Response:
        return http.post(
            f"{host.url}{prefix}/v1/messages:send", json=sending("Ada", messageId=str(uuid.uuid4())), headers=headers
        )

    assert "task" in sends(lenient).json()
    problem = Rest.problem(sends(strict))
    assert problem.reason == "ROUTE_NOT_FOUND"


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/v1/message:send", {}),
        ("POST", "/v1/message:send", VERSION),
        ("POST", "/v1/messages:send", VERSION),
        ("GET", "/v1/tasks", {}),
        ("GET", "/v1/tasks", VERSION),
        ("GET", "/v1/card", {}),
        ("GET", "/v1/extendedAgentCard", VERSION),
        ("POST", "/v1/chat/completions", {}),
        ("GET", "/v1/models", {}),
        ("GET", "/v1/", {}),
    ],
)
def test_nothing_is_below_v1_at_the_root(
    strict: Server, http: httpx.Client, method: str, path: str, headers: dict[str, str]
) -> None:
    body = CHAT if "chat" in path else sending("Ada")
    answer = http.request(method, strict.url + path, json=body if method == "POST" else None, headers=headers)
    assert (answer.status_code, Rest.problem(answer).reason) == (404, "ROUTE_NOT_FOUND")


def test_openai_is_served_where_it_does_not_mix_with_a2a(strict: Server, lenient: Server, http: httpx.Client) -> None:
    assert http.post(f"{lenient.url}/v1/chat/completions", json=CHAT).status_code == 200
    for path in ("/openai/v1/chat/completions", "/agents/hello/v1/chat/completions"):
        answer = http.post(strict.url + path, json=CHAT).json()
        assert answer["choices"][0]["message"]["content"] == "Hello, Ada!"


def test_the_description_of_the_host_has_no_closed_path(strict: Server, lenient: Server, http: httpx.Client) -> None:
    def paths(host: Server) -> set[str]:
        found: dict[str, object] = http.get(f"{host.url}/openapi.json").json()["paths"]
        return {path for path in found if path.startswith(("/v1/", "/agents/{agent}/v1/", "/.well-known/agent."))}

    assert paths(strict) == {"/agents/{agent}/v1/chat/completions"}
    assert {"/agents/{agent}/v1/messages:send", "/agents/{agent}/v1/message:send"} < paths(lenient)
