"""A check asks for no more than the section that it names. The comments quote the specification."""

from __future__ import annotations

import json
import socket

import pytest

from roost.conform.check import every
from roost.conform.outcome import Outcome
from roost.conform.runner import judge
from roost.conform.target import ConformOptions
from tests.conform.hostile import Serve, answer, hostile

RUNTIME = "https://agentic-sandbox.aiwg.io/extensions/runtime/v1"
CONTRACT = {
    "Sunset": "Sun, 09 May 2027 00:00:00 GMT",
    "Deprecated": "true",
    "Link": '<https://agentic-sandbox.aiwg.io/v2-migration-guide>; rel="successor-version"',
}
"""The headers of every response below /api/v1/ of agentic-sandbox."""

CITED = {
    "first.concurrent": ("3.1.1, 3.4.2", "MUST"),
    # "The operation MUST return immediately with either task information or response message."
    # "Agents MUST generate a unique taskId for each new task they create."
    "errors.json": ("3.3.2, 9.5", "MUST"),
    # "Servers MUST validate all input parameters before processing ... HTTP 400 Bad Request", and the code -32700.
    "errors.shape": ("3.3.2, 9.5", "MUST"),
    "errors.missing": ("3.3.2", "MUST"),
    # "Example scenarios: Invalid task ID format, missing required message parts". In 5.7 it is a SHOULD.
    "errors.history": ("3.3.2", "MUST"),
    # 3.2.4 defines what 0 and more mean, and says nothing of less.
    "ext.unknown": ("4.6.3", "SHOULD"),
    # "the agent SHOULD ignore the extension for that interaction and proceed without it"
}


@pytest.mark.parametrize("name", CITED)
def test_a_check_names_the_section_that_has_its_rule(name: str) -> None:
    (check,) = every([name])
    assert (check.section, check.level) == CITED[name]


def sandbox(status: str, headers: dict[str, str], kind: str = "application/json") -> Serve:
    def serve(connection: socket.socket, path: str) -> None:
        if path == "/api/v1/agents":
            sent = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            connection.sendall(answer(b"{}", kind, status, sent))
            return
        host, port = connection.getsockname()
        interface = {"url": f"http://{host}:{port}", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
        capabilities = {"extensions": [{"uri": RUNTIME}]}
        connection.sendall(
            answer(json.dumps({"supportedInterfaces": [interface], "capabilities": capabilities}).encode())
        )

    return serve


@pytest.mark.parametrize(
    ("status", "headers", "outcome"),
    [
        ("200 OK", CONTRACT, Outcome.PASSED),
        ("401 Unauthorized", CONTRACT, Outcome.PASSED),
        ("200 OK", CONTRACT | {"Deprecation": "@1746748800"}, Outcome.PASSED),
        ("200 OK", {}, Outcome.FAILED),
        *(("200 OK", {k: v for k, v in CONTRACT.items() if k != name}, Outcome.FAILED) for name in CONTRACT),
        ("404 Not Found", {}, Outcome.SKIPPED),
    ],
)
async def test_v1_asks_for_the_headers_of_the_contract_and_no_others(
    status: str, headers: dict[str, str], outcome: Outcome
) -> None:
    with hostile(sandbox(status, headers)) as url:
        report = await judge(ConformOptions(url, token="t", timeout=20, only=["v1.sunset"]))
    assert report.results[-1].outcome is outcome
