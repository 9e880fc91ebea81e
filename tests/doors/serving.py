"""A real host that must not once fail by itself while it is tested."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.doors.wire import metrics
from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S

AGENTS = Path(__file__).parent / "agents.py"
MEANT = "the password is hunter2"
"""The message of the agent `boom` when it fails."""


@contextmanager
def healthy(*sources: Path, args: tuple[str, ...] = (), data: Path | None = None, port: int = 0) -> Iterator[Server]:
    """Serves the example fleet and agents.py, or `sources`. At the end: no 500, and no traceback in the log."""
    with running(*(sources or (FLEET, AGENTS)), args=("--drain-s", "0", *args), data=data, port=port) as host:
        yield host
        with httpx.Client(timeout=PATIENCE_S) as http:
            series = metrics(http, f"http://127.0.0.1:{port or host.port}")
        assert [labels for _, labels in series if ("status", "500") in labels] == [], host.stderr
    tracebacks = [line for line in host.stderr.splitlines() if "Traceback" in line and MEANT not in line]
    assert not tracebacks, "\n".join(tracebacks)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found
