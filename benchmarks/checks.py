"""Checks that a server does the work of the benchmark, before anything is measured."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.bench import WrongAnswer
from benchmarks.servers import Server
from benchmarks.wire import message_id

PIECES = 3
TASK = ["TASK_STATE_COMPLETED", f"output in {PIECES} parts"]
"""The task that message:send returns: its state, then its artifacts."""
EVENTS = [
    "task TASK_STATE_SUBMITTED",
    "statusUpdate TASK_STATE_WORKING",
    "artifactUpdate output in 1 parts",
    *["artifactUpdate output in 1 parts, appended"] * (PIECES - 1),
    "statusUpdate TASK_STATE_COMPLETED",
]
"""The events that message:stream delivers."""


def does_the_work(server: Server) -> None:
    """Send a message and stream another; raise WrongAnswer if anything but TASK and EVENTS comes back."""
    task = json.loads(_call(server, "/message:send"))["task"]
    _expect(server, TASK, [task["status"]["state"], *(_artifact(artifact) for artifact in task["artifacts"])])
    lines = _call(server, "/message:stream").splitlines()
    events = [json.loads(line.removeprefix(b"data:")) for line in lines if line.startswith(b"data:")]
    _expect(server, EVENTS, [_event(event) for event in events])


def _call(server: Server, path: str) -> bytes:
    message = {"messageId": message_id().decode(), "role": "ROLE_USER", "parts": [{"text": str(PIECES)}]}
    status, body = server.post(server.base + path, {"message": message})
    if status != 200:
        raise WrongAnswer(f"{server.name} answers {path} with {status}: {body[:300]!r}")
    return body


def _expect(server: Server, expected: list[str], got: list[str]) -> None:
    if got != expected:
        raise WrongAnswer(f"{server.name} returns {got}, expected {expected}")


def _event(event: dict[str, Any]) -> str:
    ((kind, value),) = event.items()
    if kind == "artifactUpdate":
        return f"{kind} {_artifact(value['artifact'])}{', appended' * bool(value.get('append'))}"
    return f"{kind} {value['status']['state']}"


def _artifact(artifact: dict[str, Any]) -> str:
    return f"{artifact['artifactId']} in {len(artifact['parts'])} parts"
