"""Several hosts on one PostgreSQL: one port, and one task seen through any of them."""

from __future__ import annotations

import secrets
import uuid
from pathlib import Path

import pytest
from a2a.types import a2a_pb2 as pb

from tests.doors.serving import AGENTS, free_port
from tests.grpc.wire import GRPC, calling, place_of, rest, text_of, words
from tests.processes import running


@pytest.fixture
def store(database: str, tmp_path: Path) -> tuple[str, ...]:
    key = tmp_path / "secret.key"
    key.touch(mode=0o600)
    key.write_text(secrets.token_hex(32))
    return ("--store", database, "--secret-file", str(key))


async def test_workers_share_a_port(store: tuple[str, ...]) -> None:
    place = f"127.0.0.1:{free_port()}"
    with running(AGENTS, store=store, args=("--workers", "2", "--grpc", place)) as host:
        assert place_of(host) == place
        task = ""
        for _ in range(8):  # each on a connection of its own: the system gives it to one or the other
            async with calling(place) as caller:
                assert (await caller.send("echo")).status.state == pb.TASK_STATE_COMPLETED
                if task:
                    assert (await caller.task("reject", task)).id == task
                else:
                    task = (await caller.send("reject")).id


async def test_a_stream_is_watched_and_resumed_at_another_host(store: tuple[str, ...]) -> None:
    with running(AGENTS, store=store, args=GRPC) as one, running(AGENTS, store=store, args=GRPC) as other:
        async with calling(place_of(one)) as here, calling(place_of(other)) as there:
            gate = str(uuid.uuid4())
            stream = here.stream("hold", gate)
            first = int(dict(await stream.initial_metadata())["last-event-id"])
            task = (await stream.read()).task.id
            resumed = there.subscribe("hold", task, first)
            await resumed.read()
            await here.send("release", gate)
            assert await rest(resumed) == (seen := await rest(stream))
            assert words(seen) == text_of(await there.task("hold", task)) == "one two three four five six"
