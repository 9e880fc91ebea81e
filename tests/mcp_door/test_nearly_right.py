"""Messages that are nearly right: each is answered, as MCP answers, and none makes the host fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.doors.wire import Rest
from tests.fuzz.bodies import mostly, nearly, rubbish
from tests.mcp_door.raw import Session, asking, modern
from tests.processes import Server
from tests.waiting import PATIENCE_S

ARGUMENTS = {"text": "hello", "data": {"a": [1, None, "x"]}, "contextId": "c", "wait": True}
LISTING = {"agent": "reader", "state": "completed", "limit": 2, "contextId": "c", "pageToken": ""}
ANSWER = {"answer": {"action": "accept", "content": {"answer": "Ann"}}}
CALLS: dict[str, dict[str, Any]] = {
    "agent": {"name": "reader", "arguments": ARGUMENTS, "_meta": {"progressToken": "p"}},
    "answer": {"name": "interview", "arguments": {"text": "x"}, "inputResponses": ANSWER, "requestState": "t q"},
    "list": {"name": "list_tasks", "arguments": LISTING},
    "get": {"name": "get_task", "arguments": {"taskId": "nothing"}},
}
shots = settings(
    max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(scope="module")
def session(server: Server) -> Iterator[Session]:
    with Session(server.url) as opened:
        yield opened


def check(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if not answer.content:
        assert answer.status_code in (202, 406)
        return
    if answer.headers["content-type"] == "application/json":
        found = answer.json()
    else:
        found = json.loads(answer.content.rpartition(b"data: ")[2])
    assert ("result" in found) != ("error" in found)
    if "error" in found:
        assert found["error"]["code"] in (-32700, -32600, -32601, -32602, -32020, -32005), found


def bodies(right: dict[str, Any]) -> st.SearchStrategy[bytes]:
    return mostly(nearly(right), rubbish())


@pytest.mark.parametrize("name", CALLS)
def test_without_sessions(server: Server, http: httpx.Client, name: str) -> None:
    params = CALLS[name]
    right, headers = modern("tools/call", params, params["name"])
    right["params"]["_meta"] |= params.get("_meta", {})

    @shots
    @given(bodies(right))
    def shoot(body: bytes) -> None:
        check(http.post(f"{server.url}/mcp", content=body, headers=headers))

    shoot()


@pytest.mark.parametrize("name", CALLS)
def test_with_a_session(session: Session, name: str) -> None:
    @shots
    @given(bodies(asking("tools/call", CALLS[name])))
    def shoot(body: bytes) -> None:
        check(session.http.post(session.url, content=body))

    shoot()
    assert session.call("release", {"text": "x"})["structuredContent"]["state"] == "completed"


def test_the_host_is_well(server: Server, rest: Rest) -> None:
    assert rest.task("x", "release")["status"]["state"] == "TASK_STATE_COMPLETED"
