"""The official client of a2a-sdk does every operation, over both transports, against a real host."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    ExtensionSupportRequiredError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)
from google.protobuf import json_format, struct_pb2, timestamp_pb2

from tests.doors.agents import OPTIONAL, REQUIRED
from tests.processes import Server
from tests.waiting import PATIENCE_S

Make = Callable[..., Any]
UNKNOWN = str(uuid.uuid4())
PNG = bytes(range(256)) * 5


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def binding(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
async def connect(server: Server, binding: str) -> AsyncIterator[Make]:
    """Makes a client of an agent from its card, as a user of the SDK does."""
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:

        async def client(agent: str, *, streaming: bool = False, extended: bool = False, **config: Any) -> Client:
            card = await A2ACardResolver(http, f"{server.url}/agents/{agent}").get_agent_card()
            card.capabilities.extended_agent_card = extended
            chosen = ClientConfig(
                streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding], **config
            )
            return ClientFactory(chosen).create(card)

        yield client


def request(text: str = "hello", *, parts: list[pb.Part] | None = None, **message: Any) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(
        message=pb.Message(
            role=pb.ROLE_USER,
            parts=[pb.Part(text=text)] if parts is None else parts,
            **{"message_id": str(uuid.uuid4()), **message},
        )
    )


async def events(client: Client, send: pb.SendMessageRequest, **more: Any) -> list[pb.StreamResponse]:
    return [event async for event in client.send_message(send, **more)]


async def task_of(client: Client, send: pb.SendMessageRequest, **more: Any) -> pb.Task:
    (event,) = await events(client, send, **more)
    assert event.WhichOneof("payload") == "task"
    return event.task


def text_of(task: pb.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def data_of(task: pb.Task) -> dict[str, Any]:
    found: dict[str, Any] = json_format.MessageToDict(task.artifacts[-1].parts[0].data)
    return found


def kind_of(event: pb.StreamResponse) -> str:
    kind = event.WhichOneof("payload")
    return pb.TaskState.Name(event.status_update.status.state) if kind == "status_update" else str(kind)


async def open_gate(connect: Make, name: str) -> None:
    await task_of(await connect("release"), request(name))


# Cards


async def test_the_card_resolves_and_leads_to_the_agent(server: Server, binding: str, connect: Make) -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, f"{server.url}/agents/hello").get_agent_card()
    assert (card.name, card.version) == ("hello", "1.0.0")
    interfaces = [found for found in card.supported_interfaces if found.protocol_binding == binding]
    assert {interface.url for interface in interfaces} == {f"{server.url}/agents/hello"}
    assert [interface.protocol_version for interface in interfaces] == ["1.0", "0.3"]
    assert text_of(await task_of(await connect("hello"), request("you"))) == "Hello, you!"


async def test_an_extended_card_is_an_unsupported_operation(connect: Make) -> None:
    client = await connect("hello", extended=True)
    with pytest.raises(UnsupportedOperationError):
        await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())


async def test_an_agent_whose_id_is_a_path_of_the_protocol(connect: Make) -> None:
    """The SDK puts the tenant, which is the agent's id, in front of every path: /tasks/tasks."""
    client = await connect("tasks")
    task = await task_of(client, request())
    assert (await client.get_task(pb.GetTaskRequest(id=task.id))).id == task.id
    assert [found.id for found in (await client.list_tasks(pb.ListTasksRequest())).tasks][:1] == [task.id]


# Sending


async def test_a_blocking_send_returns_the_finished_task(connect: Make) -> None:
    task = await task_of(await connect("stream"), request("one two three"))
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert text_of(task) == "one two three"
    assert [message.parts[0].text for message in task.history] == ["one two three"]


async def test_a_send_that_returns_immediately_returns_a_task_in_progress(connect: Make) -> None:
    gate = str(uuid.uuid4())
    client = await connect("hold", polling=True)
    task = await task_of(client, request(gate))
    assert task.status.state in (pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING)
    assert (await client.get_task(pb.GetTaskRequest(id=task.id))).status.state != pb.TASK_STATE_COMPLETED
    watcher = await connect("hold", streaming=True)
    async with aclosing(watcher.subscribe(pb.SubscribeToTaskRequest(id=task.id))) as stream:
        assert kind_of(await anext(stream)) == "task"
        await open_gate(connect, gate)
        assert kind_of([event async for event in stream][-1]) == "TASK_STATE_COMPLETED"
    assert text_of(await client.get_task(pb.GetTaskRequest(id=task.id))) == "one two three four five six"


async def test_a_second_turn_by_task_id_continues_the_task(connect: Make) -> None:
    client = await connect("ask")
    asked = await task_of(client, request("hi"))
    assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
    assert asked.status.message.parts[0].text == "What is your name?"
    done = await task_of(client, request("Ada", task_id=asked.id))
    assert (done.id, done.context_id) == (asked.id, asked.context_id)
    assert done.status.state == pb.TASK_STATE_COMPLETED
    assert text_of(done) == "Nice to meet you, Ada!"
    said = [(message.role, message.parts[0].text) for message in done.history]
    assert said == [(pb.ROLE_USER, "hi"), (pb.ROLE_AGENT, "What is your name?"), (pb.ROLE_USER, "Ada")]
    assert {message.context_id for message in done.history} == {asked.context_id}


async def test_a_second_turn_by_task_and_context_id_continues_the_task(connect: Make) -> None:
    client = await connect("ask")
    asked = await task_of(client, request("hi"))
    done = await task_of(client, request("Bob", task_id=asked.id, context_id=asked.context_id))
    assert (done.id, text_of(done)) == (asked.id, "Nice to meet you, Bob!")


async def test_a_second_turn_by_context_id_is_another_task_of_that_context(connect: Make) -> None:
    client = await connect("hello")
    first = await task_of(client, request("one"))
    second = await task_of(client, request("two", context_id=first.context_id))
    assert second.id != first.id
    assert second.context_id == first.context_id
    listed = await client.list_tasks(pb.ListTasksRequest(context_id=first.context_id))
    assert {task.id for task in listed.tasks} == {first.id, second.id}


async def test_a_context_id_of_the_client_is_kept(connect: Make) -> None:
    context = f"client-{uuid.uuid4()}"
    assert (await task_of(await connect("hello"), request(context_id=context))).context_id == context


async def test_a_context_id_of_another_context_is_refused(connect: Make) -> None:
    client = await connect("ask")
    asked = await task_of(client, request("hi"))
    with pytest.raises(InvalidParamsError, match="contextId"):
        await task_of(client, request("Ada", task_id=asked.id, context_id="another"))
    assert (await client.get_task(pb.GetTaskRequest(id=asked.id))).status.state == pb.TASK_STATE_INPUT_REQUIRED


@pytest.mark.parametrize(
    ("length", "kept"), [(None, ["hi", "What is your name?", "Ada"]), (2, ["What is your name?", "Ada"]), (0, [])]
)
async def test_history_length_on_send_keeps_the_last_messages(
    connect: Make, length: int | None, kept: list[str]
) -> None:
    client = await connect("ask")
    asked = await task_of(client, request("hi"))
    answer = request("Ada", task_id=asked.id)
    if length is not None:
        answer.configuration.history_length = length
    done = await task_of(client, answer)
    assert [message.parts[0].text for message in done.history] == kept
    assert text_of(done) == "Nice to meet you, Ada!"


async def test_history_length_on_a_read_does_not_change_what_is_stored(connect: Make) -> None:
    client = await connect("ask")
    task = await task_of(client, request("Ada", task_id=(await task_of(client, request("hi"))).id))
    lengths = [0, 1, 99, None]
    found = [await client.get_task(pb.GetTaskRequest(id=task.id, history_length=length)) for length in lengths]
    assert [len(read.history) for read in found] == [0, 1, 3, 3]
    assert found[1].history[0].parts[0].text == "Ada"


async def test_the_agent_sees_the_accepted_output_modes(connect: Make) -> None:
    task = await task_of(await connect("echo", accepted_output_modes=["image/*"]), request())
    assert (data_of(task)["png"], data_of(task)["text"]) == (True, False)
    task = await task_of(await connect("echo"), request())
    assert (data_of(task)["png"], data_of(task)["text"]) == (True, True)


