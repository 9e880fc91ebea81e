"""The rate of the A2A surface holds at every door of it, and each door refuses in the form of its own protocol."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import httpx
import pytest

from roost.settings import Settings
from tests.access.inside import inside
from tests.access.people import IDEMPOTENCY

RATE, SENT = 3, 12


class AtDoor(NamedTuple):
    """A request to one door, and what of its refusal shows the form of that door's errors."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    refused: int
    form: tuple[str, ...]
    """The path to a member of the refusal."""


def message() -> dict[str, Any]:
    return {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def old_message() -> dict[str, Any]:
    return {"messageId": str(uuid.uuid4()), "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "x"}]}


def old_rest_message() -> dict[str, Any]:
    return {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "content": [{"text": "hello"}]}


NEW, OLD = {"A2A-Version": "1.0"}, {"A2A-Version": "0.3"}
SANDBOX = {"A2A-Extensions": IDEMPOTENCY}
CHAT = {"model": "teller", "messages": [{"role": "user", "content": "hello"}]}
MCP = {"Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


DOORS = {
    "rest": AtDoor("/agents/teller/message:send", {"message": message()}, NEW, 429, ("error", "details")),
    "jsonrpc": AtDoor("/agents/teller", rpc("SendMessage", {"message": message()}), NEW, 429, ("error", "data")),
    "0.3 rest": AtDoor("/agents/teller/v1/message:send", {"message": old_rest_message()}, OLD, 429, ("type",)),
    "0.3 jsonrpc": AtDoor("/agents/teller", rpc("message/send", {"message": old_message()}), OLD, 429, ("error",)),
    "sandbox": AtDoor("/agents/teller/v1/messages:send", {"message": message()}, SANDBOX, 429, ("code",)),
    "openai chat": AtDoor("/openai/v1/chat/completions", CHAT, {}, 429, ("error", "type")),
    "openai alias": AtDoor("/agents/teller/v1/chat/completions", CHAT, {}, 429, ("error", "type")),
    "openai responses": AtDoor("/openai/v1/responses", {"model": "teller", "input": "x"}, {}, 429, ("error", "type")),
    "mcp": AtDoor("/mcp", rpc("initialize", INITIALIZE), MCP, 429, ("error", "code")),
}


@pytest.mark.parametrize("door", DOORS)
async def test_the_rate_of_the_a2a_surface_holds_at_every_door(door: str) -> None:
    at = DOORS[door]
    async with inside(Settings(memory=True, quotas=f"surface:a2a.rate={RATE}")) as http:
        del http.headers["A2A-Version"]
        answers = [await http.post(at.path, json=at.body, headers=at.headers) for _ in range(SENT)]
        assert all(map(is_served, answers[:RATE])), [answer.text for answer in answers[:RATE]]
        refused = [answer for answer in answers if not is_served(answer)]
        assert len(refused) >= SENT - 2 * RATE, "a new minute may begin once in between, not more often"
        for answer in refused:
            assert answer.status_code == at.refused
            assert int(answer.headers["Retry-After"]) > 0
            found = answer.json()
            for member in at.form:
                found = found[member]


async def test_requests_at_different_doors_count_together() -> None:
    async with inside(Settings(memory=True, quotas=f"surface:a2a.rate={RATE}")) as http:
        del http.headers["A2A-Version"]
        answers = [await http.post(at.path, json=at.body, headers=at.headers) for at in DOORS.values()]
        assert all(map(is_served, answers[:RATE]))
        assert not all(map(is_served, answers[RATE:]))


async def test_a_body_that_is_no_mcp_message_is_counted_and_a_large_one_not_read_beyond_the_rate() -> None:
    async with inside(Settings(memory=True, quotas=f"surface:a2a.rate={RATE}")) as http:
        bad = [await http.post("/mcp", json={"jsonrpc": "2.0"}, headers=MCP) for _ in range(SENT)]
        assert {answer.status_code for answer in bad[:RATE]} == {400}
        assert bad[-1].status_code == 429
        large = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"x": "x" * 100_000}}
        assert (await http.post("/mcp", json=large, headers=MCP)).status_code == 429


def is_served(answer: httpx.Response) -> bool:
    return answer.status_code in (200, 202) and '"error":{' not in answer.text
