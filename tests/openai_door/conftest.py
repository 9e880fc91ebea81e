"""One real host for each module, and the official client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.doors.serving import healthy
from tests.doors.wire import Rest
from tests.processes import Server
from tests.waiting import PATIENCE_S

AGENTS = Path(__file__).parent / "agents.py"


def client_of(url: str, secret: str = "none", **more: object) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/openai/v1", api_key=secret, timeout=PATIENCE_S, max_retries=0, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with healthy(AGENTS, data=tmp_path_factory.mktemp("data")) as host:
        yield host


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server.url) as made:
        yield made


@pytest.fixture(scope="module")
def rest(server: Server) -> Iterator[Rest]:
    with httpx.Client(timeout=PATIENCE_S) as http:
        yield Rest(http, server.url)