async def test_metadata_of_the_request_reaches_the_agent_and_stays_on_the_task(connect: Make) -> None:
    client = await connect("echo")
    send = request()
    send.metadata.update({"trace": "abc", "depth": {"n": 2}})
    send.message.metadata.update({"mine": True})
    task = await task_of(client, send)
    assert data_of(task)["metadata"] == {"trace": "abc", "depth": {"n": 2}}
    stored = await client.get_task(pb.GetTaskRequest(id=task.id))
    assert json_format.MessageToDict(stored.metadata) == {"trace": "abc", "depth": {"n": 2}}
    assert json_format.MessageToDict(stored.history[0].metadata) == {"mine": True}


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_direct_reply_is_a_message_and_no_task(connect: Make, streaming: bool) -> None:
    client = await connect("tck", streaming=streaming)
    context = f"direct-{uuid.uuid4()}"
    send = request(message_id=f"tck-message-response-{uuid.uuid4()}", context_id=context)
    (event,) = await events(client, send)
    assert event.WhichOneof("payload") == "message"
    assert (event.message.role, event.message.parts[0].text) == (pb.ROLE_AGENT, "Direct message response")
    assert (event.message.context_id, event.message.task_id) == (context, "")
    assert (await client.list_tasks(pb.ListTasksRequest(context_id=context))).total_size == 0


async def test_files_and_data_go_in_and_come_out(connect: Make) -> None:
    data = struct_pb2.Value()
    json_format.ParseDict({"rows": [1, 2.5, None, "x"], "nested": {"yes": True}}, data)
    parts = [
        pb.Part(raw=PNG, filename="picture.png", media_type="image/png"),
        pb.Part(data=data),
        pb.Part(url="https://example.com/report.pdf", filename="report.pdf", media_type="application/pdf"),
        pb.Part(text="and text"),
    ]
    task = await task_of(await connect("files"), request(parts=parts))
    assert task.status.state == pb.TASK_STATE_COMPLETED
    assert list(task.history[0].parts) == parts
    (file,) = task.artifacts[0].parts
    assert (file.raw, file.filename, file.media_type) == (PNG, "picture.png", "image/png")
    described = data_of(task)["parts"]
    assert described[0]["bytes"] == len(PNG)
    assert described[1]["data"] == {"rows": [1, 2.5, None, "x"], "nested": {"yes": True}}
    assert described[2] == {"url": "https://example.com/report.pdf", "filename": "report.pdf"}
    assert described[3] == {"characters": 8}


async def test_every_kind_of_artifact_comes_out(connect: Make) -> None:
    client = await connect("tck")
    url = await task_of(client, request(message_id=f"tck-artifact-file-url-{uuid.uuid4()}"))
    assert url.artifacts[0].parts[0].url == "https://example.com/output.txt"
    raw = await task_of(client, request(message_id=f"tck-artifact-file-{uuid.uuid4()}"))
    assert raw.artifacts[0].parts[0].raw == b"Generated file"
    data = await task_of(client, request(message_id=f"tck-artifact-data-{uuid.uuid4()}"))
    assert data_of(data) == {"key": "value", "count": 42}


async def test_a_failed_and_a_rejected_task_say_so(connect: Make) -> None:
    failed = await task_of(await connect("boom"), request())
    assert failed.status.state == pb.TASK_STATE_FAILED
    assert "Error id" in failed.status.message.parts[0].text
    assert "hunter2" not in str(failed)
    rejected = await task_of(await connect("reject"), request())
    assert rejected.status.state == pb.TASK_STATE_REJECTED
    assert rejected.status.message.parts[0].text == "Not my work"


# Streaming


async def test_a_stream_is_a_task_then_updates_then_the_end(connect: Make) -> None:
    found = await events(await connect("stream", streaming=True), request("one two three"))
    assert [kind_of(event) for event in found] == [
        "task",
        "TASK_STATE_WORKING",
        *["artifact_update"] * 3,
        "TASK_STATE_COMPLETED",
    ]
    assert found[0].task.status.state == pb.TASK_STATE_SUBMITTED
    pieces = [event.artifact_update for event in found if event.WhichOneof("payload") == "artifact_update"]
    assert [piece.artifact.parts[0].text for piece in pieces] == ["one ", "two ", "three"]
    assert [piece.append for piece in pieces] == [False, True, True]
    assert {piece.artifact.artifact_id for piece in pieces} == {"output"}


