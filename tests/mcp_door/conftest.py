"""One real host for each module of tests that needs no flags of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.doors import serving
from tests.doors.wire import Rest
from tests.mcp_door.clients import AGENTS
from tests.processes import Server
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Unix socket on which the server also listens."""
    return tmp_path_factory.mktemp("socket") / "roost.sock"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, socket: Path) -> Iterator[Server]:
    args = ("--listen", f"127.0.0.1:0,unix:{socket}")
    with serving.healthy(serving.AGENTS, AGENTS, args=args, data=tmp_path_factory.mktemp("data")) as host:
        yield host


@pytest.fixture(scope="module")
def rest(server: Server) -> Iterator[Rest]:
    """The same tasks, as the HTTP+JSON binding has them."""
    with httpx.Client(timeout=PATIENCE_S) as http:
        yield Rest(http, server.url)
