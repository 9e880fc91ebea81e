"""Helpers for the tests of agents and of the engine: hosts in this process, and ways to read a task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from msgspec import UNSET

from roost import Agent
from roost.agents.agent import Hostable
from roost.engine.engine import Engine
from roost.engine.ports import Store
from roost.host import Host
from roost.protocol.types import Message, StreamResponse, Task, TaskState
from roost.settings import Settings
from roost.testing import BASE, InProcessClient
from tests.waiting import PATIENCE_S, until

ASYNC_KINDS = ("async generator", "coroutine")
SYNC_KINDS = ("generator", "function")
KINDS = ASYNC_KINDS + SYNC_KINDS
"""The four forms that an agent's function can have."""


@asynccontextmanager
async def serving(
    *agents: Hostable, store: Store | None = None, data: str = ""
) -> AsyncIterator[tuple[InProcessClient, Engine]]:
    """Start a host like roost.testing.client, but expose the engine and let the test choose the store."""
    host = Host(agents, Settings(public_url=BASE, memory=not data, data=data), store)
    await host.start()
    assert host.engine is not None
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(host), base_url=BASE, headers=headers, timeout=PATIENCE_S
        ) as http:
            yield InProcessClient(http, agents[0].id), host.engine
    finally:
        await host.close()


async def until_state(client: InProcessClient, task: Task | str, *states: TaskState) -> Task:
    async def reached() -> Task | None:
        found = await client.get(task)
        return found if found.status.state in states else None

    return await until(reached, f"a task in {' or '.join(states)}")


async def said(client: InProcessClient, task: Task | str) -> str:
    """The text of the task's artifacts so far."""
    return text_of(await client.get(task))


async def others_go_on(client: InProcessClient) -> None:
    """Let the event loop turn, and another request through: all that waited for nothing but its turn has happened."""
    for _ in range(200):
        await asyncio.sleep(0)
    assert (await client.http.get("/healthz")).status_code == 200


async def send(client: InProcessClient, says: Any, **options: Any) -> Task:
    """Client.send where a direct reply would be a failure of the test."""
    found = await asyncio.wait_for(client.send(says, **options), PATIENCE_S)
    assert isinstance(found, Task), f"a direct reply: {found}"
    return found


def emitting(kind: str, values: Iterable[Any], **options: Any) -> Agent:
    """An agent of this kind that says these values, each in the way of its kind."""
    agent = Agent("emitting", **options)
    said = list(values)

    async def async_generator(task):
        for value in said:
            yield value

    async def coroutine(task):
        for value in said:
            task.emit(value)

    def generator(task):
        yield from said

    def function(task):
        for value in said:
            task.emit(value)

    agent.on_message(of_kind(kind, async_generator, coroutine, generator, function))
    return agent


def of_kind(kind: str, *handlers: Callable[..., Any]) -> Callable[..., Any]:
    return dict(zip(KINDS, handlers, strict=True))[kind]


def text_of(task: Task, artifact_id: str = "output") -> str:
    """The text of an artifact, "" where there is none."""
    found = [artifact for artifact in task.artifacts if artifact.artifact_id == artifact_id]
    assert len(found) <= 1, "two artifacts have one id"
    return "".join(part.text for artifact in found for part in artifact.parts if part.text is not UNSET)


def status_text(task: Task) -> str:
    assert task.status.message is not None, f"{task.status.state} without a message"
    return task.status.message.text


def states(events: Iterable[StreamResponse]) -> list[TaskState]:
    return [event.status_update.status.state for event in events if event.status_update is not None]


def artifact_events(events: Iterable[StreamResponse]) -> list[Any]:
    return [event.artifact_update for event in events if event.artifact_update is not None]


def apply(text: str, event: StreamResponse, artifact_id: str = "output") -> str:
    """Apply an event as a client that follows the stream does: append true appends, anything else replaces."""
    if event.task is not None:
        return text_of(event.task, artifact_id)
    update = event.artifact_update
    if update is None or update.artifact.artifact_id != artifact_id:
        return text
    piece = "".join(part.text for part in update.artifact.parts if part.text is not UNSET)
    return text + piece if update.append is True else piece


def replayed(events: Iterable[StreamResponse]) -> str:
    text = ""
    for event in events:
        text = apply(text, event)
    return text


def message_of(found: Task | Message) -> Message:
    assert isinstance(found, Message), f"a task: {found}"
    return found
