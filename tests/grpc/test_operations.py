"""gRPC's own client does every operation against a real host, and what HTTP says in headers is in metadata."""

from __future__ import annotations

import uuid

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import empty_pb2, json_format, struct_pb2

from tests.doors.agents import OPTIONAL, REQUIRED
from tests.doors.wire import metrics
from tests.grpc.wire import GRPC, Caller, calling, kinds, message, place_of, rest, text_of, words
from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S

UNKNOWN = str(uuid.uuid4())
IDEMPOTENCY = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"


async def test_a_message_is_answered_with_its_task(caller: Caller) -> None:
    task = await caller.send("hello", "you")
    assert (task.status.state, text_of(task)) == (pb.TASK_STATE_COMPLETED, "Hello, you!")
    assert await caller.task("hello", task.id) == task


async def test_a_task_is_the_same_over_http(caller: Caller, server: Server) -> None:
    task = await caller.send("echo", metadata={"deep": {"list": [1, 2.5, None, True, "x"]}})
    url = f"{server.url}/agents/echo/tasks/{task.id}"
    over_http = httpx.get(url, headers={"A2A-Version": "1.0"}, timeout=PATIENCE_S).text
    assert json_format.Parse(over_http, pb.Task()) == task


async def test_a_large_number_is_kept_as_short_as_it_came(caller: Caller, server: Server) -> None:
    numbers = [1e308, -1e300, 2.0**53, 7.0]
    data = struct_pb2.Value()
    data.list_value.extend(numbers)
    task = await caller.send("echo", parts=[pb.Part(data=data)])
    url = f"{server.url}/agents/echo/tasks/{task.id}"
    over_http = httpx.get(url, headers={"A2A-Version": "1.0"}, timeout=PATIENCE_S).text
    assert json_format.Parse(over_http, pb.Task()) == task
    assert "[1e308,-1e300,9007199254740992,7]" in over_http


async def test_a_task_that_protobuf_cannot_say_is_listed_without_what_it_cannot(caller: Caller, server: Server) -> None:
    deep: object = "x"
    for _ in range(60):
        deep = [deep]
    plain = await caller.send("echo", "plain")
    body = {
        "messageId": str(uuid.uuid4()), "contextId": plain.context_id, "role": "ROLE_USER", "parts": [{"data": deep}]
    }  # fmt: skip
    url = f"{server.url}/agents/echo/message:send"
    sent = httpx.post(url, json={"message": body}, headers={"A2A-Version": "1.0"}, timeout=PATIENCE_S).json()["task"]
    listing = pb.ListTasksRequest(tenant="echo", context_id=plain.context_id, history_length=10, include_artifacts=True)
    page = await caller.ask("ListTasks", listing)
    found = {task.id: task for task in page.tasks}
    assert found.keys() == {plain.id, sent["id"]}
    assert (page.total_size, found[plain.id].history[0].parts[0].text) == (2, "plain")
    assert found[sent["id"]].status.state == pb.TASK_STATE_COMPLETED
    assert not found[sent["id"]].history
    refused = await caller.refused("GetTask", pb.GetTaskRequest(tenant="echo", id=sent["id"]))
    assert refused.reason == "UNSUPPORTED_OPERATION"


async def test_parts_of_every_kind_come_back(caller: Caller) -> None:
    data = struct_pb2.Value()
    data.struct_value.update({"a": [1, {"b": None}]})
    parts = [
        pb.Part(raw=bytes(range(256)), filename="a.bin", media_type="application/octet-stream"),
        pb.Part(data=data),
    ]
    task = await caller.send("files", parts=parts)
    handed_back = [part for artifact in task.artifacts for part in artifact.parts if part.HasField("raw")]
    assert [part.raw for part in handed_back] == [bytes(range(256))]
    assert list(task.history[0].parts) == parts


async def test_a_stream_begins_with_the_task_and_ends_with_it(caller: Caller) -> None:
    responses = await rest(caller.stream("stream", "a b c"))
    assert kinds(responses)[0] == "task"
    assert words(responses) == "a b c"
    assert responses[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_subscribe_watches_a_task_that_another_call_began(caller: Caller) -> None:
    gate = str(uuid.uuid4())
    first = caller.stream("hold", gate)
    opening = await first.read()
    watching = caller.subscribe("hold", opening.task.id)
    assert kinds([await watching.read()]) == ["task"]
    await caller.send("release", gate)
    seen, watched = await rest(first), await rest(watching)
    assert seen[-len(watched) :] == watched
    assert watched[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_tasks_are_listed_in_pages(caller: Caller) -> None:
    context = str(uuid.uuid4())
    sent = [await caller.send("hello", str(number), context_id=context) for number in range(3)]
    request = pb.ListTasksRequest(tenant="hello", context_id=context, page_size=2)
    page: pb.ListTasksResponse = await caller.ask("ListTasks", request)
    assert (page.total_size, page.page_size, len(page.tasks)) == (3, 2, 2)
    request.page_token = page.next_page_token
    last: pb.ListTasksResponse = await caller.ask("ListTasks", request)
    assert {task.id for task in [*page.tasks, *last.tasks]} == {task.id for task in sent}


async def test_a_listing_knows_its_filters(caller: Caller) -> None:
    task = await caller.send("hello", context_id=str(uuid.uuid4()))
    request = pb.ListTasksRequest(tenant="hello", context_id=task.context_id, status=pb.TASK_STATE_WORKING)
    assert not (await caller.ask("ListTasks", request)).tasks
    request.status = pb.TASK_STATE_COMPLETED
    request.status_timestamp_after.FromJsonString("2020-01-01T00:00:00Z")
    assert [found.id for found in (await caller.ask("ListTasks", request)).tasks] == [task.id]


async def test_a_question_is_answered(caller: Caller) -> None:
    asked = await caller.send("ask", "hi")
    assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
    task = await caller.send("ask", "Ada", task_id=asked.id)
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert "Ada" in text_of(task)


async def test_a_running_task_is_canceled(caller: Caller) -> None:
    task = await caller.send("hold", str(uuid.uuid4()), wait=False)
    canceled: pb.Task = await caller.ask("CancelTask", pb.CancelTaskRequest(tenant="hold", id=task.id))
    assert canceled.status.state == pb.TASK_STATE_CANCELED
    refused = await caller.refused("CancelTask", pb.CancelTaskRequest(tenant="hold", id=task.id))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TASK_NOT_CANCELABLE")


async def test_webhooks_are_made_read_listed_and_deleted(server: Server) -> None:
    with running(FLEET, args=(*GRPC, "--push-allow-hosts", "127.0.0.1")) as host:
        async with calling(place_of(host)) as caller:
            task = await caller.send("hello")
            config = pb.TaskPushNotificationConfig(
                tenant="hello", task_id=task.id, id="mine", url="http://127.0.0.1:9/", token="secret"
            )
            made = await caller.ask("CreateTaskPushNotificationConfig", config)
            assert (made.id, made.url) == ("mine", config.url)
            one = pb.GetTaskPushNotificationConfigRequest(tenant="hello", task_id=task.id, id="mine")
            assert (await caller.ask("GetTaskPushNotificationConfig", one)).id == "mine"
            every = pb.ListTaskPushNotificationConfigsRequest(tenant="hello", task_id=task.id)
            assert [found.id for found in (await caller.ask("ListTaskPushNotificationConfigs", every)).configs] == [
                "mine"
            ]
            gone = pb.DeleteTaskPushNotificationConfigRequest(tenant="hello", task_id=task.id, id="mine")
            assert await caller.ask("DeleteTaskPushNotificationConfig", gone) == empty_pb2.Empty()
            assert (await caller.refused("GetTaskPushNotificationConfig", one)).reason == "TASK_NOT_FOUND"


async def test_an_extended_card_that_is_not_there_is_refused(caller: Caller) -> None:
    refused = await caller.refused("GetExtendedAgentCard", pb.GetExtendedAgentCardRequest(tenant="hello"))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "UNSUPPORTED_OPERATION")


# What HTTP says in headers


async def test_extensions_are_negotiated_and_echoed(caller: Caller) -> None:
    request = pb.SendMessageRequest(tenant="strict", message=message())
    refused = await caller.refused("SendMessage", request)
    assert (refused.reason, refused.metadata) == ("EXTENSION_SUPPORT_REQUIRED", {"extension": REQUIRED})
    wanted = ("a2a-extensions", f"{REQUIRED}, {OPTIONAL}, urn:nobody:knows")
    call = caller.open("SendMessage", request, wanted)
    assert text_of((await call).task) == f"{REQUIRED},{OPTIONAL}"
    assert dict(await call.initial_metadata())["a2a-extensions"] == f"{REQUIRED}, {OPTIONAL}"
    stream = caller.stream("strict", "hi", wanted)
    assert dict(await stream.initial_metadata())["a2a-extensions"] == f"{REQUIRED}, {OPTIONAL}"
    await rest(stream)


async def test_a_message_sent_again_is_answered_as_before_and_says_so(caller: Caller) -> None:
    request = pb.SendMessageRequest(tenant="hello", message=message())
    first = await caller.ask("SendMessage", request)
    again = caller.open("SendMessage", request)
    assert await again == first
    assert dict(await again.initial_metadata())["idempotent-replayed"] == "true"
    streamed = caller.open("SendStreamingMessage", request)
    assert dict(await streamed.initial_metadata())["idempotent-replayed"] == "true"
    assert (await rest(streamed))[0].task.id == first.task.id
    request.message.parts[0].text = "something else"
    refused = await caller.refused("SendMessage", request, ("a2a-extensions", IDEMPOTENCY))
    assert refused.reason == "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_PAYLOAD"
    assert refused.code == grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize("version", ["1.0", "1.0.1"])
async def test_the_version_is_ours(place: str, version: str) -> None:
    async with calling(place) as caller:
        caller.metadata = (("a2a-version", version),)
        assert (await caller.send("hello")).status.state == pb.TASK_STATE_COMPLETED


@pytest.mark.parametrize("version", ["", "0.3", "2.0", "1", "nonsense"])
async def test_another_version_is_refused_with_the_words_of_http(place: str, server: Server, version: str) -> None:
    async with calling(place) as caller:
        caller.metadata = (("a2a-version", version),) if version else ()
        refused = await caller.refused("GetTask", pb.GetTaskRequest(tenant="hello", id=UNKNOWN))
    assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "VERSION_NOT_SUPPORTED")
    headers = {"A2A-Version": version} if version else {}
    over_http = httpx.get(f"{server.url}/agents/hello/tasks/{UNKNOWN}", headers=headers, timeout=PATIENCE_S)
    assert refused.message == over_http.json()["error"]["message"]
    assert refused.metadata["requestedVersion"] == (version or "0.3")


# Which agent


async def test_an_unknown_agent_is_refused(caller: Caller) -> None:
    refused = await caller.refused("GetTask", pb.GetTaskRequest(tenant="nobody", id=UNKNOWN))
    assert (refused.code, refused.reason) == (grpc.StatusCode.NOT_FOUND, "AGENT_NOT_FOUND")


async def test_without_a_tenant_the_error_asks_for_one(caller: Caller) -> None:
    refused = await caller.refused("SendMessage", pb.SendMessageRequest(message=message()))
    assert (refused.code, refused.fields) == (grpc.StatusCode.INVALID_ARGUMENT, ["tenant"])


async def test_without_a_tenant_the_root_agent_answers() -> None:
    with running(FLEET / "hello.py", args=GRPC) as host:
        async with calling(place_of(host)) as caller:
            assert text_of(await caller.send("", "you")) == "Hello, you!"


async def test_calls_are_counted(caller: Caller, server: Server) -> None:
    route = "/lf.a2a.v1.A2AService/GetTask"

    def count(status: str) -> float:
        with httpx.Client(timeout=PATIENCE_S) as http:
            found = metrics(http, server.url)
        wanted = {("route", route), ("method", "POST"), ("status", status)}
        return sum(value for (name, labels), value in found.items() if wanted <= {*labels})

    before = count("200"), count("404")
    task = await caller.send("hello")
    await caller.task("hello", task.id)
    await caller.refused("GetTask", pb.GetTaskRequest(tenant="hello", id=UNKNOWN))
    assert (count("200"), count("404")) == (before[0] + 1, before[1] + 1)
