"""One real host for all of these tests: the example fleet, and agents that wait at gates; `hold` is at the root."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.a2a_03.wire import Old
from tests.doors.serving import healthy
from tests.doors.wire import Rest
from tests.grpc.wire import GRPC, place_of
from tests.processes import Server
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    args = (*GRPC, "--root", "hold", "--push-allow-hosts", "127.0.0.1", "--push-attempts", "1")
    with healthy(data=tmp_path_factory.mktemp("data"), args=args) as host:
        yield host


@pytest.fixture(scope="package")
def place(server: Server) -> str:
    """The host:port of the gRPC server."""
    return place_of(server)


@pytest.fixture(scope="package")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(scope="package")
def old(server: Server, http: httpx.Client) -> Old:
    return Old(http, server.url)


@pytest.fixture(scope="package")
def new(server: Server, http: httpx.Client) -> Rest:
    """A client of 1.0."""
    return Rest(http, server.url)
