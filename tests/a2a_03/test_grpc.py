"""gRPC of A2A 0.3: the service beside 1.0's, which agent it leads to, and its errors."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub

from tests.a2a_03.wire import NAMES, Old
from tests.doors.agents import OPTIONAL, REQUIRED
from tests.grpc.wire import Refusal, calling, refusal
from tests.waiting import PATIENCE_S

HELLO = ("a2a-agent", "hello")
HOOK = "http://127.0.0.1:9/hook"
UNKNOWN = f"tasks/{uuid.uuid4()}"


class Caller:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub = A2AServiceStub(channel)

    async def ask(self, method: str, params: Any, *metadata: tuple[str, str]) -> Any:
        return await getattr(self.stub, method)(params, metadata=metadata, timeout=PATIENCE_S)

    async def refused(self, method: str, params: Any, *metadata: tuple[str, str]) -> Refusal:
        """The name of the error is before its text, as 0.3's clients read it."""
        call = getattr(self.stub, method)(params, metadata=metadata, timeout=PATIENCE_S)
        try:
            await (call.read() if method in ("SendStreamingMessage", "TaskSubscription") else call)
        except grpc.aio.AioRpcError as error:
            found = refusal(error)
            assert found.message.startswith(f"{NAMES[found.reason]}: ")
            return found
        raise AssertionError("it was answered")


@pytest.fixture
async def caller(place: str) -> AsyncIterator[Caller]:
    async with grpc.aio.insecure_channel(place, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Caller(channel)


def sending(text: str = "hello", *, blocking: bool = True, **more: Any) -> pb.SendMessageRequest:
    said = {"message_id": str(uuid.uuid4()), "role": pb.ROLE_USER, "content": [pb.Part(text=text)], **more}
    configuration = pb.SendMessageConfiguration(blocking=blocking)
    return pb.SendMessageRequest(request=pb.Message(**said), configuration=configuration)


async def test_the_metadata_names_the_agent_and_without_it_it_is_the_roots(caller: Caller, old: Old) -> None:
    found = (await caller.ask("SendMessage", sending("Ada"), HELLO)).task
    assert found.artifacts[0].parts[0].text == "Hello, Ada!"
    assert found.status.state == pb.TASK_STATE_COMPLETED
    begun = (await caller.ask("SendMessage", sending(str(uuid.uuid4()), blocking=False))).task
    assert old.ok("tasks/cancel", {"id": begun.id}, "hold")["id"] == begun.id
    refused = await caller.refused("GetTask", pb.GetTaskRequest(name=UNKNOWN), ("a2a-agent", "nobody"))
    assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "AGENT_NOT_FOUND")


@pytest.mark.parametrize("version", ["0.3", "0.3.0", ""])
async def test_the_version_is_0_3(caller: Caller, version: str) -> None:
    metadata = (("a2a-version", version),) if version else ()
    answer = await caller.ask("SendMessage", sending(), HELLO, *metadata)
    assert answer.task.status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("version", ["1.0", "99.0"])
async def test_another_version_is_refused(caller: Caller, version: str) -> None:
    refused = await caller.refused("SendMessage", sending(), HELLO, ("a2a-version", version))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "VERSION_NOT_SUPPORTED")


async def test_a_stream_says_where_it_begins_and_is_resumed(caller: Caller) -> None:
    stream = ("a2a-agent", "stream")
    call = caller.stub.SendStreamingMessage(sending("a b c"), metadata=(stream,), timeout=PATIENCE_S)
    whole = [response async for response in call]
    assert dict(await call.initial_metadata())["last-event-id"] == "1"
    assert whole[-1].status_update.final
    name = f"tasks/{whole[0].task.id}"
    resumed = caller.stub.TaskSubscription(
        pb.TaskSubscriptionRequest(name=name), metadata=(stream, ("last-event-id", "2")), timeout=PATIENCE_S
    )
    first, *rest = [response async for response in resumed]
    assert first.task.id == whole[0].task.id
    assert rest == whole[2:]
    again = await caller.refused("SendStreamingMessage", sending(), stream, ("last-event-id", "2"))
    assert again.fields == ["Last-Event-ID"]


@pytest.mark.parametrize("name", ["a2a-extensions", "x-a2a-extensions"])
async def test_extensions(caller: Caller, name: str) -> None:
    strict = ("a2a-agent", "strict")
    answer = await caller.ask("SendMessage", sending(), strict, (name, f"{REQUIRED},{OPTIONAL}"))
    assert answer.task.artifacts[0].parts[0].text == f"{REQUIRED},{OPTIONAL}"
    assert (await caller.refused("SendMessage", sending(), strict)).reason == "EXTENSION_SUPPORT_REQUIRED"


def with_parts(*parts: pb.Part) -> pb.SendMessageRequest:
    return sending(content=parts)


def not_a_number() -> pb.SendMessageRequest:
    request = sending()
    request.metadata.update({"n": float("nan")})
    return request


def marked() -> pb.Part:
    """Make a part that is marked as a wrapped value, although its data is an object."""
    part = pb.Part()
    part.data.data["a"] = 1
    part.metadata["data_part_compat"] = True
    return part


def hook(task: str, **more: Any) -> pb.CreateTaskPushNotificationConfigRequest:
    config = pb.TaskPushNotificationConfig(push_notification_config=pb.PushNotificationConfig(url=HOOK))
    request = pb.CreateTaskPushNotificationConfigRequest(parent=task, config=config)
    request.MergeFrom(pb.CreateTaskPushNotificationConfigRequest(**more))
    return request