async def test_a_stream_ends_at_a_question_and_the_next_one_goes_on(connect: Make) -> None:
    client = await connect("ask", streaming=True)
    first = await events(client, request("hi"))
    assert kind_of(first[-1]) == "TASK_STATE_INPUT_REQUIRED"
    second = await events(client, request("Ada", task_id=first[0].task.id))
    assert (second[0].task.id, kind_of(second[-1])) == (first[0].task.id, "TASK_STATE_COMPLETED")
    assert second[0].task.status.state == pb.TASK_STATE_WORKING


@pytest.mark.parametrize("separator", ["\u0085", "\u2028", "\u2029"])
async def test_line_separators_of_unicode_do_not_break_a_stream(connect: Make, separator: str) -> None:
    """Not line ends to SSE, but httpx splits at them: in a frame they would cut the JSON in two."""
    found = await events(await connect("stream", streaming=True), request(f"a{separator}b"))
    assert "".join(p.text for e in found for p in e.artifact_update.artifact.parts) == f"a{separator}b"
    assert found[0].task.history[0].parts[0].text == f"a{separator}b"


# Reading


async def test_get_returns_the_task_as_send_did(connect: Make) -> None:
    client = await connect("stream")
    task = await task_of(client, request("one two"))
    assert await client.get_task(pb.GetTaskRequest(id=task.id)) == task


async def test_list_goes_through_all_pages_newest_first(connect: Make) -> None:
    client = await connect("hello")
    context = f"pages-{uuid.uuid4()}"
    made = [(await task_of(client, request(str(number), context_id=context))).id for number in range(5)]
    seen: list[pb.Task] = []
    sizes, token = [], ""
    while True:
        page = await client.list_tasks(pb.ListTasksRequest(context_id=context, page_size=2, page_token=token))
        assert (page.page_size, page.total_size) == (2, 5)
        seen.extend(page.tasks)
        sizes.append(len(page.tasks))
        token = page.next_page_token
        if not token:
            break
    assert sizes == [2, 2, 1]
    assert sorted(task.id for task in seen) == sorted(made)
    times = [task.status.timestamp.ToMicroseconds() for task in seen]
    assert times == sorted(times, reverse=True)


async def test_list_filters_by_state_and_time(connect: Make) -> None:
    client = await connect("ask")
    context = f"filters-{uuid.uuid4()}"
    paused = await task_of(client, request("one", context_id=context))
    done = await task_of(client, request("two", context_id=context))
    done = await task_of(client, request("Ada", task_id=done.id))

    async def ids(**filters: Any) -> set[str]:
        listed = await client.list_tasks(pb.ListTasksRequest(context_id=context, **filters))
        assert listed.total_size == len(listed.tasks)
        return {task.id for task in listed.tasks}

    assert await ids() == {paused.id, done.id}
    assert await ids(status=pb.TASK_STATE_INPUT_REQUIRED) == {paused.id}
    assert await ids(status=pb.TASK_STATE_COMPLETED) == {done.id}
    assert await ids(status=pb.TASK_STATE_FAILED) == set()
    assert await ids(status_timestamp_after=paused.status.timestamp) == {paused.id, done.id}
    later = timestamp_pb2.Timestamp()
    later.FromMicroseconds(done.status.timestamp.ToMicroseconds() + 60_000_000)
    assert await ids(status_timestamp_after=later) == set()


async def test_list_leaves_artifacts_and_history_out_unless_asked(connect: Make) -> None:
    client = await connect("hello")
    context = f"include-{uuid.uuid4()}"
    await task_of(client, request("you", context_id=context))

    async def listed(**options: Any) -> pb.Task:
        (task,) = (await client.list_tasks(pb.ListTasksRequest(context_id=context, **options))).tasks
        return task

    assert len((await listed()).artifacts) == 0
    assert len((await listed(include_artifacts=False)).artifacts) == 0
    assert text_of(await listed(include_artifacts=True)) == "Hello, you!"
    assert len((await listed(history_length=0)).history) == 0
    assert len((await listed(history_length=1)).history) == 1


# Cancelling


async def test_cancel_ends_a_running_task(connect: Make) -> None:
    client = await connect("hold", polling=True)
    task = await task_of(client, request(str(uuid.uuid4())))
    assert (await client.cancel_task(pb.CancelTaskRequest(id=task.id))).status.state == pb.TASK_STATE_CANCELED
    assert (await client.get_task(pb.GetTaskRequest(id=task.id))).status.state == pb.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(pb.CancelTaskRequest(id=task.id))


