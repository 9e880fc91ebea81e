"""One real host for each module of tests that needs no flags of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.doors import serving
from tests.doors.wire import PATIENCE_S, Rest
from tests.mcp_door.clients import AGENTS
from tests.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving.healthy(serving.AGENTS, AGENTS, data=tmp_path_factory.mktemp("data")) as host:
        yield host


@pytest.fixture(scope="module")
def rest(server: Server) -> Iterator[Rest]:
    """The same tasks, as the HTTP+JSON binding has them."""
    with httpx.Client(timeout=PATIENCE_S) as http:
        yield Rest(http, server.url)
