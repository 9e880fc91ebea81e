"""One real host and one real webhook for each module of tests that needs no flags of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.doors.serving import healthy
from tests.doors.wire import Door, Rest, Rpc
from tests.processes import Server
from tests.push.receiver import Receiver, receiving
from tests.waiting import PATIENCE_S

LOCAL = ("--push-allow-cidrs", "127.0.0.0/8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with healthy(data=tmp_path_factory.mktemp("data"), args=LOCAL) as host:
        yield host


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(scope="module", params=[Rest, Rpc], ids=["rest", "jsonrpc"])
def door(request: pytest.FixtureRequest, server: Server, http: httpx.Client) -> Door:
    """Each binding in turn."""
    found: Door = request.param(http, server.url)
    return found


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver
