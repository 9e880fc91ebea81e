"""The server itself: where it is, what it tells of itself, how it starts and stops."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.cli.test_serve import refusal as told
from tests.doors.serving import AGENTS, free_port
from tests.grpc.wire import GRPC, Caller, calling, kinds, message, place_of, refusal, rest, text_of, words
from tests.processes import FLEET, Server, roost, running
from tests.waiting import PATIENCE_S

CARD = "/.well-known/agent-card.json"
SERVICE = "lf.a2a.v1.A2AService"


# Where it is


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), "127.0.0.1:{port}"),
        (("--public-url", "https://agents.example.com:8443/a"), "agents.example.com:{port}"),
        (
            ("--grpc-public", "grpc.example.com:443", "--public-url", "https://agents.example.com"),
            "grpc.example.com:443",
        ),
    ],
)
def test_cards_say_where_it_is(args: tuple[str, ...], expected: str) -> None:
    own = free_port()
    with running(FLEET, args=(*GRPC, *args), port=own) as server, httpx.Client(timeout=PATIENCE_S) as http:
        url = expected.format(port=place_of(server).rpartition(":")[2])
        for path in (f"/agents/hello{CARD}", CARD, "/agents/"):
            body = http.get(f"http://127.0.0.1:{own}{path}").json()
            members = body.get("x-scitex-agent-container", body).get("agents", [body])
            faces = [face for member in members for face in member["supportedInterfaces"]]
            found = {face["tenant"]: face for face in faces if face["protocolBinding"] == "GRPC"}
            assert found["hello"] == {
                "url": url, "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "hello"
            }  # fmt: skip


def test_it_is_off_until_it_is_asked_for() -> None:
    with running(FLEET) as server:
        assert "gRPC" not in server.stderr
        card = httpx.get(f"{server.url}/agents/hello{CARD}", timeout=PATIENCE_S).json()
        assert {face["protocolBinding"] for face in card["supportedInterfaces"]} == {"JSONRPC", "HTTP+JSON"}


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        said = told(roost("serve", FLEET, "--memory", "--port", "0", "--grpc", place, fresh=True))
        assert place in said
        assert "--grpc" in said


def test_two_hosts_do_not_share_a_port() -> None:
    with running(FLEET, args=GRPC) as server:
        told(roost("serve", FLEET, "--memory", "--port", "0", "--grpc", place_of(server)))


def test_an_address_that_others_reach_needs_a_credential() -> None:
    said = told(roost("serve", FLEET, "--memory", "--port", "0", "--grpc", "0.0.0.0:0"))
    assert "no credentials" in said


# What it tells of itself


async def test_reflection(caller: Caller) -> None:
    """Ask for the services as grpcurl does."""
    stub = reflection_pb2_grpc.ServerReflectionStub(caller.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ]
    services, file = [answer async for answer in stub.ServerReflectionInfo(iter(requests))]
    assert {service.name for service in services.list_services_response.service} == {
        SERVICE,
        "a2a.v1.A2AService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    found = [FileDescriptorProto.FromString(data) for data in file.file_descriptor_response.file_descriptor_proto]
    (service,) = [service for proto in found for service in proto.service if proto.package == "lf.a2a.v1"]
    assert "SendStreamingMessage" in {method.name for method in service.method}


# How much it takes


async def test_messages_that_come_together_are_all_answered_though_some_are_given_up(caller: Caller) -> None:
    def call(number: int) -> Any:
        return caller.open("SendMessage", pb.SendMessageRequest(tenant="hello", message=message(f"number {number}")))

    calls = [call(number) for number in range(60)]
    for given_up in calls[::3]:
        given_up.cancel()
    for number, answered in enumerate(calls):
        if number % 3:
            assert f"number {number}" in text_of((await answered).task)


async def test_further_connections_than_allowed_are_closed() -> None:
    with running(FLEET, args=(*GRPC, "--max-connections", "2")) as host:
        place = place_of(host)
        async with calling(place) as first, calling(place) as second, calling(place) as third:
            assert text_of(await first.send("hello", "one"))
            assert text_of(await second.send("hello", "two"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await third.send("hello", "three")
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
            assert text_of(await first.send("hello", "four"))


# How it stops


async def test_streams_end_with_a_word_when_the_host_stops_and_go_on_at_the_next_start(tmp_path: Path) -> None:
    with running(AGENTS, args=(*GRPC, "--drain-s", "3"), data=tmp_path) as server:
        async with calling(place_of(server)) as caller:
            stream = caller.stream("hold", "gate")
            first = int(dict(await stream.initial_metadata())["last-event-id"])
            seen: list[pb.StreamResponse] = []
            while kinds(seen).count("artifact_update") < 3:
                seen.append(await stream.read())
            server.process.terminate()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rest(stream)
        refused = refusal(caught.value)
        assert (refused.code, refused.reason) == (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE")
        assert refused.retry_s is not None
        last = int(refused.metadata["lastEventId"])
        assert last == first + len(seen) - 1
        assert server.stop() == -signal.SIGTERM
        assert "Traceback" not in server.stderr
    with running(AGENTS, args=GRPC, data=tmp_path) as server:
        async with calling(place_of(server)) as caller:
            resumed = caller.subscribe("hold", seen[0].task.id, last)
            await resumed.read()
            await caller.send("release", "gate")
            again = await rest(resumed)
            assert again[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
            done = await caller.task("hold", seen[0].task.id)
            assert "".join(part.text for part in done.artifacts[0].parts) == "one two three four five six"
            assert words(again).endswith("four five six")


async def test_a_call_that_waits_is_told_to_come_back(server: Server) -> None:
    with running(AGENTS, args=(*GRPC, "--drain-s", "0")) as host:
        async with calling(place_of(host)) as caller:
            stub = health_pb2_grpc.HealthStub(caller.channel)
            watching = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
            waiting = caller.open("SendMessage", pb.SendMessageRequest(tenant="hold", message=message("never")))
            listing = pb.ListTasksRequest(tenant="hold")
            while not (await caller.ask("ListTasks", listing)).tasks:
                pass
            host.process.terminate()
            assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await waiting
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert host.stop() == -signal.SIGTERM
        assert "Traceback" not in host.stderr


async def test_agents_with_a_process_of_their_own_start_beside_it() -> None:
    """A library with threads is easily hurt by a fork."""
    agents = Path(__file__).parents[1] / "agents" / "process_agents.py"
    with running(agents, args=GRPC, fresh=True) as host:
        async with calling(place_of(host)) as caller:
            assert (await caller.send("talk", "hi")).status.state == pb.TASK_STATE_INPUT_REQUIRED
        host.stop()
        assert "fork" not in host.stderr
