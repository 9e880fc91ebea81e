"""Invalid input is refused with a status, a reason and the field, and changes nothing."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import struct_pb2

from tests.doors.wire import entries
from tests.grpc.wire import GRPC, VERSION, Caller, calling, message, place_of
from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S

INVALID = grpc.StatusCode.INVALID_ARGUMENT
UNKNOWN = str(uuid.uuid4())


def sending(tenant: str = "hello", **more: Any) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(tenant=tenant, message=message(**more))


def with_metadata(value: float) -> pb.SendMessageRequest:
    request = sending()
    request.message.metadata.update({"deep": [{"number": value}]})
    return request


BAD_MESSAGES: dict[str, tuple[pb.SendMessageRequest, str]] = {
    "no message": (pb.SendMessageRequest(tenant="hello"), "message"),
    "no id": (sending(message_id=""), "message.messageId"),
    "no role": (sending(role=pb.ROLE_UNSPECIFIED), "message.role"),
    "a role that is none": (sending(role=99), "message.role"),
    "no parts": (sending(parts=[]), "message.parts"),
    "an empty part": (sending(parts=[pb.Part(media_type="text/plain")]), "message.parts[0]"),
    "nan": (with_metadata(float("nan")), "message.metadata"),
    "infinity": (with_metadata(float("inf")), "message.metadata"),
    "a long context": (sending(context_id="x" * 300), "message.contextId"),
    "a history of less than nothing": (
        pb.SendMessageRequest(
            tenant="hello", message=message(), configuration=pb.SendMessageConfiguration(history_length=-1)
        ),
        "configuration.historyLength",
    ),
}


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("name", BAD_MESSAGES)
async def test_a_bad_message_is_refused_by_its_field(caller: Caller, server: Server, name: str, method: str) -> None:
    request, field = BAD_MESSAGES[name]
    with httpx.Client(timeout=PATIENCE_S) as http:
        before = entries(http, server.url)
        refused = await caller.refused(method, request)
        assert (refused.code, refused.reason) == (INVALID, "INVALID_PARAMS")
        assert refused.fields == [field]
        assert entries(http, server.url) == before


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("GetTask", pb.GetTaskRequest(tenant="hello"), "id"),
        ("GetTask", pb.GetTaskRequest(tenant="hello", id=UNKNOWN, history_length=-1), "historyLength"),
        ("ListTasks", pb.ListTasksRequest(tenant="hello", page_size=0), "pageSize"),
        ("ListTasks", pb.ListTasksRequest(tenant="hello", page_size=101), "pageSize"),
        ("ListTasks", pb.ListTasksRequest(tenant="hello", page_token="nonsense"), "pageToken"),
        ("ListTasks", pb.ListTasksRequest(tenant="hello", status=77), "status"),
        ("ListTasks", pb.ListTasksRequest(tenant="hello", status_timestamp_after={"seconds": 10**15}),
         "statusTimestampAfter"),
        ("CancelTask", pb.CancelTaskRequest(tenant="hello"), "id"),
        ("SubscribeToTask", pb.SubscribeToTaskRequest(tenant="hello"), "id"),
        ("CreateTaskPushNotificationConfig", pb.TaskPushNotificationConfig(tenant="hello", url="http://a"), "taskId"),
        ("CreateTaskPushNotificationConfig", pb.TaskPushNotificationConfig(tenant="hello", task_id=UNKNOWN), "url"),
        ("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest(tenant="hello", id="x"), "taskId"),
        ("DeleteTaskPushNotificationConfig",
         pb.DeleteTaskPushNotificationConfigRequest(tenant="hello", task_id=UNKNOWN), "id"),
    ],
)  # fmt: skip
async def test_a_bad_request_is_refused_by_its_field(caller: Caller, method: str, request_: Any, field: str) -> None:
    refused = await caller.refused(method, request_)
    assert (refused.code, refused.reason, refused.fields) == (INVALID, "INVALID_PARAMS", [field])


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("GetTask", pb.GetTaskRequest(tenant="hello", id=UNKNOWN)),
        ("GetTask", pb.GetTaskRequest(tenant="hello", id="x" * 100_000)),
        ("CancelTask", pb.CancelTaskRequest(tenant="hello", id=UNKNOWN)),
        ("SubscribeToTask", pb.SubscribeToTaskRequest(tenant="hello", id=UNKNOWN)),
        ("SendMessage", sending(task_id=UNKNOWN)),
    ],
)
async def test_a_task_that_is_not_there(caller: Caller, method: str, request_: Any) -> None:
    """However long its id is: an error is not longer than a client takes."""
    refused = await caller.refused(method, request_)
    assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
    assert set(refused.metadata) == {"taskId"}


async def test_a_task_of_another_agent_is_not_there(caller: Caller) -> None:
    task = await caller.send("hello")
    assert (await caller.refused("GetTask", pb.GetTaskRequest(tenant="ask", id=task.id))).reason == "TASK_NOT_FOUND"


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff", b"\x12\x02\xff\xfe", b"\x0a\x02\xc3\x28"])
async def test_bytes_that_are_no_message(caller: Caller, data: bytes) -> None:
    call = caller.channel.unary_unary("/lf.a2a.v1.A2AService/GetTask")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(data, metadata=(VERSION,))
    assert caught.value.code() == INVALID
    assert "GetTaskRequest" in (caught.value.details() or "")


async def test_a_method_that_there_is_not(caller: Caller) -> None:
    call = caller.channel.unary_unary("/lf.a2a.v1.A2AService/Nonsense")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", metadata=(VERSION,))
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_data_that_protobuf_cannot_nest_is_an_error_and_not_a_failure(caller: Caller, server: Server) -> None:
    """It came by HTTP, where a hundred levels are allowed."""
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    body = {"message": {"messageId": UNKNOWN, "role": "ROLE_USER", "parts": [{"data": deep}]}}
    headers = {"A2A-Version": "1.0"}
    answer = httpx.post(f"{server.url}/agents/files/message:send", json=body, headers=headers, timeout=PATIENCE_S)
    task = answer.json()["task"]["id"]
    refused = await caller.refused("GetTask", pb.GetTaskRequest(tenant="files", id=task))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "UNSUPPORTED_OPERATION")


async def test_a_value_nested_as_deep_as_protobuf_allows_is_taken(caller: Caller) -> None:
    value = struct_pb2.Value(string_value="x")
    for _ in range(20):
        value = struct_pb2.Value(list_value=struct_pb2.ListValue(values=[value]))
    task = await caller.send("files", parts=[pb.Part(data=value)])
    assert task.history[0].parts[0].data == value


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_longer_than_the_limit_is_not_taken(compression: grpc.Compression) -> None:
    """However small it is on its way."""
    with running(FLEET, args=(*GRPC, "--max-body", "100000")) as host:
        async with calling(place_of(host)) as caller:
            long = pb.SendMessageRequest(tenant="hello", message=message("x" * 200_000))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await caller.stub.SendMessage(long, metadata=(VERSION,), compression=compression)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert not (await caller.ask("ListTasks", pb.ListTasksRequest(tenant="hello"))).tasks


@pytest.mark.parametrize("last", ["x", "-1", "1e3", "9" * 19, "", "0", "999"])
async def test_a_place_in_a_stream_that_is_none(caller: Caller, last: str) -> None:
    task = await caller.send("hello")
    request = pb.SubscribeToTaskRequest(tenant="hello", id=task.id)
    refused = await caller.refused("SubscribeToTask", request, ("last-event-id", last))
    assert (refused.code, refused.fields) == (INVALID, ["Last-Event-ID"])


async def test_a_message_is_not_sent_again_to_resume_its_stream(caller: Caller) -> None:
    refused = await caller.refused("SendStreamingMessage", sending(), ("last-event-id", "1"))
    assert (refused.code, refused.fields) == (INVALID, ["Last-Event-ID"])
