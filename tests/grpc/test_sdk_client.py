"""The official client of a2a-sdk finds gRPC on the card and does every operation over it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    ExtensionSupportRequiredError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from tests.doors.agents import REQUIRED
from tests.grpc.wire import message, text_of
from tests.processes import Server
from tests.waiting import PATIENCE_S

Make = Callable[..., Any]
UNKNOWN = str(uuid.uuid4())


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Make]:
    """Makes a client of an agent from its card, as a user of the SDK does."""
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        clients: list[Client] = []

        async def client(agent: str, *, streaming: bool = False) -> Client:
            card = await A2ACardResolver(http, f"{server.url}/agents/{agent}").get_agent_card()
            config = ClientConfig(
                streaming=streaming,
                httpx_client=http,
                supported_protocol_bindings=["GRPC"],
                grpc_channel_factory=grpc.aio.insecure_channel,
            )
            clients.append(ClientFactory(config).create(card))
            return clients[-1]

        yield client
        for made in clients:
            await made.close()


def sending(text: str = "hello", **more: Any) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(message=message(text, **more))


async def task_of(client: Client, request: pb.SendMessageRequest) -> pb.Task:
    (event,) = [event async for event in client.send_message(request)]
    assert event.WhichOneof("payload") == "task"
    return event.task


async def test_the_card_leads_to_the_agent(server: Server, place: str, connect: Make) -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, f"{server.url}/agents/hello").get_agent_card()
    (interface,) = [found for found in card.supported_interfaces if found.protocol_binding == "GRPC"]
    assert (interface.url, interface.tenant, interface.protocol_version) == (place, "hello", "1.0")
    assert text_of(await task_of(await connect("hello"), sending("you"))) == "Hello, you!"


async def test_a_stream(connect: Make) -> None:
    client = await connect("stream", streaming=True)
    events = [event async for event in client.send_message(sending("a b c"))]
    text = "".join(part.text for event in events for part in event.artifact_update.artifact.parts)
    assert text == "a b c"
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_a_task_is_read_listed_and_canceled(connect: Make) -> None:
    client = await connect("hold")
    request = sending(str(uuid.uuid4()))
    request.configuration.return_immediately = True
    task = await task_of(client, request)
    assert (await client.get_task(pb.GetTaskRequest(id=task.id))).id == task.id
    listed = await client.list_tasks(pb.ListTasksRequest(context_id=task.context_id))
    assert [found.id for found in listed.tasks] == [task.id]
    canceled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert canceled.status.state == pb.TASK_STATE_CANCELED
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(pb.CancelTaskRequest(id=task.id))


async def test_a_task_is_watched(connect: Make) -> None:
    client, gate = await connect("hold", streaming=True), str(uuid.uuid4())
    request = sending(gate)
    async with aclosing(client.send_message(request)) as first:
        task = (await anext(first)).task
    async with aclosing(client.subscribe(pb.SubscribeToTaskRequest(id=task.id))) as watching:
        assert (await anext(watching)).task.id == task.id
        await task_of(await connect("release"), sending(gate))
        events = [event async for event in watching]
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


async def test_errors_are_the_clients_own(connect: Make) -> None:
    client = await connect("hello")
    watching = await connect("hello", streaming=True)
    with pytest.raises(TaskNotFoundError):
        await client.get_task(pb.GetTaskRequest(id=UNKNOWN))
    with pytest.raises(InvalidParamsError) as caught:
        await client.list_tasks(pb.ListTasksRequest(page_size=1000))
    assert caught.value.data == {"errors": [{"field": "pageSize", "message": caught.value.message}]}
    task = await task_of(client, sending())
    with pytest.raises(UnsupportedOperationError):
        _ = [event async for event in watching.subscribe(pb.SubscribeToTaskRequest(id=task.id))]
    with pytest.raises(A2AClientError):
        await client.get_task(pb.GetTaskRequest(tenant="nobody", id=UNKNOWN))


async def test_extensions(connect: Make) -> None:
    client = await connect("strict")
    with pytest.raises(ExtensionSupportRequiredError):
        await task_of(client, sending())
    context = ClientCallContext(service_parameters=ServiceParametersFactory.create([with_a2a_extensions([REQUIRED])]))
    (event,) = [event async for event in client.send_message(sending(), context=context)]
    assert text_of(event.task) == REQUIRED
