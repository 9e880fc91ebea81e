"""A host may close a connection between two requests: `roost conform` must not report that as a fault."""

from __future__ import annotations

import json
import socket

import pytest

from roost.conform.connections import Http
from roost.conform.outcome import Outcome
from roost.conform.runner import judge
from roost.conform.target import ConformOptions
from roost.conform.wire import NoAnswer
from tests.conform.hostile import Serve, answer, hostile, read_request

LIMIT_S = 20.0
OOPS = answer(b"{}", status="500 Oops")


class Requests:
    """Counts connections, and requests on each of them."""

    def __init__(self) -> None:
        self.per_connection: list[int] = []

    def serve(self, first: bytes | None, second: bytes | None = None) -> Serve:
        """Send `first` to the first request of each connection and `second` to the second. None closes it instead."""

        def one(connection: socket.socket, _: str) -> None:
            number = len(self.per_connection)
            self.per_connection.append(0)
            self.per_connection[number] += 1
            if first is None:
                return
            connection.sendall(first)
            if not read_request(connection):
                return
            self.per_connection[number] += 1
            if second is not None:
                connection.sendall(second)

        return one


@pytest.fixture
def requests() -> Requests:
    return Requests()


async def statuses(url: str, count: int) -> list[int]:
    http = Http(LIMIT_S)
    try:
        return [(await http.fetch("POST", url, content=b"{}")).status for _ in range(count)]
    finally:
        await http.close()


async def test_a_request_that_fails_on_a_reused_connection_is_sent_again_on_a_fresh_one(requests: Requests) -> None:
    with hostile(requests.serve(OOPS, None)) as url:
        assert await statuses(url, 2) == [500, 500]
    assert requests.per_connection == [2, 1]


async def test_a_request_that_fails_on_a_fresh_connection_is_not_sent_again(requests: Requests) -> None:
    with hostile(requests.serve(None)) as url, pytest.raises(NoAnswer):
        await statuses(url, 1)
    assert requests.per_connection == [1]


async def test_a_request_is_not_sent_again_once_a_part_of_its_response_has_arrived(requests: Requests) -> None:
    with hostile(requests.serve(OOPS, b"HTTP/1.1 2")) as url, pytest.raises(NoAnswer):
        await statuses(url, 2)
    assert requests.per_connection == [2]


async def test_a_request_is_sent_again_only_once(requests: Requests) -> None:
    responses = iter((OOPS, None))

    def one(connection: socket.socket, path: str) -> None:
        requests.serve(next(responses))(connection, path)

    with hostile(one) as url, pytest.raises(NoAnswer):
        await statuses(url, 2)
    assert requests.per_connection == [2, 1]


async def test_a_host_that_closes_the_connection_after_a_500_is_judged_by_its_answers() -> None:
    """FastA2A does so: the next check was reported as failed."""
    task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}

    def serve(connection: socket.socket, path: str) -> None:
        if path.endswith("agent-card.json"):
            host, port = connection.getsockname()
            interface = {
                "url": f"http://{host}:{port}",
                "protocolBinding": "HTTP+JSON",
                "protocolVersion": "1.0",
            }
            connection.sendall(answer(json.dumps({"supportedInterfaces": [interface]}).encode()))
            return
        broken.append(path)
        if len(broken) == 1:
            connection.sendall(OOPS)
            read_request(connection)
        else:
            connection.sendall(answer(json.dumps({"task": task}).encode()))

    broken: list[str] = []
    with hostile(serve) as url:
        report = await judge(ConformOptions(url, token="t", timeout=LIMIT_S, only=["errors.json", "ext.unknown"]))
    found = {result.id: result.outcome for result in report.results}
    assert (found["errors.json"], found["ext.unknown"]) == (Outcome.FAILED, Outcome.PASSED)
