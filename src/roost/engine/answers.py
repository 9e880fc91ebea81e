"""Answers: messages to a task that has asked a question. An answer is committed, and its task resumes.

The agent's function was unwound when it asked. It is called again from the top, and finds the answer in the journal
(resumption.py, run.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from roost.engine.agent_queue import AgentQueue
from roost.engine.extension import Incoming
from roost.engine.ids import now_us
from roost.engine.leases import Worker
from roost.engine.limits import MessageLimits
from roost.engine.live import LiveTask
from roost.engine.live_tasks import LiveTasks
from roost.engine.ports import Store
from roost.engine.push_configs import Webhooks
from roost.engine.resumption import resume
from roost.engine.run import Run
from roost.engine.runner import Runner
from roost.engine.store_types import StoreUnavailable, Taken
from roost.engine.views import state_word
from roost.identity.quotas import Meter
from roost.protocol.entries import Received
from roost.protocol.errors import InvalidParams, Moved, PayloadTooLarge, Unavailable, UnsupportedOperation
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import JSONObject

if TYPE_CHECKING:
    from roost.engine.intake import Client

log = logging.getLogger("roost.engine")

TRIES = 3
"""Tries of an answer whose task another host writes to at the same time."""
RETRY_S, RETRY_MAX_S = 0.1, 2.0


def received_with(incoming: Incoming, stamp: JSONObject | None) -> Received:
    """Return the message as the journal records it, with the stamp in its metadata."""
    request = incoming.request
    configuration = request.configuration
    modes = [] if configuration is None else configuration.accepted_output_modes
    metadata = {**(request.metadata or {}), **stamp} if stamp else request.metadata
    return Received(request.message, metadata, modes, list(incoming.activated))


class Answers:
    def __init__(
        self,
        store: Store,
        worker: Worker,
        lives: LiveTasks,
        runner: Runner,
        webhooks: Webhooks,
        meter: Meter,
        limits: MessageLimits,
        draining: asyncio.Event,
        recovered: asyncio.Event,
    ) -> None:
        self.store = store
        self.limits = limits
        self.worker = worker
        self.lives = lives
        self.runner = runner
        self.webhooks = webhooks
        self.meter = meter
        self.draining = draining
        self.recovered = recovered

    async def take_in(self, incoming: Incoming, client: Client) -> None:
        """Commit an answer and let its task continue. Taken if the answer is on record already."""
        reserve = incoming.reservation
        for _ in range(TRIES):
            self.worker.require_lease()
            try:
                await self._take_in(incoming, client)
                return
            except Moved:  # another host was faster, with this very answer or with something else
                reserved = None if reserve is None else await self.store.read_reserved(reserve.key)
                if reserved is not None:
                    raise Taken(reserved) from None
        raise Moved

    async def refuse_unserved(self, incoming: Incoming) -> NoReturn:
        """Refuse an answer to a task whose agent is not served: 503 if the task waits for one."""
        task_id = incoming.request.message.task_id
        live = await self.lives.find(incoming.principal, incoming.agent, task_id)
        try:
            _require_paused(live)
        finally:
            self.lives.unhold(live)
        raise _unserved(incoming.agent)

    async def _take_in(self, incoming: Incoming, client: Client) -> None:
        message = incoming.request.message
        live = await self.lives.find(incoming.principal, incoming.agent, message.task_id)
        try:
            if message.context_id and message.context_id != live.new.context_id:
                raise InvalidParams(
                    "message.contextId is not the context of that task; leave it out or send the task's own",
                    field="message.contextId",
                )
            await self.webhooks.prepare(incoming, live.new.id)
            _require_paused(live)
            if live.fold.size > self.limits.task:
                raise PayloadTooLarge(
                    f"The task has more than {self.limits.task >> 20} MB, the host's setting max_task_mb: begin a new"
                    " task"
                )
            queue = self.runner.queue(incoming.agent)
            if queue is None:
                raise _unserved(incoming.agent)
            if not self.meter.idle:
                self.meter.check_rate("", "", live.new.scope.tenant, "")
            waits = queue.reserve(live.new)
            received = received_with(incoming, incoming.stamp(live.new.scope))
            received.message = replace(message, context_id=live.new.context_id)
            live.write_answer(now_us(), received, self.worker.name, incoming.reservation)
        except BaseException:
            self.lives.unhold(live)
            raise
        continuing = asyncio.get_running_loop().create_task(self._continue(incoming, live, queue, client, waits))
        try:
            await asyncio.shield(continuing)
        except asyncio.CancelledError:
            continuing.add_done_callback(lambda _: client.detach())
            raise

    async def _continue(
        self, incoming: Incoming, live: LiveTask, queue: AgentQueue, client: Client, waits: bool
    ) -> None:
        """Commit the answer and call the agent again. This is a task of its own, because the client may leave."""
        has_turn = not self.store.shared and self.recovered.is_set()
        try:
            await live.commit()
            run = await self._resumed(incoming, live, queue, has_turn)
            client.attach(run)
            if live.state not in TERMINAL:  # a cancel may have been faster
                self.runner.submit(queue, run)
        finally:
            queue.unreserve(waits)
            self.runner.tidy(incoming.agent)
            self.lives.unhold(live)

    async def _resumed(self, incoming: Incoming, live: LiveTask, queue: AgentQueue, has_turn: bool) -> Run:
        """Make the run. The answer is on record, so it has to run: what the store does not read now is read again."""
        delay = RETRY_S
        while True:
            try:
                run = (await resume(self.store, live, queue.hosted, has_turn=has_turn)).run
                await self.webhooks.attach(incoming, live.new.id, live.shown_seq - 1)
                return run
            except StoreUnavailable as error:
                if live.lost or self.draining.is_set():
                    raise
                log.warning("task %s has its answer and continues when the store does: %s", live.new.id, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MAX_S)


def _require_paused(live: LiveTask) -> None:
    if live.state not in PAUSED:
        raise UnsupportedOperation(
            f"Task is {state_word(live.state)} and takes no message now"
            + ("; send one without taskId to begin another task" if live.state in TERMINAL else ""),
            metadata={"taskId": live.new.id},
        )


def _unserved(agent: str) -> Unavailable:
    return Unavailable(f"The agent {agent!r} is not served at the moment; try again later", retry_after=60)
