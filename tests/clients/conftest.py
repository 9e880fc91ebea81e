"""One real host with every door open, and one credential for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.doors.wire import Rest
from tests.grpc.wire import GRPC
from tests.processes import Server, running
from tests.waiting import PATIENCE_S

AGENTS = Path(__file__).parent / "agents.py"
SECRET = "roost_a-token-for-every-door"
WEBHOOKS = ("--push-allow-hosts", "example.com")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    args = (*GRPC, *WEBHOOKS, "--drain-s", "0")
    with running(AGENTS, data=tmp_path_factory.mktemp("data"), args=args, env={"ROOST_TOKEN": SECRET}) as host:
        yield host
    assert "Traceback" not in host.stderr


@pytest.fixture(scope="module")
def rest(server: Server) -> Iterator[Rest]:
    with httpx.Client(timeout=PATIENCE_S, headers={"Authorization": f"Bearer {SECRET}"}) as http:
        yield Rest(http, server.url)
