"""Limits on calls: callers without a credential do not count, and a slow caller cannot hold a place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from roost.doors.grpc_calls import FREE_STREAMS
from tests.access.people import OPERATOR, People
from tests.doors.serving import AGENTS
from tests.doors.wire import streams
from tests.grpc.wire import GRPC, NARROW, VERSION, Caller, calling, message, place_of, refusal, rest
from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S, until

PLACES = 12
RATE = 60
ARGS = ("--auth", "required", "--max-connections", str(PLACES), "--head-s", "1", "--write-s", "2", "--drain-s", "0")
SEND = "/lf.a2a.v1.A2AService/SendMessage"
COMPLETED = pb.TASK_STATE_COMPLETED
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
LATE = grpc.StatusCode.DEADLINE_EXCEEDED
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, People]]:
    args = (*GRPC, *ARGS, "--quotas", f"surface:a2a.rate={RATE}")
    with (
        running(FLEET, AGENTS, args=args, data=tmp_path_factory.mktemp("data"), env=OPERATOR) as server,
        People(server) as people,
    ):
        yield server, people
        server.stop()
        assert "Traceback" not in server.stderr


@pytest.fixture
def people(tight: tuple[Server, People]) -> People:
    return tight[1]


@pytest.fixture
def place(tight: tuple[Server, People]) -> str:
    return place_of(tight[0])


@pytest.fixture
async def known(place: str, people: People) -> AsyncIterator[Caller]:
    async with calling(place, bearer(people.operator.make()["token"])) as found:
        yield found


@pytest.fixture
async def stranger(place: str) -> AsyncIterator[Caller]:
    async with calling(place) as found:
        yield found


def bearer(secret: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {secret}")


async def refused(call: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal(caught.value)


async def never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def test_a_stranger_is_refused_before_the_message_is_there(stranger: Caller) -> None:
    send = stranger.channel.stream_unary(SEND)
    assert (await refused(send(never(), metadata=(VERSION,), timeout=PATIENCE_S))).code == UNAUTHENTICATED
    unreadable = stranger.channel.unary_unary(SEND)(b"\xff", metadata=(VERSION,), timeout=PATIENCE_S)
    assert (await refused(unreadable)).code == UNAUTHENTICATED


async def test_what_strangers_are_refused_is_not_counted_against_others(stranger: Caller, known: Caller) -> None:
    for _ in range(RATE + 1):
        answer = await stranger.refused("ListTasks", pb.ListTasksRequest(tenant="hello"))
        assert answer.code == UNAUTHENTICATED
    assert (await known.send("hello")).status.state == COMPLETED


async def test_health_and_reflection_have_places_of_their_own(stranger: Caller, known: Caller) -> None:
    async def asks() -> AsyncIterator[ServerReflectionRequest]:
        yield ServerReflectionRequest(list_services="")
        await asyncio.Event().wait()

    health, reflection = HealthStub(stranger.channel), ServerReflectionStub(stranger.channel)
    watching = [health.Watch(HealthCheckRequest(), timeout=PATIENCE_S) for _ in range(FREE_STREAMS - 1)]
    watching.append(reflection.ServerReflectionInfo(asks(), timeout=PATIENCE_S))
    for watch in watching:
        await watch.read()
    for further in (
        health.Watch(HealthCheckRequest(), timeout=PATIENCE_S),
        reflection.ServerReflectionInfo(asks(), timeout=PATIENCE_S),
    ):
        assert (await refused(further.read())).code == EXHAUSTED
    answer = await health.Check(HealthCheckRequest(), timeout=PATIENCE_S)
    assert answer.status == HealthCheckResponse.SERVING
    assert (await known.send("hello")).status.state == COMPLETED


async def test_a_message_that_does_not_come_is_not_waited_for(stranger: Caller, known: Caller) -> None:
    sends = [
        known.channel.stream_unary(SEND)(never(), metadata=known.metadata, timeout=PATIENCE_S) for _ in range(PLACES)
    ]
    check = stranger.channel.stream_unary("/grpc.health.v1.Health/Check")(never(), timeout=PATIENCE_S)
    for call in (*sends, check):
        answer = await refused(call)
        assert (answer.code, answer.reason) == (LATE, "REQUEST_TIMEOUT")
    assert (await known.send("hello")).status.state == COMPLETED


async def test_a_call_without_a_message_is_refused(known: Caller) -> None:
    async def nothing() -> AsyncIterator[bytes]:
        for piece in ():
            yield piece

    empty = known.channel.stream_unary(SEND)(nothing(), metadata=known.metadata, timeout=PATIENCE_S)
    assert (await refused(empty)).reason == "INVALID_REQUEST"


async def test_further_calls_than_allowed_are_refused_until_one_is_over(known: Caller) -> None:
    request = pb.SendMessageRequest(tenant="hold", message=message("never"))
    held = [known.open("SendStreamingMessage", request) for _ in range(PLACES)]
    for stream in held:
        await stream.read()
    listing = pb.ListTasksRequest(tenant="boom")
    answer = await known.refused("ListTasks", listing)
    assert (answer.code, answer.reason, answer.retry_s) == (EXHAUSTED, "TOO_MANY_REQUESTS", 1)
    held.pop().cancel()
    async with asyncio.timeout(PATIENCE_S):
        while await known.open("ListTasks", listing).code() == EXHAUSTED:
            pass
    assert not (await known.ask("ListTasks", listing)).tasks


async def test_a_stream_that_is_not_read_ends(tight: tuple[Server, People], place: str) -> None:
    """After a while, or with its credential; its client is told when it reads again."""
    server, people = tight
    slow, revoked = (people.operator.make() for _ in range(2))
    metrics = httpx.Client(headers=people.operator.http.headers, timeout=PATIENCE_S)
    async with (
        calling(place, bearer(slow["token"]), options=NARROW) as one,
        calling(place, bearer(revoked["token"]), options=NARROW) as other,
    ):
        unread = [caller.stream("flood", "200 4096") for caller in (one, other)]
        for stream in unread:
            await stream.read()
        people.operator.admin("DELETE", f"tokens/{revoked['id']}")
        await until(lambda: not streams(metrics, server.url))
        answers = [await refused(rest(stream)) for stream in unread]
    assert [answer.code for answer in answers] == [LATE, UNAUTHENTICATED]
