"""Taking a message in: on record first, then its run, whatever becomes of the client meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from roost.engine import recovery
from roost.engine.ids import new_id, now_us
from roost.engine.lane import Lane
from roost.engine.live import LiveTask
from roost.engine.media import check_input
from roost.engine.ports import NewTask, Scope
from roost.engine.run import Run
from roost.identity.principal import Principal
from roost.protocol.entries import Received
from roost.protocol.errors import (
    InvalidParams,
    PushNotificationNotSupported,
    TooManyRequests,
    Unavailable,
    UnsupportedOperation,
)
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import SendMessageRequest, TaskState

if TYPE_CHECKING:
    from roost.engine.engine import Engine

MAX_CONTEXT_ID = 256
DIRECT_WITHIN_S = 1.0
"""How long a direct agent may take to its reply; then the exchange is a task."""


class Attachment(Protocol):
    """What a client has at a task that it sent a message to."""

    def attach(self, run: Run) -> None:
        """The message is on record, its run about to begin."""

    def detach(self) -> None:
        """The client went before it was told."""


async def accept(
    engine: Engine,
    principal: Principal,
    lane: Lane,
    request: SendMessageRequest,
    extensions: Sequence[str],
    client: Attachment,
) -> None:
    """Commit the message, attach the client and submit the run."""
    message, configuration = request.message, request.configuration
    if configuration is not None and configuration.task_push_notification_config is not None:
        raise PushNotificationNotSupported(field="configuration.taskPushNotificationConfig")
    check_input(lane.hosted.profile, message)
    if not engine.accepting:
        raise Unavailable("the host is shutting down", retry_after=1)
    if len(message.context_id) > MAX_CONTEXT_ID:
        raise InvalidParams(f"message.contextId is longer than {MAX_CONTEXT_ID} characters", field="message.contextId")
    modes = [] if configuration is None else configuration.accepted_output_modes
    received = Received(message, request.metadata, modes, list(extensions))
    if message.task_id:
        await _accept_answer(engine, principal, lane, received, client)
    else:
        await _accept_new(engine, principal, lane, received, client)


async def _accept_new(engine: Engine, principal: Principal, lane: Lane, received: Received, client: Attachment) -> None:
    now = now_us()
    profile, message = lane.hosted.profile, received.message
    context_id = message.context_id or new_id()
    new = NewTask(new_id(), Scope(principal.tenant, principal.owner, profile.id), context_id, now)
    waits = _reserve(lane, new)
    received.message = replace(message, task_id=new.id, context_id=context_id)
    live = LiveTask.begin(new, engine.worker, profile.direct, engine.committer.touch)
    live.write_message(now, received)
    live.write_status(now, TaskState.SUBMITTED)
    engine.lives[new.id] = live
    live.busy += 1
    run = Run(live, lane.hosted, [received])
    if profile.direct:
        loop = asyncio.get_running_loop()
        run.decision = loop.create_future()
        loop.call_later(DIRECT_WITHIN_S, run.decide_task)

    def committed(waiter: asyncio.Future[None]) -> None:
        lane.unreserve(waits)
        live.busy -= 1
        if waiter.cancelled() or waiter.exception() is not None:
            engine.lives.pop(new.id, None)
        else:
            engine.runner.submit(lane, run)

    waiter = live.commit()
    try:
        await waiter
    except asyncio.CancelledError:
        live.commit().add_done_callback(committed)  # the client is gone, its message is not
        raise
    except Unavailable:
        committed(waiter)
        raise
    client.attach(run)
    committed(waiter)


async def _accept_answer(
    engine: Engine, principal: Principal, lane: Lane, received: Received, client: Attachment
) -> None:
    message = received.message
    live = await engine.find(principal, lane.hosted.profile.id, message.task_id)
    try:
        if message.context_id and message.context_id != live.new.context_id:
            raise InvalidParams(
                "message.contextId is not the context of that task; leave it out or send the task's own",
                field="message.contextId",
            )
        if live.state not in PAUSED:
            raise UnsupportedOperation(
                f"Task is {engine.word(live.state)} and takes no message now"
                + ("; send one without taskId to begin another task" if live.state in TERMINAL else ""),
                metadata={"taskId": message.task_id},
            )
        waits = _reserve(lane, live.new)
        now = now_us()
        received.message = replace(message, context_id=live.new.context_id)
        live.take_over(engine.worker)
        live.write_message(now, received)
        live.write_status(now, TaskState.WORKING)
    except BaseException:
        engine.unhold(live)
        raise
    going_on = asyncio.get_running_loop().create_task(_go_on(engine, lane, live, waits, client))
    try:
        await asyncio.shield(going_on)
    except asyncio.CancelledError:
        going_on.add_done_callback(lambda _: client.detach())
        raise


async def _go_on(engine: Engine, lane: Lane, live: LiveTask, waits: bool, client: Attachment) -> None:
    """Commit the answer and call the agent again; a task of its own, because the client may go."""
    run = Run(live, lane.hosted, [])
    try:
        await live.commit()
        await recovery.prepare(engine.store, run)
        client.attach(run)
        if live.state not in TERMINAL:  # a cancel may have been faster
            engine.runner.submit(lane, run)
    finally:
        lane.unreserve(waits)
        engine.unhold(live)


def _reserve(lane: Lane, new: NewTask) -> bool:
    waits = lane.reserve(new)
    if waits is None:
        agent = lane.hosted.profile.id
        raise TooManyRequests(f"Agent {agent!r} has too many messages waiting; try again later", retry_after=1)
    return waits