BAD: list[tuple[str, Any, str]] = [
    ("SendMessage", pb.SendMessageRequest(), "message.role"),
    ("SendMessage", sending(role=pb.ROLE_UNSPECIFIED), "message.role"),
    ("SendMessage", sending(role=7), "message.role"),
    ("SendMessage", with_parts(marked()), "message.parts[0].data"),
    ("SendMessage", with_parts(), "message.parts"),
    ("SendMessage", with_parts(pb.Part()), "message.content[0]"),
    ("SendMessage", with_parts(pb.Part(file=pb.FilePart())), "message.content[0].file"),
    (
        "SendMessage",
        with_parts(pb.Part(file=pb.FilePart(file_with_bytes=b"\xff\xfe"))),
        "message.content[0].file.fileWithBytes",
    ),
    (
        "SendStreamingMessage",
        with_parts(pb.Part(file=pb.FilePart(file_with_bytes=b"???"))),
        "message.parts[0].file.bytes",
    ),
    ("SendMessage", not_a_number(), "message"),
    ("GetTask", pb.GetTaskRequest(), "name"),
    ("GetTask", pb.GetTaskRequest(name="x"), "name"),
    ("GetTask", pb.GetTaskRequest(name="tasks/x/more"), "name"),
    ("GetTask", pb.GetTaskRequest(name=UNKNOWN, history_length=-1), "historyLength"),
    ("CancelTask", pb.CancelTaskRequest(name="tasks/"), "name"),
    ("TaskSubscription", pb.TaskSubscriptionRequest(name="task/x"), "name"),
    ("ListTaskPushNotificationConfig", pb.ListTaskPushNotificationConfigRequest(parent="x"), "parent"),
    ("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest(name=UNKNOWN), "name"),
    ("DeleteTaskPushNotificationConfig", pb.DeleteTaskPushNotificationConfigRequest(name=UNKNOWN), "name"),
    ("CreateTaskPushNotificationConfig", pb.CreateTaskPushNotificationConfigRequest(), "parent"),
    (
        "CreateTaskPushNotificationConfig",
        pb.CreateTaskPushNotificationConfigRequest(parent=UNKNOWN),
        "config.pushNotificationConfig",
    ),
    (
        "CreateTaskPushNotificationConfig",
        hook(UNKNOWN, config=pb.TaskPushNotificationConfig(name="tasks/y/pushNotificationConfigs/a")),
        "config.name",
    ),
    (
        "CreateTaskPushNotificationConfig",
        hook(UNKNOWN, config_id="a", config={"push_notification_config": {"id": "b"}}),
        "configId",
    ),
]


@pytest.mark.parametrize(("method", "params", "field"), BAD, ids=range(len(BAD)))
async def test_bad_input_is_refused_with_the_field(
    caller: Caller, old: Old, method: str, params: Any, field: str
) -> None:
    with old.unchanged():
        refused = await caller.refused(method, params, HELLO)
    assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PARAMS")
    assert refused.fields == [field]


async def test_bytes_that_are_no_message_are_refused(place: str) -> None:
    async with grpc.aio.insecure_channel(place) as channel:
        call = channel.unary_unary("/a2a.v1.A2AService/SendMessage")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff\xff\xff", metadata=(HELLO,), timeout=PATIENCE_S)
    assert refusal(caught.value).reason == "INVALID_JSON"


async def test_a_task_that_is_not_there_or_is_over(caller: Caller, old: Old) -> None:
    over = f"tasks/{old.task()['id']}"
    missing = await caller.refused("GetTask", pb.GetTaskRequest(name=UNKNOWN), HELLO)
    assert (missing.code, missing.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")
    for method, params, reason in (
        ("CancelTask", pb.CancelTaskRequest(name=over), "TASK_NOT_CANCELABLE"),
        ("TaskSubscription", pb.TaskSubscriptionRequest(name=over), "UNSUPPORTED_OPERATION"),
        ("GetAgentCard", pb.GetAgentCardRequest(), "UNSUPPORTED_OPERATION"),
    ):
        assert (await caller.refused(method, params, HELLO)).reason == reason


@pytest.mark.parametrize("place_of_id", ["config_id", "name", "none"])
async def test_a_webhook_has_the_id_that_the_request_says(caller: Caller, place_of_id: str) -> None:
    begun = (await caller.ask("SendMessage", sending(str(uuid.uuid4()), blocking=False))).task
    task = f"tasks/{begun.id}"
    name = f"{task}/pushNotificationConfigs/mine"
    said: dict[str, dict[str, Any]] = {
        "config_id": {"config_id": "mine", "config": {"name": f"{task}/pushNotificationConfigs/None"}},
        "name": {"config": {"name": name}},
        "none": {},
    }
    made = await caller.ask("CreateTaskPushNotificationConfig", hook(task, **said[place_of_id]))
    assert (made.name == name) is (place_of_id != "none")
    found = await caller.ask("GetTaskPushNotificationConfig", pb.GetTaskPushNotificationConfigRequest(name=made.name))
    assert found.push_notification_config.url == HOOK
    await caller.ask("CancelTask", pb.CancelTaskRequest(name=task))


async def test_the_service_of_1_0_is_there_too(place: str, old: Old) -> None:
    async with calling(place) as new:
        task = await new.send("hello", "Ada")
        assert old.ok("tasks/get", {"id": task.id})["status"]["state"] == "completed"
