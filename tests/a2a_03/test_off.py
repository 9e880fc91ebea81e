"""Without A2A 0.3 all is as if it had never been: a request without a version is refused."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import httpx
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub

from tests.a2a_03.wire import Old, proto_sending
from tests.a2a_03.wire import sending as old_sending
from tests.doors.serving import healthy
from tests.doors.test_cards import parsed
from tests.doors.wire import Door, Rest, Rpc, sending
from tests.grpc.wire import GRPC, calling, place_of
from tests.processes import Server
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module", params=["--no-a2a-03", "--strict"])
def off(request: pytest.FixtureRequest) -> Iterator[Server]:
    with healthy(args=(request.param, *GRPC)) as host:
        yield host


@pytest.fixture(params=[Rest, Rpc])
def door(request: pytest.FixtureRequest, off: Server, http: httpx.Client) -> Door:
    found: Door = request.param(http, off.url)
    return found


@pytest.mark.parametrize("version", [None, "", "0.3"])
def test_a_request_without_version_is_told_which_header_to_send(door: Door, version: str | None) -> None:
    problem = door.refused("SendMessage", sending(), headers={"A2A-Version": version})
    assert problem.reason == "VERSION_NOT_SUPPORTED"
    assert "0.3" in problem.message
    assert "`A2A-Version: 1.0`" in problem.message
    assert problem.metadata == {"requestedVersion": "0.3", "supportedVersions": "1.0"}


def test_there_are_no_paths_of_0_3(off: Server, http: httpx.Client) -> None:
    old = Old(http, off.url)
    with old.unchanged():
        assert Rpc.problem(old.post("message/send", old_sending())).reason == "VERSION_NOT_SUPPORTED"
        assert Rest.problem(old.rest("POST", "message:send", json=proto_sending())).reason == "VERSION_NOT_SUPPORTED"
        assert Rest.problem(old.rest("GET", "card")).reason == "ROUTE_NOT_FOUND"
    for path in ("/.well-known/agent.json", "/.well-known/agent"):
        assert http.get(off.url + path).status_code == 404
        assert http.get(f"{off.url}/agents/hello{path}").status_code == 404
    card = http.get(f"{off.url}/agents/hello/.well-known/agent-card.json").json()
    assert {face["protocolVersion"] for face in card["supportedInterfaces"]} == {"1.0"}
    assert parsed(card).name == "hello", "it has no field of 0.3"
    assert "/agents/{agent}/v1/message:send" not in http.get(f"{off.url}/openapi.json").json()["paths"]


async def test_there_is_no_service_of_0_3(off: Server) -> None:
    place = place_of(off)
    async with grpc.aio.insecure_channel(place) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await A2AServiceStub(channel).GetTask(pb.GetTaskRequest(name="tasks/x"), timeout=PATIENCE_S)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    async with calling(place) as new:
        await new.send("hello")
