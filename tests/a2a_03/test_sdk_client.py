"""a2a-sdk's client, which chooses its transports of 0.3 for the card of 0.3, over all three of them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple

import grpc
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ExtensionSupportRequiredError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from tests.doors.wire import Rest
from tests.grpc.wire import message, text_of
from tests.processes import Server
from tests.waiting import PATIENCE_S

HOOK = "http://127.0.0.1:9/hook"
UNKNOWN = str(uuid.uuid4())
TRANSPORTS = {
    "JSONRPC": "CompatJsonRpcTransport",
    "HTTP+JSON": "CompatRestTransport",
    "GRPC": "CompatGrpcTransport",
}


class Caller(NamedTuple):
    client: Client
    context: ClientCallContext
    """The context of every call. Over gRPC it names the agent, unless that is the root's."""

    async def send(self, text: str = "hello", *, wait: bool = True, **more: Any) -> pb.Task:
        request = pb.SendMessageRequest(message=message(text, **more))
        request.configuration.return_immediately = not wait
        (event,) = [event async for event in self.client.send_message(request, context=self.context)]
        return event.task

    async def stream(self, text: str) -> list[pb.StreamResponse]:
        request = pb.SendMessageRequest(message=message(text))
        return [event async for event in self.client.send_message(request, context=self.context)]

    async def get(self, task: str) -> pb.Task:
        return await self.client.get_task(pb.GetTaskRequest(id=task), context=self.context)

    async def cancel(self, task: str) -> pb.Task:
        return await self.client.cancel_task(pb.CancelTaskRequest(id=task), context=self.context)


