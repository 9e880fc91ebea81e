"""Bytes and metadata that nobody would send are answered like everything else: no failure, and the host goes on."""

from __future__ import annotations

import asyncio
import random
import socket
import uuid
from collections import Counter
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as pb

from tests.grpc.wire import VERSION, Caller, calling, message, text_of
from tests.waiting import PATIENCE_S

SERVICE = "/lf.a2a.v1.A2AService/"
STREAMS = ("SendStreamingMessage", "SubscribeToTask")
MUTANTS = 200
OUR_FAULT = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)
NAMES = ("a2a-version", "a2a-extensions", "authorization", "x-api-key", "x-tenant-id", "last-event-id", "x-more-bin")
VALUES = (" ", "1.0", "99999999999999999999", "-1", "Bearer ", "Bearer x.y.z", ",,,", "~" * 4000, "%00", '"', "a,b;c=d")


def requests(task: str) -> dict[str, bytes]:
    """A good one for each method."""
    filled = message("hello", parts=[pb.Part(text="x"), pb.Part(raw=b"\0\1"), pb.Part(url="https://example.org/")])
    filled.metadata.update({"a": [1, {"b": None}], "c": True})
    filled.parts.add().data.struct_value.update({"deep": [[1.5, "x"]]})
    push = pb.TaskPushNotificationConfig(tenant="hello", task_id=task, id="1", url="https://example.org/hook")
    send = pb.SendMessageRequest(tenant="hello", message=filled)
    send.configuration.accepted_output_modes.append("text/plain")
    listing = pb.ListTasksRequest(tenant="hello", context_id="x", page_size=5, status=pb.TASK_STATE_COMPLETED)
    listing.status_timestamp_after.GetCurrentTime()
    made = {
        "SendMessage": send,
        "SendStreamingMessage": send,
        "GetTask": pb.GetTaskRequest(tenant="hello", id=task, history_length=3),
        "ListTasks": listing,
        "CancelTask": pb.CancelTaskRequest(tenant="hello", id=task),
        "SubscribeToTask": pb.SubscribeToTaskRequest(tenant="hello", id=task),
        "CreateTaskPushNotificationConfig": push,
        "GetTaskPushNotificationConfig": pb.GetTaskPushNotificationConfigRequest(tenant="hello", task_id=task, id="1"),
        "ListTaskPushNotificationConfigs": pb.ListTaskPushNotificationConfigsRequest(tenant="hello", task_id=task),
        "DeleteTaskPushNotificationConfig": pb.DeleteTaskPushNotificationConfigRequest(
            tenant="hello", task_id=task, id="1"
        ),
        "GetExtendedAgentCard": pb.GetExtendedAgentCardRequest(tenant="hello"),
    }
    return {name: request.SerializeToString() for name, request in made.items()}


def mutated(chance: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at, end = sorted(chance.choices(range(len(made) + 1), k=2))
        match chance.randrange(5):
            case 0 if at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                del made[at:end]
            case 2:
                made[at:at] = made[at:end]
            case 3:
                made[at:at] = chance.randbytes(chance.randint(1, 8))
            case _:
                made[at:end] = chance.choice((b"", b"\xff" * 10, b"\x0a\x00", b"\x80" * 3))
    return bytes(made)


async def outcome(caller: Caller, method: str, data: bytes, metadata: Any) -> str:
    """The status, after the whole answer was read."""
    error = await read(caller, method, data, metadata)
    if error is None:
        return "OK"
    assert error.code() not in OUR_FAULT, (method, data, metadata, error.code(), error.details())
    assert error.details(), (method, data)
    return error.code().name


async def read(caller: Caller, method: str, data: bytes, metadata: Any) -> grpc.aio.AioRpcError | None:
    try:
        if method in STREAMS:
            stream: Any = caller.channel.unary_stream(SERVICE + method)(data, metadata=metadata, timeout=PATIENCE_S)
            while await stream.read() is not grpc.aio.EOF:
                pass
        else:
            await caller.channel.unary_unary(SERVICE + method)(data, metadata=metadata, timeout=PATIENCE_S)
    except grpc.aio.AioRpcError as error:
        return error
    return None


@pytest.fixture
async def good(caller: Caller) -> dict[str, bytes]:
    return requests((await caller.send("hello", "x")).id)


async def test_mutants_of_every_request(caller: Caller, good: dict[str, bytes]) -> None:
    chance = random.Random(5)
    for method, data in good.items():
        mutants = [mutated(chance, data) for _ in range(MUTANTS)]
        found = Counter(await asyncio.gather(*(outcome(caller, method, mutant, (VERSION,)) for mutant in mutants)))
        assert found["INVALID_ARGUMENT"], found
    assert text_of(await caller.send("hello", "Ada"))


async def test_metadata_of_every_kind(caller: Caller, good: dict[str, bytes]) -> None:
    chance = random.Random(6)
    for method, data in good.items():
        for _ in range(10):
            given: list[tuple[str, str | bytes]] = [VERSION] if chance.randrange(2) else []
            for name in chance.choices(NAMES, k=3):
                value = chance.randbytes(20) if name.endswith("-bin") else chance.choice(VALUES)
                given.append((name, value))
            await outcome(caller, method, data, tuple(given))
    assert text_of(await caller.send("hello", "Ada"))


async def test_what_is_no_http2(place: str) -> None:
    chance = random.Random(7)
    host, _, port = place.rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for opening in (b"", preface, preface + b"\0\0\0\4\0\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection((host, int(port)), PATIENCE_S) as line:
            line.sendall(opening + chance.randbytes(500))
            line.shutdown(socket.SHUT_WR)
            while line.recv(4096):
                pass
    async with calling(place) as caller:
        assert text_of(await caller.send("hello", f"{uuid.uuid4()}"))
