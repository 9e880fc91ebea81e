"""`python -m tools.sdk_host FILE PORT GRPC_PORT`: runs the kit's agent on an unmodified server of a2a-sdk.

The server has the default request handler, tasks in SQLite, webhooks, and all three bindings.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import grpc
import httpx
import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import (
    BasePushNotificationSender,
    DatabaseTaskStore,
    InMemoryPushNotificationConfigStore,
    TaskUpdater,
)
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

PIECES = 5
PIECE_S = 0.1


class Tck(AgentExecutor):
    """Behaves like examples/fleet/tck.py."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None
        message_id = message.message_id
        if message_id.startswith("tck-message-response"):
            parts = [pb.Part(text="Direct message response")]
            reply = pb.Message(
                message_id=f"of-{message_id}", role=pb.ROLE_AGENT, parts=parts, context_id=context.context_id
            )
            await event_queue.enqueue_event(reply)
            return
        task_id, context_id = context.task_id or "", context.context_id or ""
        if context.current_task is None:
            status = pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED)
            status.timestamp.GetCurrentTime()
            task = pb.Task(id=task_id, context_id=context_id, status=status, history=[message])
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.start_work()
        if message_id.startswith("tck-input-required"):
            await updater.requires_input(updater.new_agent_message([pb.Part(text="More input, please")]))
            return
        count = {"tck-long-running": PIECES, "tck-stream": 3, "tck-artifact": 1}
        pieces = next((number for prefix, number in count.items() if message_id.startswith(prefix)), 0)
        for number in range(pieces):
            await updater.add_artifact([pb.Part(text=f"{number}\n")], artifact_id="output", append=number > 0)
            if message_id.startswith("tck-long-running"):
                await asyncio.sleep(PIECE_S)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def card(port: int, grpc_port: int) -> pb.AgentCard:
    url = f"http://127.0.0.1:{port}"
    interfaces = (("JSONRPC", f"{url}/rpc"), ("HTTP+JSON", url), ("GRPC", f"127.0.0.1:{grpc_port}"))
    return pb.AgentCard(
        name="tck",
        description="The kit's agent on a2a-sdk.",
        version="1.0.0",
        supported_interfaces=[
            pb.AgentInterface(url=address, protocol_binding=binding, protocol_version="1.0")
            for binding, address in interfaces
        ],
        capabilities=pb.AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="tck", name="tck", description="For tests.", tags=["tck"])],
    )


async def serve(file: str, port: int, grpc_port: int) -> None:
    agent_card = card(port, grpc_port)
    webhooks = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Tck(),
        task_store=DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{file}")),
        agent_card=agent_card,
        push_config_store=webhooks,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), webhooks),
    )
    routes = [
        *create_agent_card_routes(agent_card),
        *create_jsonrpc_routes(handler, rpc_url="/rpc"),
        *create_rest_routes(handler),
    ]
    calls = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), calls)
    calls.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await calls.start()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as gRPC does
        listener.bind(("127.0.0.1", port))
        config = uvicorn.Config(Starlette(routes=routes), log_level="critical")
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
