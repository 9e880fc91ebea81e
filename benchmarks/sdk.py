"""The agent of the benchmark on a2a-sdk's own server.

`python -m benchmarks.sdk [--tuned] [FILE]` runs in memory or on SQLite, and with `--grpc` on its gRPC server instead of
HTTP. `python -m benchmarks.sdk [--replica] URL` runs on PostgreSQL; a replica uses the store and the event stream that
a2a-sdk has for replicas.

The server runs as it comes, or tuned as its user could tune it: tracing off, SQLite in WAL mode with every commit
synced, as in Roost's own store, and two connections. In two short trials of each, one connection was about as fast as
two, and 15 (the default) and 16 were slower.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

TUNED = "--tuned" in sys.argv
if TUNED:
    os.environ["OTEL_INSTRUMENTATION_A2A_SDK_ENABLED"] = "false"

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster import DatabaseTaskEventStream, VersionedDatabaseTaskStore
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from starlette.applications import Starlette

from benchmarks import grpc_serving, serving
from benchmarks.pieces import pieces


class Bench(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, context_id = context.task_id or "", context.context_id or ""
        submitted = pb.TaskStatus(state=pb.TaskState.TASK_STATE_SUBMITTED)
        submitted.timestamp.GetCurrentTime()
        history = [context.message] if context.message else []
        await event_queue.enqueue_event(pb.Task(id=task_id, context_id=context_id, status=submitted, history=history))
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.start_work()
        append = False
        async for piece in pieces(context.get_user_input()):
            await updater.add_artifact([pb.Part(text=piece)], artifact_id="output", append=append)
            append = True
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


def store(place: str | None) -> TaskStore:
    if place is None:
        return InMemoryTaskStore()
    if place.startswith("postgresql:"):
        return DatabaseTaskStore(postgres(place))
    if not TUNED:
        return DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{place}"))
    engine = create_async_engine(f"sqlite+aiosqlite:///{place}", pool_size=2, max_overflow=0)

    @event.listens_for(engine.sync_engine, "connect")
    def durable(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    return DatabaseTaskStore(engine)


def postgres(url: str) -> AsyncEngine:
    return create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:", 1))


CARD = pb.AgentCard(
    name="bench",
    description="Streams as many pieces as the message asks for.",
    version="1.0.0",
    supported_interfaces=[
        pb.AgentInterface(url="http://127.0.0.1/", protocol_binding="HTTP+JSON", protocol_version="1.0")
    ],
    capabilities=pb.AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[pb.AgentSkill(id="bench", name="bench", description="Says pieces.", tags=["bench"])],
)


def in_memory() -> DefaultRequestHandler:
    return DefaultRequestHandler(agent_executor=Bench(), task_store=InMemoryTaskStore(), agent_card=CARD)


def app(place: str | None, *, replica: bool = False) -> Starlette:
    tasks: TaskStore | VersionedDatabaseTaskStore
    if replica and place:
        engine = postgres(place)
        tasks, events = VersionedDatabaseTaskStore(engine), DatabaseTaskEventStream(engine)
    else:
        tasks, events = store(place), None
    handler = DefaultRequestHandler(agent_executor=Bench(), task_store=tasks, agent_card=CARD, event_stream=events)
    routes = [
        *create_rest_routes(handler),
        *create_agent_card_routes(CARD),
        *create_jsonrpc_routes(handler, rpc_url="/"),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if isinstance(tasks, DatabaseTaskStore | VersionedDatabaseTaskStore):
            await tasks.initialize()
        yield

    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    places = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if "--grpc" in sys.argv:
        grpc_serving.run(in_memory())
    else:
        serving.run(app(places[0] if places else None, replica="--replica" in sys.argv))