class Callers:
    def __init__(self, server: Server, http: httpx.AsyncClient, binding: str) -> None:
        self.server = server
        self.http = http
        self.binding = binding
        self.made: list[Client] = []

    async def to(self, agent: str, *, streaming: bool = False) -> Caller:
        place = f"{self.server.url}/agents/{'hold' if self.binding == 'GRPC' else agent}"
        card = await A2ACardResolver(self.http, place).get_agent_card(relative_card_path="/.well-known/agent.json")
        assert {face.protocol_version[:3] for face in card.supported_interfaces} == {"0.3"}
        config = ClientConfig(
            streaming=streaming,
            httpx_client=self.http,
            supported_protocol_bindings=[self.binding],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        client = ClientFactory(config).create(card)
        assert type(client._transport).__name__ == TRANSPORTS[self.binding]  # type: ignore[attr-defined]
        self.made.append(client)
        named = {"a2a-agent": agent} if self.binding == "GRPC" and agent != "hold" else {}
        return Caller(client, ClientCallContext(service_parameters=named))


@pytest.fixture(params=list(TRANSPORTS))
async def callers(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Callers]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        found = Callers(server, http, request.param)
        yield found
        for client in found.made:
            await client.close()


async def test_a_message_is_answered(callers: Callers) -> None:
    task = await (await callers.to("hello")).send("Ada")
    assert (task.status.state, text_of(task)) == (pb.TASK_STATE_COMPLETED, "Hello, Ada!")
    assert task.history[0].role == pb.ROLE_USER


async def test_a_stream(callers: Callers) -> None:
    events = await (await callers.to("stream", streaming=True)).stream("a b c")
    assert events[0].WhichOneof("payload") == "task"
    assert "".join(part.text for event in events for part in event.artifact_update.artifact.parts) == "a b c"
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_a_task_is_read_followed_and_canceled(callers: Callers, new: Rest) -> None:
    gate = str(uuid.uuid4())
    caller = await callers.to("hold")
    task = await caller.send(gate, wait=False)
    assert (await caller.get(task.id)).id == task.id
    watcher = await callers.to("hold", streaming=True)
    following = watcher.client.subscribe(pb.SubscribeToTaskRequest(id=task.id), context=watcher.context)
    async with aclosing(following) as events:  # type: ignore[type-var]
        first = await anext(events)
        assert first.task.id == task.id
        new.task(gate, "release")
        last = [event async for event in events][-1]
    assert last.status_update.status.state == pb.TASK_STATE_COMPLETED
    other = await caller.send(str(uuid.uuid4()), wait=False)
    assert (await caller.cancel(other.id)).status.state == pb.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await caller.cancel(other.id)


async def test_a_question_is_answered(callers: Callers) -> None:
    caller = await callers.to("ask")
    asked = await caller.send("Plan")
    assert asked.status.state == pb.TASK_STATE_INPUT_REQUIRED
    answered = await caller.send("Paris", task_id=asked.id, context_id=asked.context_id)
    assert (answered.id, answered.status.state) == (asked.id, pb.TASK_STATE_COMPLETED)


async def test_files_and_data_keep_their_content(callers: Callers) -> None:
    parts = [
        pb.Part(raw=bytes(range(256)), media_type="image/png", filename="a.png"),
        pb.Part(url="https://example.com/b"),
    ]
    parts.append(pb.Part())
    parts[-1].data.struct_value.update({"n": 5, "deep": [{"a": None}]})
    task = await (await callers.to("files")).send(parts=parts)
    assert [part.WhichOneof("content") for part in task.history[0].parts] == ["raw", "url", "data"]
    file, described = task.artifacts
    assert (file.parts[0].raw, file.parts[0].filename) == (bytes(range(256)), "a.png")
    shown = described.parts[0].data.struct_value["parts"]
    assert shown[2]["data"]["n"] == 5


async def test_webhooks(callers: Callers) -> None:
    caller = await callers.to("hold")
    task = await caller.send(str(uuid.uuid4()), wait=False)
    config = pb.TaskPushNotificationConfig(task_id=task.id, id="mine", url=HOOK, token="t")
    client, named = caller.client, {"task_id": task.id, "id": "mine"}
    made = await client.create_task_push_notification_config(config, context=caller.context)
    assert (made.task_id, made.id, made.url, made.token) == (task.id, "mine", HOOK, "t")
    asked = pb.GetTaskPushNotificationConfigRequest(**named)
    assert await client.get_task_push_notification_config(asked, context=caller.context) == made
    if callers.binding != "HTTP+JSON":  # its client has no such methods
        listing = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        listed = await client.list_task_push_notification_configs(listing, context=caller.context)
        assert list(listed.configs) == [made]
        gone = pb.DeleteTaskPushNotificationConfigRequest(**named)
        await client.delete_task_push_notification_config(gone, context=caller.context)
        with pytest.raises(TaskNotFoundError):
            await client.get_task_push_notification_config(asked, context=caller.context)
    await caller.cancel(task.id)


async def test_errors_are_those_of_the_sdk(callers: Callers) -> None:
    caller = await callers.to("hello")
    with pytest.raises(TaskNotFoundError, match="Task not found"):
        await caller.get(UNKNOWN)
    with pytest.raises(TaskNotFoundError):
        await caller.send(task_id=UNKNOWN)
    with pytest.raises(InvalidParamsError, match="contextId"):
        await caller.send(context_id="c" * 300)
    done = await caller.send()
    with pytest.raises(UnsupportedOperationError):
        await caller.send(task_id=done.id)
    with pytest.raises(ExtensionSupportRequiredError):
        await (await callers.to("strict")).send()


async def test_an_error_before_a_stream(callers: Callers) -> None:
    done = await (await callers.to("hello")).send()
    watcher = await callers.to("hello", streaming=True)
    following = watcher.client.subscribe(pb.SubscribeToTaskRequest(id=done.id), context=watcher.context)
    with pytest.raises((UnsupportedOperationError, A2AClientError)):
        await anext(following)  # type: ignore[call-overload]


async def test_the_client_of_1_0_still_chooses_1_0(callers: Callers) -> None:
    card = await A2ACardResolver(callers.http, f"{callers.server.url}/agents/hold").get_agent_card()
    assert [face.protocol_version for face in card.supported_interfaces] == ["1.0"] * 3 + ["0.3"] * 3
    config = ClientConfig(
        httpx_client=callers.http,
        supported_protocol_bindings=[callers.binding],
        grpc_channel_factory=grpc.aio.insecure_channel,
    )
    client = ClientFactory(config).create(card)
    assert not type(client._transport).__name__.startswith("Compat")  # type: ignore[attr-defined]
    callers.made.append(client)
