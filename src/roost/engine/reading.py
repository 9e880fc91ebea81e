"""GetTask: one task, from memory or from the store. A large one is not read before there is room for it."""

from __future__ import annotations

from typing import NamedTuple

from roost.engine.bodies import LARGE, BodyReader, Made
from roost.engine.extension import ReaderView
from roost.engine.live_tasks import LiveTasks, shows
from roost.engine.views import snapshot_bytes, task_bytes
from roost.identity.principal import Principal
from roost.protocol.errors import TaskNotFound
from roost.protocol.states import SETTLED
from roost.protocol.types import GetTaskRequest, Task


class Measured(NamedTuple):
    """The size of a task in bytes, and a key that changes with the task."""

    size: int
    version: tuple[object, ...]


async def read_task(
    lives: LiveTasks,
    principal: Principal,
    agent: str,
    request: GetTaskRequest,
    view: ReaderView | None,
    reader: BodyReader | None,
) -> bytes:
    if reader is None:
        return await whole(lives, principal, agent, request, view)
    measured = await _small(lives, principal, agent, request, view)
    if isinstance(measured, bytes):
        return measured

    async def make() -> Made:
        return Made(await whole(lives, principal, agent, request, view))

    key = ("task", request.history_length, *measured.version, *(() if view is None else view.uris))
    return (await reader.read(measured.size, key, make)).data


async def whole(
    lives: LiveTasks, principal: Principal, agent: str, request: GetTaskRequest, view: ReaderView | None
) -> bytes:
    """Return the task, however large it is."""
    body = await _small(lives, principal, agent, request, view, most=None)
    assert isinstance(body, bytes)
    return body


async def _small(
    lives: LiveTasks,
    principal: Principal,
    agent: str,
    request: GetTaskRequest,
    view: ReaderView | None,
    most: int | None = LARGE,
) -> bytes | Measured:
    """Return the task if it has at most `most` bytes; otherwise only how large it is."""

    def look(task: Task, _: int) -> bytes:
        body = task_bytes(task, request.history_length)
        return body if view is None else view.task(body)

    live = lives.get(request.id)
    if live is not None and lives.is_current(live) and shows(live.new, live.hidden, principal, agent):
        if most is not None and live.fold.size > most:
            return Measured(live.fold.size, (request.id, live.version))
        return await lives.look(live, look)
    stored = await lives.stored(principal, agent, request.id, most)
    if stored.head.state in SETTLED:
        if stored.withheld is not None:
            return Measured(stored.withheld.size, (request.id, *stored.withheld))
        if stored.snapshot is not None:
            body = snapshot_bytes(stored.snapshot, request.history_length)
            return body if view is None else view.task(body)
    live = await lives.load(request.id)
    if live is None:
        raise TaskNotFound(metadata={"taskId": request.id})
    try:
        if most is not None and live.fold.size > most:
            return Measured(live.fold.size, (request.id, live.version))
        return await lives.look(live, look)
    finally:
        lives.unhold(live)