async def test_cancel_ends_a_task_that_waits_for_an_answer(connect: Make) -> None:
    client = await connect("ask")
    asked = await task_of(client, request("hi"))
    assert (await client.cancel_task(pb.CancelTaskRequest(id=asked.id))).status.state == pb.TASK_STATE_CANCELED
    with pytest.raises(UnsupportedOperationError):
        await task_of(client, request("Ada", task_id=asked.id))


async def test_cancel_of_a_finished_task_is_refused(connect: Make) -> None:
    client = await connect("hello")
    task = await task_of(client, request())
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert (await client.get_task(pb.GetTaskRequest(id=task.id))).status.state == pb.TASK_STATE_COMPLETED


# Subscribing


async def test_subscribe_follows_a_question_that_another_client_answers(connect: Make) -> None:
    asked = await task_of(await connect("ask"), request("hi"))
    subscriber = await connect("ask", streaming=True)
    found: list[pb.StreamResponse] = []
    async with aclosing(subscriber.subscribe(pb.SubscribeToTaskRequest(id=asked.id))) as stream:
        async for event in stream:
            found.append(event)
            if len(found) == 1:
                assert event.task.status.state == pb.TASK_STATE_INPUT_REQUIRED
                await task_of(await connect("ask"), request("Ada", task_id=asked.id))
    assert [kind_of(event) for event in found] == [
        "task",
        "TASK_STATE_WORKING",
        "artifact_update",
        "TASK_STATE_COMPLETED",
    ]


async def test_subscribe_to_a_finished_task_is_refused(connect: Make) -> None:
    client = await connect("hello", streaming=True)
    task = (await events(client, request()))[0].task
    with pytest.raises(UnsupportedOperationError):
        await anext(client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))


# What is refused, as the SDK's own exceptions


async def test_an_unknown_task_is_not_found_by_any_operation(connect: Make) -> None:
    client = await connect("hello", streaming=True)
    with pytest.raises(TaskNotFoundError):
        await client.get_task(pb.GetTaskRequest(id=UNKNOWN))
    with pytest.raises(TaskNotFoundError):
        await client.cancel_task(pb.CancelTaskRequest(id=UNKNOWN))
    with pytest.raises(TaskNotFoundError):
        await events(client, request(task_id=UNKNOWN))
    with pytest.raises(TaskNotFoundError):
        await anext(client.subscribe(pb.SubscribeToTaskRequest(id=UNKNOWN)))
    with pytest.raises(TaskNotFoundError):
        await events(await connect("hello"), request(task_id=UNKNOWN))


async def test_a_task_of_another_agent_is_not_found(connect: Make) -> None:
    task = await task_of(await connect("hello"), request())
    with pytest.raises(TaskNotFoundError):
        await (await connect("stream")).get_task(pb.GetTaskRequest(id=task.id))


async def test_a_message_to_a_finished_task_is_refused(connect: Make) -> None:
    client = await connect("hello")
    task = await task_of(client, request())
    with pytest.raises(UnsupportedOperationError):
        await task_of(client, request(task_id=task.id))


async def test_a_media_type_that_the_agent_does_not_take_is_refused(connect: Make) -> None:
    with pytest.raises(ContentTypeNotSupportedError, match="image/png"):
        await task_of(await connect("hello"), request(parts=[pb.Part(raw=PNG, media_type="image/png")]))


async def test_another_version_of_the_protocol_is_refused(connect: Make) -> None:
    context = ClientCallContext(service_parameters={"A2A-Version": "99.0"})
    with pytest.raises(VersionNotSupportedError, match=r"99\.0"):
        await task_of(await connect("hello"), request(), context=context)


async def test_a_required_extension_must_be_named(connect: Make) -> None:
    client = await connect("strict")
    with pytest.raises(ExtensionSupportRequiredError):
        await task_of(client, request())
    named = ServiceParametersFactory.create([with_a2a_extensions([REQUIRED, OPTIONAL, "urn:unknown"])])
    task = await task_of(client, request(), context=ClientCallContext(service_parameters=named))
    assert text_of(task) == f"{REQUIRED},{OPTIONAL}"


async def test_a_wrong_page_size_is_an_invalid_parameter(connect: Make) -> None:
    with pytest.raises(InvalidParamsError, match="pageSize"):
        await (await connect("hello")).list_tasks(pb.ListTasksRequest(page_size=101))
