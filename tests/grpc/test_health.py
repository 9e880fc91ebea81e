"""grpc.health.v1 says what /readyz says."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.durability.conftest import AGENTS, Disk, disk, library  # noqa: F401  # fixtures
from tests.grpc.wire import GRPC, Caller, calling, message, place_of
from tests.processes import Server, running
from tests.waiting import PATIENCE_S, until

SERVICE = "lf.a2a.v1.A2AService"
SERVES, REFUSES = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


async def asked(caller: Caller, service: str) -> int:
    answer = await HealthStub(caller.channel).Check(HealthCheckRequest(service=service), timeout=PATIENCE_S)
    status: int = answer.status
    return status


async def test_the_host_and_its_services_serve_and_others_are_unknown(caller: Caller) -> None:
    for service in ("", SERVICE):
        assert await asked(caller, service) == SERVES
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked(caller, "nobody")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_watcher_that_does_not_read_makes_nobody_wait(caller: Caller, place: str) -> None:
    """It has an HTTP/2 window of no bytes."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Watch",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(
        b"\0%c%b%c%b" % (len(name), name.encode(), len(value), value.encode()) for name, value in headers.items()
    )
    data, first, settings = 0, 1, 4
    no_window = struct.pack(">HI", 4, 0)
    host, _, port = place.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, 0, 0, no_window))
    writer.write(frame(first, 4, 1, block) + frame(data, 1, 1, bytes(5)))
    async with asyncio.timeout(PATIENCE_S):
        kind = settings
        while kind != first:
            begun = await reader.readexactly(9)
            kind = begun[3]
            await reader.readexactly(int.from_bytes(begun[:3], "big"))
    assert await asked(caller, "") == SERVES
    writer.close()
    await writer.wait_closed()


async def test_a_host_that_cannot_write_does_not_serve_until_it_can(tmp_path: Path, disk: Disk) -> None:  # noqa: F811
    def readiness(host: Server) -> int:
        return httpx.get(f"{host.url}/readyz", timeout=PATIENCE_S).status_code

    with running(AGENTS, args=GRPC, data=tmp_path / "data", env=disk.environment()) as host:
        async with calling(place_of(host)) as caller:
            watching = HealthStub(caller.channel).Watch(HealthCheckRequest(service=SERVICE), timeout=PATIENCE_S)
            assert (await watching.read()).status == SERVES
            disk.tell("fail")
            await until(lambda: readiness(host) == 503)
            assert [await asked(caller, service) for service in ("", SERVICE)] == [REFUSES, REFUSES]
            assert (await watching.read()).status == REFUSES
            refused = await caller.refused(
                "SendMessage", pb.SendMessageRequest(tenant="counting", message=message("x"))
            )
            assert (refused.code, refused.retry_s) == (grpc.StatusCode.UNAVAILABLE, 1)
            disk.untell("fail")
            assert (await watching.read()).status == SERVES
            await until(lambda: readiness(host) == 200)
            assert await asked(caller, "") == SERVES
            assert (await caller.send("counting", "x")).status.state == pb.TASK_STATE_COMPLETED
