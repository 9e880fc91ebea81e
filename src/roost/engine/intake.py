"""The intake of messages: checks, the first entries and their commit. The agent is called only after it.

    prepare   checks the message, and lets the extensions check it
    accept    recognises a repeat, then commits a new task here, or an answer in answers.py, and submits its run

A message that is committed is run, whatever becomes of its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from roost.engine.agent_queue import AgentQueue
from roost.engine.answers import Answers, received_with
from roost.engine.extension import Extensions, Incoming
from roost.engine.ids import new_id, now_us
from roost.engine.leases import Worker
from roost.engine.limits import MessageLimits
from roost.engine.live import LiveTask
from roost.engine.live_tasks import LiveTasks
from roost.engine.media_types import check_input
from roost.engine.ports import Store
from roost.engine.push_configs import Webhooks
from roost.engine.retention import DiskSpace
from roost.engine.run import Run
from roost.engine.runner import Runner
from roost.engine.stats import Stats
from roost.engine.store_types import NewTask, Reservation, Reserved, Taken
from roost.identity.principal import Principal
from roost.identity.quotas import Meter, QuotaExceeded, QuotaSlot
from roost.protocol.errors import AgentNotFound, IdempotencyKeyReused, Moved, Unavailable
from roost.protocol.types import SendMessageRequest, TaskState

DIRECT_WITHIN_S = 1.0
"""Seconds in which a direct agent has to reply; then the exchange is a task."""


class Client(Protocol):
    """A client that sends a message and waits for a result or a stream (responses.py)."""

    def attach(self, run: Run) -> None:
        """The message is committed, and its run is about to begin."""

    def detach(self) -> None:
        """The client left before it was answered."""


class Repeated(Exception):
    """The message is on record already, and is answered from there."""

    def __init__(self, reserved: Reserved) -> None:
        super().__init__(reserved.task_id)
        self.reserved = reserved


class Intake:
    def __init__(
        self,
        store: Store,
        worker: Worker,
        lives: LiveTasks,
        runner: Runner,
        answers: Answers,
        webhooks: Webhooks,
        extensions: Extensions,
        meter: Meter,
        limits: MessageLimits,
        disk: DiskSpace,
        stats: Stats,
        draining: asyncio.Event,
        recovered: asyncio.Event,
    ) -> None:
        self.store = store
        self.worker = worker
        self.lives = lives
        self.runner = runner
        self.answers = answers
        self.webhooks = webhooks
        self.extensions = extensions
        self.meter = meter
        self.limits = limits
        self.disk = disk
        self.stats = stats
        self.draining = draining
        self.recovered = recovered
        self.arriving: dict[bytes, asyncio.Future[None] | None] = {}
        """Keys of messages that are being accepted, with a future if a repeat waits for the first one."""

    def prepare(
        self,
        principal: Principal,
        agent: str,
        request: SendMessageRequest,
        activated: Sequence[str],
        *,
        keyed: bool = False,
    ) -> Incoming:
        """Check a message before anything is done about it."""
        queue = self.runner.queue(agent)
        if queue is not None:  # otherwise it is refused when it is known whether it is a repeat
            check_input(queue.hosted.profile, request.message)
        if self.draining.is_set():
            raise Unavailable("the host is shutting down", retry_after=1)
        if self.worker.shared:
            self.worker.require_lease()
        self.limits.check(request)
        return self.extensions.accept(Incoming(principal, agent, request, activated, keyed))

    async def accept(self, incoming: Incoming, client: Client) -> None:
        """Commit the message, attach the client and submit the run. Raises Repeated for a message on record."""
        reserve = incoming.reservation
        if reserve is None:
            await self._take_in(incoming, client)
            return
        while reserve.key in self.arriving:
            await self._arrived(reserve.key)
        self.arriving[reserve.key] = None
        try:
            if incoming.request.message.task_id or self.disk.low:
                await self._check_new(reserve)
            try:
                await self._take_in(incoming, client)
            except QuotaExceeded:
                await self._check_new(reserve)  # a repeat costs no quota
                raise
            self.stats.repeats["miss"] += 1
        except Taken as taken:
            self._repeat(taken.reserved, reserve, incoming.request.message.message_id)
        finally:
            awaited = self.arriving.pop(reserve.key)
            if awaited is not None:
                awaited.set_result(None)

    # Checks

    async def _refuse_unserved(self, incoming: Incoming) -> None:
        """Refuse a message to an agent that is not served: 503 for an answer, 404 otherwise. A repeat is Taken."""
        if incoming.reservation is not None:
            await self._check_new(incoming.reservation)
        if incoming.request.message.task_id:
            await self.answers.refuse_unserved(incoming)
        raise AgentNotFound(f"There is no agent {incoming.agent!r} here; GET /agents/ lists those there are")

    # Repeats

    async def _arrived(self, key: bytes) -> None:
        """Wait until the message that came a moment before is accepted or refused."""
        awaited = self.arriving[key]
        if awaited is None:
            awaited = self.arriving[key] = asyncio.get_running_loop().create_future()
        await asyncio.wait([awaited])

    async def _check_new(self, reserve: Reservation) -> None:
        reserved = await self.store.read_reserved(reserve.key)
        if reserved is not None:
            raise Taken(reserved)

    def _repeat(self, reserved: Reserved, asked: Reservation, message_id: str) -> None:
        if reserved.fingerprint != asked.fingerprint:
            self.stats.repeats["collision"] += 1
            raise IdempotencyKeyReused(
                f"messageId {message_id[:64]!r} was used for another message; a new message needs a new id",
                field="message.messageId",
                metadata={
                    "message_id": message_id,
                    "original_request_hash": reserved.fingerprint,
                    "submitted_request_hash": asked.fingerprint,
                },
            )
        self.stats.repeats["hit"] += 1
        raise Repeated(reserved)

    # New tasks

    def _take_in(self, incoming: Incoming, client: Client) -> Coroutine[Any, Any, None]:
        queue = self.runner.queue(incoming.agent)
        if queue is None:
            return self._refuse_unserved(incoming)
        if incoming.request.message.task_id:
            return self.answers.take_in(incoming, client)
        return self._take_new(incoming, queue, client)

    async def _take_new(self, incoming: Incoming, queue: AgentQueue, client: Client) -> None:
        if self.disk.low:
            raise Unavailable("the disk of this host is nearly full: no new tasks until there is room", retry_after=60)
        hosted, message, scope = queue.hosted, incoming.request.message, incoming.scope
        now = now_us()
        context_id = message.context_id or new_id()
        new = NewTask(new_id(), scope, context_id, now)
        configuration = incoming.request.configuration
        push = None if configuration is None else await self.webhooks.prepare(incoming, new.id)
        if self.runner.queue(incoming.agent) is not queue:  # the agent was removed meanwhile
            await self._take_in(incoming, client)
            return
        slot = None if self.meter.idle else self._count(incoming)
        waits = queue.reserve(new)
        stamp = incoming.stamp(scope) if incoming.stamped_by else None
        received = received_with(incoming, stamp)
        received.message = replace(message, task_id=new.id, context_id=context_id)
        direct = hosted.profile.direct
        live = LiveTask.begin(
            new,
            self.worker.name,
            self.lives.touch,
            hidden=direct,
            stamp=stamp,
            reserve=incoming.reservation,
            push=push,
            turn=not message.context_id and self.store.shared,
        )
        live.write_message(now, received)
        live.write_status(now, TaskState.SUBMITTED)
        self.lives.add(live)
        decision = asyncio.get_running_loop().create_future() if direct else None
        has_turn = not message.context_id or (not self.store.shared and self.recovered.is_set())
        run = Run(live, hosted, [received], has_turn=has_turn, decision=decision)
        if decision is not None:
            asyncio.get_running_loop().call_later(DIRECT_WITHIN_S, run.become_task)

        def committed(waiter: asyncio.Future[None]) -> None:
            queue.unreserve(waits)
            live.unhold()
            if waiter.cancelled() or waiter.exception() is not None:
                self.lives.drop(live)
                self.runner.tidy(incoming.agent)
                if slot is not None:
                    slot.leave()
            else:
                if push is not None:
                    self.webhooks.hold_new(push)
                self.runner.submit(queue, run, slot)

        waiter = live.commit()
        try:
            await waiter
        except asyncio.CancelledError:
            live.commit().add_done_callback(committed)  # the client is gone, its message is not
            raise
        except (Unavailable, Taken) as error:
            committed(waiter)
            if isinstance(error, Moved):  # the lease is lost, and nobody has heard of the task yet
                raise Unavailable("this host cannot reach its store; try again", retry_after=1) from None
            raise
        client.attach(run)
        committed(waiter)

    def _count(self, incoming: Incoming) -> QuotaSlot:
        """Count a new task in the quotas, and a message in the rate of its tenant."""
        meter, scope = self.meter, incoming.scope
        slot = meter.admit_task(incoming.principal.name, scope.tenant, scope.agent)
        try:
            meter.check_rate("", "", scope.tenant, "")
        except QuotaExceeded:
            slot.leave()
            raise
        return slot
