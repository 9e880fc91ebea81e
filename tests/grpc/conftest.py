from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.doors.serving import healthy
from tests.grpc.wire import GRPC, Caller, calling, place_of
from tests.processes import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with healthy(data=tmp_path_factory.mktemp("data"), args=GRPC) as host:
        yield host


@pytest.fixture(scope="module")
def place(server: Server) -> str:
    return place_of(server)


@pytest.fixture
async def caller(place: str) -> AsyncIterator[Caller]:
    async with calling(place) as found:
        yield found
