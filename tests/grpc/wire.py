"""Calls of A2A's gRPC service, and the errors that come back, after their form was checked."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from tests.processes import Server
from tests.waiting import PATIENCE_S

VERSION = ("a2a-version", "1.0")
GRPC = ("--grpc", "127.0.0.1:0")
NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024))
"""Options of a client that is sent little while it does not read."""
ENDED = (pb.TASK_STATE_COMPLETED, pb.TASK_STATE_CANCELED, pb.TASK_STATE_FAILED)


def place_of(server: Server) -> str:
    """The host:port of its gRPC server."""
    server.wait_said("gRPC: ")
    found = re.search(r"gRPC: (\S+)", server.stderr)
    assert found is not None
    return found.group(1)


class Refusal(NamedTuple):
    code: grpc.StatusCode
    reason: str
    message: str
    metadata: dict[str, str]
    fields: list[str]
    retry_s: int | None


def refusal(error: grpc.aio.AioRpcError) -> Refusal:
    """The google.rpc.Status in the trailers says the same as the status, and why."""
    trailers = dict(error.trailing_metadata() or ())
    status = Status.FromString(trailers["grpc-status-details-bin"])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    assert status.message
    info, bad, retry = ErrorInfo(), BadRequest(), RetryInfo()
    unpacked = [detail.Unpack(kind) for detail in status.details for kind in (info, bad, retry)]
    assert sum(unpacked) == len(status.details)
    assert info.domain in ("a2a-protocol.org", "roost")
    fields = [violation.field for violation in bad.field_violations]
    wait = retry.retry_delay.seconds or None
    return Refusal(error.code(), info.reason, status.message, dict(info.metadata), fields, wait)


def message(text: str = "hello", **more: Any) -> pb.Message:
    parts = more.pop("parts", [pb.Part(text=text)])
    return pb.Message(**{"message_id": str(uuid.uuid4()), "role": pb.ROLE_USER, "parts": parts, **more})


def text_of(task: pb.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


class Caller:
    """One client of one host. `metadata` goes with every call."""

    def __init__(self, channel: grpc.aio.Channel, *metadata: tuple[str, str]) -> None:
        self.channel = channel
        self.stub = A2AServiceStub(channel)
        self.metadata = (VERSION, *metadata)

    async def ask(self, method: str, params: Any, *metadata: tuple[str, str]) -> Any:
        call = getattr(self.stub, method)
        return await call(params, metadata=(*self.metadata, *metadata), timeout=PATIENCE_S)

    async def refused(self, method: str, params: Any, *metadata: tuple[str, str]) -> Refusal:
        """Return the error of an operation; a stream must end before its first message."""
        try:
            if method in ("SendStreamingMessage", "SubscribeToTask"):
                await self.open(method, params, *metadata).read()
            else:
                await self.ask(method, params, *metadata)
        except grpc.aio.AioRpcError as error:
            return refusal(error)
        raise AssertionError("it was answered")

    def open(self, method: str, params: Any, *metadata: tuple[str, str]) -> Any:
        return getattr(self.stub, method)(params, metadata=(*self.metadata, *metadata), timeout=PATIENCE_S)

    async def send(self, agent: str, text: str = "hello", *, wait: bool = True, **more: Any) -> pb.Task:
        request = pb.SendMessageRequest(tenant=agent, message=message(text, **more))
        request.configuration.return_immediately = not wait
        answer: pb.SendMessageResponse = await self.ask("SendMessage", request)
        return answer.task

    def stream(self, agent: str, text: str = "hello", *metadata: tuple[str, str], **more: Any) -> Any:
        request = pb.SendMessageRequest(tenant=agent, message=message(text, **more))
        return self.open("SendStreamingMessage", request, *metadata)

    def subscribe(self, agent: str, task: str, last: int | None = None) -> Any:
        resume = () if last is None else (("last-event-id", str(last)),)
        return self.open("SubscribeToTask", pb.SubscribeToTaskRequest(tenant=agent, id=task), *resume)

    async def task(self, agent: str, task: str) -> pb.Task:
        found: pb.Task = await self.ask("GetTask", pb.GetTaskRequest(tenant=agent, id=task))
        return found


@asynccontextmanager
async def calling(
    place: str,
    *metadata: tuple[str, str],
    credentials: grpc.ChannelCredentials | None = None,
    options: tuple[tuple[str, int], ...] = (),
) -> AsyncIterator[Caller]:
    chosen = [("grpc.use_local_subchannel_pool", 1), *options]
    if credentials is None:
        channel = grpc.aio.insecure_channel(place, chosen)
    else:
        channel = grpc.aio.secure_channel(place, credentials, chosen)
    async with channel:
        yield Caller(channel, *metadata)


async def rest(stream: Any) -> list[pb.StreamResponse]:
    found = []
    while (response := await stream.read()) is not grpc.aio.EOF:
        found.append(response)
    return found


def kinds(responses: list[pb.StreamResponse]) -> list[str]:
    return [str(response.WhichOneof("payload")) for response in responses]


def words(responses: list[pb.StreamResponse]) -> str:
    return "".join(part.text for response in responses for part in response.artifact_update.artifact.parts)
