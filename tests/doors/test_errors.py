"""Errors of the host itself: the client gets an error with an id, in the form of its binding.

In this process, with a store that fails as a full disk or a bug would.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from roost import Agent
from roost.engine.store_types import Stored, StoreUnavailable
from roost.host import Host
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from tests.doors.wire import VERSION, Rest, Rpc

CALL = {"jsonrpc": "2.0", "id": "mine", "method": "GetTask", "params": {"id": "x"}}
SECRET = "/var/lib/secret.db"


class BrokenStore(MemoryStore):
    error: Exception

    async def read_task(self, task_id: str, owner: str | None = None, most: int | None = None) -> Stored | None:
        raise self.error


@pytest.fixture
async def store() -> BrokenStore:
    return BrokenStore()


@pytest.fixture
async def http(store: BrokenStore) -> AsyncIterator[httpx.AsyncClient]:
    agent = Agent("one")
    agent.on_message(lambda task: "one")
    host = Host([agent], Settings(), store)
    await host.start()
    transport = httpx.ASGITransport(host)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=VERSION) as client:
        yield client
    await host.close()


async def both(http: httpx.AsyncClient) -> tuple[httpx.Response, httpx.Response]:
    """GetTask over each binding."""
    return await http.get("/agents/one/tasks/x"), await http.post("/agents/one", json=CALL)


async def test_a_store_that_does_not_answer_is_503_and_worth_another_try(
    store: BrokenStore, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    store.error = StoreUnavailable(f"{SECRET}: disk I/O error")
    rest, rpc = await both(http)
    assert Rest.problem(rest).reason == "UNAVAILABLE"
    problem = Rpc.problem(rpc)
    assert (problem.reason, problem.id) == ("UNAVAILABLE", "mine")
    for response in (rest, rpc):
        assert int(response.headers["retry-after"]) > 0
        assert SECRET not in response.text
    assert caplog.text.count(SECRET) == 2


async def test_what_was_not_foreseen_is_500_with_an_id_that_the_log_has_too(
    store: BrokenStore, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    store.error = KeyError(SECRET)
    with caplog.at_level(logging.ERROR, "roost.doors"):
        rest, rpc = await both(http)
    errors: list[tuple[dict[str, Any], str]] = [
        (rest.json()["error"], "details"),
        (rpc.json()["error"], "data"),
    ]
    assert (rest.status_code, errors[0][0]["status"], errors[1][0]["code"]) == (500, "INTERNAL", -32603)
    assert rpc.json()["id"] == "mine"
    for error, details in errors:
        (info,) = error[details]
        assert info["reason"] == "INTERNAL_ERROR"
        error_id = info["metadata"]["errorId"]
        assert error["message"] == f"Internal error. Error id: {error_id}"
        assert error_id in caplog.text
    assert SECRET not in rest.text + rpc.text
    assert "Traceback" not in rest.text + rpc.text
    assert caplog.text.count("Traceback") == 2
