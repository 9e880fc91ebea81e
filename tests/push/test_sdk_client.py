"""The official client of a2a-sdk sets, reads, lists and deletes webhooks, over both transports."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from google.protobuf import json_format

from tests.processes import Server
from tests.push.receiver import Receiver
from tests.waiting import PATIENCE_S


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
async def client(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        card = await A2ACardResolver(http, f"{server.url}/agents/hello").get_agent_card()
        assert card.capabilities.push_notifications
        config = ClientConfig(streaming=False, httpx_client=http, supported_protocol_bindings=[request.param])
        yield ClientFactory(config).create(card)


def message(**configuration: object) -> pb.SendMessageRequest:
    said = pb.Message(role=pb.ROLE_USER, parts=[pb.Part(text="hello")], message_id=str(uuid.uuid4()))
    return pb.SendMessageRequest(message=said, configuration=pb.SendMessageConfiguration(**configuration))


async def task_of(client: Client, request: pb.SendMessageRequest) -> pb.Task:
    (event,) = [event async for event in client.send_message(request)]
    found: pb.Task = event.task
    return found


async def test_a_webhook_can_be_set_read_listed_and_deleted(client: Client, hook: Receiver) -> None:
    task = await task_of(client, message())
    config = pb.TaskPushNotificationConfig(
        task_id=task.id,
        id="mine",
        url=hook.url(),
        token="t0ken",
        authentication=pb.AuthenticationInfo(scheme="Bearer", credentials="cr3dentials"),
    )
    made = await client.create_task_push_notification_config(config)
    assert (made.id, made.task_id, made.url, made.token) == ("mine", task.id, hook.url(), "t0ken")
    named = {"task_id": task.id, "id": "mine"}
    read = await client.get_task_push_notification_config(pb.GetTaskPushNotificationConfigRequest(**named))
    assert (read.id, read.url, read.authentication.scheme, read.authentication.credentials) == (
        *("mine", hook.url(), "Bearer", ""),
    )
    listing = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
    assert [found.id for found in (await client.list_task_push_notification_configs(listing)).configs] == ["mine"]
    for _ in range(2):
        await client.delete_task_push_notification_config(pb.DeleteTaskPushNotificationConfigRequest(**named))
    assert not (await client.list_task_push_notification_configs(listing)).configs
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(pb.GetTaskPushNotificationConfigRequest(**named))


async def test_a_message_brings_its_webhook_and_what_it_is_sent_can_be_read(client: Client, hook: Receiver) -> None:
    config = pb.TaskPushNotificationConfig(url=hook.url(), token="t0ken")
    task = await task_of(client, message(task_push_notification_config=config))
    await asyncio.to_thread(hook.wait_said, "COMPLETED")
    for call in hook.at():
        event = json_format.Parse(call.body, pb.StreamResponse())
        assert getattr(event, event.WhichOneof("payload")).task_id == task.id
        assert call.headers["x-a2a-notification-token"] == "t0ken"


async def test_an_address_that_is_not_public_is_an_invalid_parameter(client: Client) -> None:
    config = pb.TaskPushNotificationConfig(url="http://10.0.0.1/hook")
    with pytest.raises(InvalidParamsError, match="not public"):
        await task_of(client, message(task_push_notification_config=config))
