"""Taking a message in: on record first, then its run, whatever becomes of the client meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from roost.engine import push_configs, recovery, tenancy
from roost.engine.agent_queue import AgentQueue
from roost.engine.idempotency import EXTENSION, check, reservation
from roost.engine.ids import new_id, now_us
from roost.engine.live import LiveTask
from roost.engine.media_types import check_input
from roost.engine.run import Run
from roost.engine.store_types import NewTask, PushConfig, Reservation, Reserved, Scope, StoreUnavailable, Taken
from roost.identity.principal import Principal
from roost.identity.quotas import QuotaExceeded, QuotaSlot
from roost.protocol.codec import encode
from roost.protocol.entries import Received
from roost.protocol.errors import (
    IdempotencyKeyReused,
    InvalidParams,
    Moved,
    TooManyRequests,
    Unavailable,
    UnsupportedOperation,
)
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import JSONObject, SendMessageRequest, TaskPushNotificationConfig, TaskState

if TYPE_CHECKING:
    from roost.engine.engine import Engine

log = logging.getLogger("roost.engine")

MAX_CONTEXT_ID = 256
RETRY_S, RETRY_MAX_S = 0.1, 2.0
TRIES = 3
"""Of an answer whose task another host writes to at the same time."""
DIRECT_WITHIN_S = 1.0
"""How long a direct agent may take to its reply; then the exchange is a task."""


class Attachment(Protocol):
    """What a client has at a task that it sent a message to."""

    def attach(self, run: Run) -> None:
        """The message is on record, its run about to begin."""

    def detach(self) -> None:
        """The client went before it was told."""


class Repeated(Exception):
    """The message is on record already: it is answered from there."""

    def __init__(self, reserved: Reserved) -> None:
        super().__init__(reserved.task_id)
        self.reserved = reserved


async def accept(
    engine: Engine,
    principal: Principal,
    queue: AgentQueue,
    request: SendMessageRequest,
    extensions: Sequence[str],
    client: Attachment,
) -> None:
    """Commit the message, attach the client and submit the run. Raises Repeated for a message that was here before."""
    message, configuration = request.message, request.configuration
    check_input(queue.hosted.profile, message)
    if not engine.accepting:
        raise Unavailable("the host is shutting down", retry_after=1)
    if not engine.lease.held:
        raise Unavailable("this host has no lease: it cannot reach its store", retry_after=1)
    if len(message.context_id) > MAX_CONTEXT_ID:
        raise InvalidParams(f"message.contextId is longer than {MAX_CONTEXT_ID} characters", field="message.contextId")
    _check_size(engine, request)
    principal = tenancy.confined(engine.tenancy, principal, message)
    echo = tenancy.echo(engine.tenancy, principal.tenant, message, extensions)
    modes = [] if configuration is None else configuration.accepted_output_modes
    push = None if configuration is None else configuration.task_push_notification_config
    arrival = Arrival(
        engine,
        queue,
        principal,
        Received(message, {**(request.metadata or {}), **echo} if echo else request.metadata, modes, list(extensions)),
        push,
        client,
        echo,
    )
    reserve = reservation(engine.rules, arrival.scope, request, EXTENSION in extensions)
    if reserve is None:
        await arrival.take_in(None)
        return
    while reserve.key in engine.arriving:
        await _arrived(engine, reserve.key)
    engine.arriving[reserve.key] = None
    try:
        if message.task_id or engine.disk_low:
            await _check_new(engine, reserve)
        await _take_in(engine, arrival, reserve)
        engine.stats.repeats["miss"] += 1
    except Taken as taken:
        _again(engine, taken.reserved, reserve, message.message_id)
    finally:
        awaited = engine.arriving.pop(reserve.key)
        if awaited is not None:
            awaited.set_result(None)


async def _take_in(engine: Engine, arrival: Arrival, reserve: Reservation) -> None:
    try:
        await arrival.take_in(reserve)
    except QuotaExceeded:
        await _check_new(engine, reserve)  # what is on record is told again, however much there is
        raise


async def _arrived(engine: Engine, key: bytes) -> None:
    """Wait until it is known what comes of the message that was here a moment before."""
    awaited = engine.arriving[key]
    if awaited is None:
        awaited = engine.arriving[key] = asyncio.get_running_loop().create_future()
    await asyncio.wait([awaited])


async def _check_new(engine: Engine, reserve: Reservation) -> None:
    reserved = await engine.store.read_reserved(reserve.key)
    if reserved is not None:
        raise Taken(reserved)


def _again(engine: Engine, reserved: Reserved, reserve: Reservation, message_id: str) -> None:
    try:
        check(reserved, reserve, message_id)
    except IdempotencyKeyReused:
        engine.stats.repeats["collision"] += 1
        raise
    engine.stats.repeats["hit"] += 1
    raise Repeated(reserved)


class Arrival:
    """A message on its way into the journal."""

    def __init__(
        self,
        engine: Engine,
        queue: AgentQueue,
        principal: Principal,
        received: Received,
        push: TaskPushNotificationConfig | None,
        client: Attachment,
        echo: JSONObject | None,
    ) -> None:
        self.engine = engine
        self.queue = queue
        self.principal = principal
        self.scope = Scope(principal.tenant, principal.owner, queue.hosted.profile.id)
        self.received = received
        self.push = push
        self.client = client
        self.echo = echo

    async def take_in(self, reserve: Reservation | None) -> None:
        if not self.received.message.task_id:
            await self._take_new(reserve)
            return
        for _ in range(TRIES):
            if not self.engine.lease.held:
                raise Unavailable("this host has no lease: it cannot reach its store", retry_after=1)
            try:
                await self._take_answer(reserve)
                return
            except Moved:  # another host was faster, with this very answer or with something else
                if reserve is not None:
                    await _check_new(self.engine, reserve)
        raise Moved

    async def _take_new(self, reserve: Reservation | None) -> None:
        engine, queue, received = self.engine, self.queue, self.received
        if engine.disk_low:
            raise Unavailable("the disk of this host is nearly full: no new tasks until there is room", retry_after=60)
        profile, message = queue.hosted.profile, received.message
        now = now_us()
        context_id = message.context_id or new_id()
        new = NewTask(new_id(), self.scope, context_id, now)
        push = await self._prepare_push(new.id)
        slot = self._admitted()
        waits = _reserve(queue, new)
        received.message = replace(message, task_id=new.id, context_id=context_id)
        live = LiveTask.begin(new, engine.worker, profile.direct, engine.committer.touch)
        live.reserve, live.push, live.echo = reserve, push, self.echo
        live.turn = not message.context_id and engine.store.shared
        live.write_message(now, received)
        live.write_status(now, TaskState.SUBMITTED)
        engine.lives[new.id] = live
        live.busy += 1
        decision = asyncio.get_running_loop().create_future() if profile.direct else None
        has_turn = not message.context_id or _no_one_before(engine)
        run = Run(live, queue.hosted, [received], has_turn=has_turn, decision=decision)
        if decision is not None:
            asyncio.get_running_loop().call_later(DIRECT_WITHIN_S, run.become_task)

        def committed(waiter: asyncio.Future[None]) -> None:
            queue.unreserve(waits)
            live.busy -= 1
            if waiter.cancelled() or waiter.exception() is not None:
                engine.lives.pop(new.id, None)
                if slot is not None:
                    slot.leave()
            else:
                if push is not None and engine.pusher is not None:
                    engine.pusher.hold_new(push)
                engine.runner.submit(queue, run, slot)

        waiter = live.commit()
        try:
            await waiter
        except asyncio.CancelledError:
            live.commit().add_done_callback(committed)  # the client is gone, its message is not
            raise
        except (Unavailable, Taken) as error:
            committed(waiter)
            if isinstance(error, Moved):  # with our lease: of the task nobody has heard yet
                raise Unavailable("this host cannot reach its store; try again", retry_after=1) from None
            raise
        self.client.attach(run)
        committed(waiter)

    def _admitted(self) -> QuotaSlot | None:
        meter, scope = self.engine.meter, self.scope
        if meter.idle:
            return None
        place = meter.admit_task(self.principal.name, scope.tenant, scope.agent)
        try:
            meter.check_rate("", "", scope.tenant, "")
        except QuotaExceeded:
            place.leave()
            raise
        return place

    async def _take_answer(self, reserve: Reservation | None) -> None:
        engine, queue, message = self.engine, self.queue, self.received.message
        live = await engine.find(self.principal, self.scope.agent, message.task_id)
        try:
            if message.context_id and message.context_id != live.new.context_id:
                raise InvalidParams(
                    "message.contextId is not the context of that task; leave it out or send the task's own",
                    field="message.contextId",
                )
            await self._prepare_push(live.new.id)
            if live.state not in PAUSED:
                raise UnsupportedOperation(
                    f"Task is {engine.word(live.state)} and takes no message now"
                    + ("; send one without taskId to begin another task" if live.state in TERMINAL else ""),
                    metadata={"taskId": message.task_id},
                )
            if not engine.meter.idle:
                engine.meter.check_rate("", "", live.new.scope.tenant, "")
            waits = _reserve(queue, live.new)
            now = now_us()
            self.received.message = replace(message, context_id=live.new.context_id)
            if self.echo is not None:
                self.received.metadata = {**(self.received.metadata or {}), tenancy.KEY: live.new.scope.tenant}
            live.take_over(engine.worker)
            live.reserve, live.goes_on = reserve, True
            live.write_message(now, self.received)
            live.write_status(now, TaskState.WORKING)
        except BaseException:
            engine.unhold(live)
            raise
        going_on = asyncio.get_running_loop().create_task(self._go_on(live, waits))
        try:
            await asyncio.shield(going_on)
        except asyncio.CancelledError:
            going_on.add_done_callback(lambda _: self.client.detach())
            raise

    async def _go_on(self, live: LiveTask, waits: bool) -> None:
        """Commit the answer and call the agent again; a task of its own, because the client may go."""
        engine, queue = self.engine, self.queue
        has_turn = _no_one_before(engine)
        try:
            await live.commit()
            run = await self._ready(live, has_turn)
            self.client.attach(run)
            if live.state not in TERMINAL:  # a cancel may have been faster
                engine.runner.submit(queue, run)
        finally:
            queue.unreserve(waits)
            engine.unhold(live)

    async def _ready(self, live: LiveTask, has_turn: bool) -> Run:
        """The answer is on record, so its run has to come: what the store does not tell now is asked again."""
        engine, delay = self.engine, RETRY_S
        while True:
            try:
                run, _ = await recovery.prepare(engine.store, live, self.queue.hosted, has_turn)
                if engine.pusher is not None:
                    if self.push is not None:
                        await push_configs.attach(engine, live.new.id, self.push, live.shown_seq - 1)
                    await engine.pusher.hold_task(live.new.id)
                return run
            except StoreUnavailable as error:
                if live.lost or not engine.accepting:
                    raise
                log.warning("task %s has its answer and goes on when the store does: %s", live.new.id, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MAX_S)

    async def _prepare_push(self, task_id: str) -> PushConfig | None:
        if self.push is None:
            return None
        return await push_configs.prepare(self.engine, self.scope.agent, task_id, self.push)


def _check_size(engine: Engine, request: SendMessageRequest) -> None:
    message = request.message
    if len(message.parts) > engine.max_parts:
        raise InvalidParams(
            f"message.parts has {len(message.parts)} parts; at most {engine.max_parts} are taken", field="message.parts"
        )
    for field, metadata in (("message.metadata", message.metadata), ("metadata", request.metadata)):
        if metadata and len(encode(metadata)) > engine.max_metadata:
            raise InvalidParams(f"{field} is longer than {engine.max_metadata} bytes", field=field)


def _no_one_before(engine: Engine) -> bool:
    """Whoever is before a run in its context is in this process, and known."""
    return not engine.store.shared and engine.recovered.is_set()


def _reserve(queue: AgentQueue, new: NewTask) -> bool:
    waits = queue.reserve(new)
    if waits is None:
        agent = queue.hosted.profile.id
        raise TooManyRequests(f"Agent {agent!r} has too many messages waiting; try again later", retry_after=1)
    return waits
