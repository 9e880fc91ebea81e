"""One task behind every door: begun over gRPC, watched over SSE, answered over OpenAI, cancelled over MCP."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import httpx
import openai
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.clients.conftest import SECRET
from tests.doors.wire import Frame, Rest, Rpc, kind_of, text_of
from tests.grpc.wire import message
from tests.mcp_door.clients import connected, data
from tests.processes import Server
from tests.waiting import PATIENCE_S

AGENT = "lookout"
CALLER = ClientCallContext(service_parameters={"authorization": f"Bearer {SECRET}"})


@asynccontextmanager
async def over_grpc(url: str) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        card = await A2ACardResolver(http, f"{url}/agents/{AGENT}").get_agent_card()
        config = ClientConfig(
            streaming=False,
            supported_protocol_bindings=["GRPC"],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        client = ClientFactory(config).create(card)
        try:
            yield client
        finally:
            await client.close()


def upto(frames: Iterator[Frame], kind: str) -> list[Frame]:
    """The next ones, with the first that is of this kind."""
    found = []
    for frame in frames:
        found.append(frame)
        if kind_of(frame.data) == kind:
            return found
    raise AssertionError(f"the stream ended before {kind}")


def kinds(frames: list[Frame]) -> list[str]:
    return [kind_of(frame.data) for frame in frames]


async def test_a_task_that_each_door_takes_a_step_further(server: Server, rest: Rest) -> None:
    gate = str(uuid.uuid4())
    async with (
        over_grpc(server.url) as a2a,
        openai.AsyncOpenAI(base_url=f"{server.url}/openai/v1", api_key=SECRET, timeout=PATIENCE_S) as ai,
        connected(server.url, token=SECRET) as mcp,
    ):
        request = pb.SendMessageRequest(message=message(gate))
        request.configuration.return_immediately = True
        (begun,) = [event async for event in a2a.send_message(request, context=CALLER)]
        task, context = begun.task.id, begun.task.context_id
        named = {"taskId": task}
        await asyncio.to_thread(rest.until, task, AGENT, "WORKING")

        with rest.open("SubscribeToTask", {"id": task}, AGENT) as watched:
            opening = next(watched)
            assert opening.data["task"]["status"]["state"] == "TASK_STATE_WORKING"
            await asyncio.to_thread(rest.task, gate, "release")
            asked = await asyncio.to_thread(upto, watched, "INPUT_REQUIRED")

            assert data(await mcp.call_tool("get_task", named))["state"] == "input-required"
            waiting = await a2a.get_task(pb.GetTaskRequest(id=task), context=CALLER)
            assert waiting.status.state == pb.TASK_STATE_INPUT_REQUIRED
            answered = await ai.responses.create(model=AGENT, input="Rome", conversation=context, background=True)
            assert answered.metadata["task_id"] == task
            assert answered.metadata["session_id"] == context
            worked = await asyncio.to_thread(upto, watched, "artifactUpdate")

            ended = await mcp.call_tool("cancel_task", named)
            assert data(ended)["state"] == "canceled"
            last = await asyncio.to_thread(list, watched)

        seen = [*asked, *worked, *last]
        states = [kind for kind in kinds(seen) if kind != "artifactUpdate"]
        assert states == ["INPUT_REQUIRED", "WORKING", "CANCELED"]
        assert opening.id is not None
        assert [frame.id for frame in seen] == list(range(opening.id + 1, opening.id + 1 + len(seen)))

        final = await asyncio.to_thread(rest.get, task, AGENT)
        assert text_of(final) == "Ready. Watching Rome."
        assert final["status"] == seen[-1].data["statusUpdate"]["status"]
        assert [part["text"] for said in final["history"] for part in said["parts"]] == [gate, "Which city?", "Rome"]
        assert await asyncio.to_thread(Rpc(rest.http, server.url).get, task, AGENT) == final
        assert await a2a.get_task(pb.GetTaskRequest(id=task), context=CALLER) == ParseDict(final, pb.Task())
        over_mcp = data(await mcp.call_tool("get_task", named))
        assert (over_mcp["contextId"], over_mcp["state"]) == (context, "canceled")
        assert over_mcp["artifacts"] == final["artifacts"]
        response = await ai.responses.retrieve(answered.id)
        assert (response.status, response.metadata["state"]) == ("cancelled", "canceled")
        assert response.output_text == "Watching Rome."

        replayed = await asyncio.to_thread(rest.stream, "SubscribeToTask", {"id": task}, AGENT, {"Last-Event-ID": "1"})
        assert replayed[0].data["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert [kind for kind in kinds(replayed[1:]) if kind != "artifactUpdate"] == ["WORKING", *states]
        assert replayed[-len(seen) :] == seen
