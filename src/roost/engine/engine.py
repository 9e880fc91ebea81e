"""The engine: the operations of A2A on the journal. Every door calls these, with a Principal.

The engine makes its parts and gives each what it needs; the parts do the work.

    intake, answers -> live tasks -> committer -> store        a message in
    runner -> queues -> runs -> live tasks                     an agent at work
    live tasks -> followers; pusher                            events out
    lease, recovery, remote tasks                              other hosts on the same store
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

from roost.engine import listing, reading
from roost.engine.answers import Answers
from roost.engine.bodies import LARGE, Bodies, BodyReader, Made
from roost.engine.cancellation import Cancellation
from roost.engine.committer import Committer
from roost.engine.extension import Extensions
from roost.engine.hosted import Agents
from roost.engine.intake import Intake
from roost.engine.leases import Lease, Worker
from roost.engine.limits import MessageLimits
from roost.engine.live import LiveTask
from roost.engine.live_tasks import LiveTasks
from roost.engine.ports import Store, Wakes
from roost.engine.probe import StoreProbe
from roost.engine.push import Pusher
from roost.engine.push_configs import Webhooks
from roost.engine.push_delivery import PushSettings
from roost.engine.quarantine import Quarantine
from roost.engine.recovery import Recovery
from roost.engine.remote_tasks import RemoteReader, RemoteTasks
from roost.engine.repeats import Repeats
from roost.engine.responses import SendResult, TaskStream
from roost.engine.retention import DiskSpace, RetentionPolicy, RetentionSweeper
from roost.engine.runner import Runner
from roost.engine.sending import Sending
from roost.engine.stats import Stats
from roost.engine.store_types import NewTask, Reserved, Scope, Stored
from roost.engine.streams import Streams
from roost.identity.principal import Principal
from roost.identity.quotas import Meter, Quotas
from roost.protocol.errors import Moved, TaskNotCancelable, TaskNotFound, Unavailable, UnsupportedOperation
from roost.protocol.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)

log = logging.getLogger("roost.engine")

LEAVE_S = 5.0
"""Seconds for the last calls to the store."""


class StoreFigures(NamedTuple):
    """The store, as operators see it."""

    name: str
    wal_bytes: int | None
    free_bytes: int | None


class Engine:
    """Runs tasks of `agents` on `store`.

    worker: the name of this process among those that share the store. It changes when the lease is lost.
    wakes: notifies the other processes; None for a store of one process.
    push: what calling webhooks needs; None if none are called.
    bodies: bounds the large bodies that clients have not read yet.
    """

    def __init__(
        self,
        store: Store,
        agents: Agents,
        worker: str,
        *,
        wakes: Wakes | None = None,
        extensions: Extensions | None = None,
        meter: Meter | None = None,
        retention: RetentionPolicy | None = None,
        limits: MessageLimits | None = None,
        push: PushSettings | None = None,
        bodies: Bodies | None = None,
    ) -> None:
        retention = retention or RetentionPolicy()
        self.store = store
        self.store_probe = StoreProbe(store)
        self.agents = agents
        self.wakes = wakes
        self.extensions = extensions or Extensions()
        self.meter = meter or Meter(Quotas({}))
        self.limits = limits or MessageLimits()
        self.bodies = bodies or Bodies()
        self.stats = Stats()
        self.draining = asyncio.Event()
        """Set when the host begins to stop: no new messages, and streams end."""
        self.recovered = asyncio.Event()
        """Set when the tasks found at start-up have been queued: only then is it known who is first in a context."""
        self.worker = Worker(worker, shared=store.shared)
        self.committer = Committer(store, self.stats, self._committed)
        reader = RemoteReader(store)
        self.lives = LiveTasks(store, self.worker, reader, self.extensions, self.stats, self.committer.touch)
        quarantine = Quarantine(store, self.worker)
        self.runner = Runner(agents, self.worker, store, self.meter, self.lives, quarantine, self.recovered)
        self.pusher = None if push is None else Pusher(store, self.worker, push, self.extensions, self.stats)
        self.webhooks = Webhooks(store, self.lives, self.pusher, self.extensions)
        self.disk = DiskSpace(store, retention.min_free)
        answers = Answers(
            store,
            self.worker,
            self.lives,
            self.runner,
            self.webhooks,
            self.meter,
            self.limits,
            self.draining,
            self.recovered,
        )
        self.intake = Intake(
            store,
            self.worker,
            self.lives,
            self.runner,
            answers,
            self.webhooks,
            self.extensions,
            self.meter,
            self.limits,
            self.disk,
            self.stats,
            self.draining,
            self.recovered,
        )
        self.sending = Sending(self.lives, self.intake, Repeats(self.lives))
        self.streams = Streams(self.lives, self.meter)
        self.cancellation = Cancellation(self.lives, self.worker, self.runner, store, wakes)
        self.lease = Lease(store, self.worker, self.stats, self._lapsed)
        self.remote_tasks = RemoteTasks(
            store, self.worker, self.lives, reader, wakes, self._remote_changed, self.cancellation.stop
        )
        self.retention = RetentionSweeper(store, agents, self.worker, self.lives, self.stats, retention, self.disk)
        self.recovery = Recovery(
            store,
            agents,
            self.worker,
            self.lives,
            self.runner,
            quarantine,
            self.pusher,
            self.stats,
            self.draining,
            self.recovered,
        )

    # Life

    async def start(self) -> None:
        self.committer.start()
        await self.lease.start()
        await self.remote_tasks.start()
        if self.pusher is not None:
            self.pusher.start()
        self.retention.start()
        self.recovery.start()

    def drain(self) -> None:
        """Accept no new messages, and end streams after what is committed. Running tasks continue."""
        self.draining.set()
        for live in self.lives:
            live.end_streams()

    async def close(self, grace_s: float = 0.0) -> None:
        """Let running tasks end for `grace_s` seconds, then leave the rest to other hosts or the next start."""
        self.drain()
        self.recovery.close()
        await self.runner.finish(grace_s)
        for live in {*await self.runner.close(), *self.lives}:
            if self.worker.owns(live):
                live.release()
        await self.committer.close()
        if self.pusher is not None:
            await self.pusher.close()
        for live in self.lives:
            live.refused(Unavailable("the host is shutting down; connect again to continue", retry_after=1))
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.retention.close()
                await self.remote_tasks.close()
                await self.lease.close()
        except TimeoutError:
            log.error("the store does not answer: other hosts take this host's tasks over when its lease ends")
        await self.store_probe.close()
        await self.store.close()

    @property
    def accepting(self) -> bool:
        return not self.draining.is_set()

    def _lapsed(self, lost: str) -> None:
        """The lease is lost, and the worker has a new name: other hosts continue the tasks of the old one."""
        for live in self.lives:
            if live.worker == lost or live.uncommitted or live.new.id in self.runner.runs:
                live.refused(Moved())
                self.lives.drop(live)
        self.runner.abandon()
        if self.pusher is not None:
            self.pusher.lapse()

    def _committed(self, lives: list[LiveTask]) -> None:
        """Notify other processes and the webhooks about tasks that have changed."""
        if self.wakes is not None:
            self.wakes.tell([live.new.id for live in lives])
        if self.pusher is not None and self.pusher.held:
            self.pusher.kick([live.new.id for live in lives])

    def _remote_changed(self, task_ids: Sequence[str]) -> None:
        if self.pusher is not None and self.pusher.held:
            self.pusher.kick(task_ids)

    # Messages

    def send(
        self,
        principal: Principal,
        agent: str,
        request: SendMessageRequest,
        activated: Sequence[str] = (),
        reader: BodyReader | None = None,
    ) -> Coroutine[Any, Any, SendResult]:
        """Send a message. A large response waits until there is room for it, and `reader` has it until its release."""
        incoming = self.intake.prepare(principal, agent, request, activated)
        return self.sending.send(incoming, self.extensions.view(activated), reader)

    async def stream(
        self,
        principal: Principal,
        agent: str,
        request: SendMessageRequest,
        activated: Sequence[str] = (),
        *,
        counted: bool = True,
        keyed: bool = False,
        reader: BodyReader | None = None,
    ) -> TaskStream:
        """Send a message and follow its task.

        counted: the stream counts in the quotas. keyed: messageId is an idempotency key, whatever its form.
        """
        self._require_streaming(agent)
        incoming = self.intake.prepare(principal, agent, request, activated, keyed=keyed)
        begin = partial(self.sending.stream, incoming, self.extensions.view(activated), reader)
        if not counted:
            return await begin()
        return await self.streams.counted(principal, incoming.principal.tenant, agent, begin)

    async def reserved(self, key: bytes) -> Reserved | None:
        """Return the task that holds an idempotency key."""
        return await self.store.read_reserved(key)

    # Tasks

    async def get(
        self,
        principal: Principal,
        agent: str,
        request: GetTaskRequest,
        activated: Sequence[str] = (),
        reader: BodyReader | None = None,
    ) -> bytes:
        return await reading.read_task(self.lives, principal, agent, request, self.extensions.view(activated), reader)

    async def list_tasks(
        self,
        principal: Principal,
        agent: str,
        request: ListTasksRequest,
        activated: Sequence[str] = (),
        reader: BodyReader | None = None,
    ) -> bytes:
        scope, view = Scope(principal.tenant, principal.owner, agent), self.extensions.view(activated)
        return await listing.list_tasks(self.lives, scope, request, view, reader)

    async def cancel(
        self,
        principal: Principal,
        agent: str,
        request: CancelTaskRequest,
        activated: Sequence[str] = (),
        reader: BodyReader | None = None,
    ) -> bytes:
        view = self.extensions.view(activated)
        found = [Made(await self.cancellation.cancel(principal, agent, request.id))]
        if view is not None:
            found = [Made(view.task(found[0].data))]
        if reader is None or len(found[0].data) <= LARGE:
            return found[0].data

        async def make() -> Made:
            return Made(await reading.whole(self.lives, principal, agent, GetTaskRequest(id=request.id), view))

        return (await reader.read(len(found[0].data), None, make, found)).data

    async def subscribe(
        self,
        principal: Principal,
        agent: str,
        request: SubscribeToTaskRequest,
        last_event_id: int | None = None,
        activated: Sequence[str] = (),
        *,
        counted: bool = True,
        reader: BodyReader | None = None,
    ) -> TaskStream:
        self._require_streaming(agent)
        if self.draining.is_set():
            raise Unavailable("the host is shutting down; connect again to continue", retry_after=1)
        view = self.extensions.view(activated)
        return await self.streams.subscribe(principal, agent, request.id, last_event_id, view, reader, counted=counted)

    async def delete(self, principal: Principal, agent: str, task_id: str) -> bool:
        """Delete a task of the caller, which is canceled first if it is not over. A tombstone remains.

        False if the task cannot be deleted yet: it is still ending, or a webhook has something left to deliver.
        """
        try:
            await self.cancellation.cancel(principal, agent, task_id)
        except TaskNotCancelable:
            pass  # it is over
        return bool(await self.store.prune_task(agent, task_id))

    async def locate(self, principal: Principal, agent: str, task_id: str) -> tuple[NewTask, TaskState | None]:
        """Return what never changes of a task of the caller, and its state."""
        live = await self.lives.find(principal, agent, task_id)
        self.lives.unhold(live)
        return live.new, live.state

    async def agent_of(self, principal: Principal, task_id: str) -> str:
        """Return the agent of a task of the caller. Another's task costs the store what a missing one costs."""
        return (await self.lives.stored(principal, None, task_id)).new.scope.agent

    # For operators

    async def probe(self) -> None:
        """Prove that the store can write and read, or raise StoreUnavailable or TimeoutError: see StoreProbe."""
        await self.store_probe.ask()

    def store_figures(self) -> StoreFigures:
        return StoreFigures(self.store.name, self.store.wal_bytes(), self.store.free_bytes())

    async def state_of(self, task_id: str) -> Stored:
        """Return a task's row, whoever owns it."""
        stored = await self.store.read_task(task_id)
        if stored is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        return stored

    async def cancel_any(self, task_id: str) -> None:
        """Cancel a task, whoever owns it."""
        await self.cancellation.cancel_any(task_id)

    async def knows(self, agent: str) -> bool:
        """Say whether the agent is served here, or has tasks in the journal."""
        return self.agents.get(agent) is not None or agent in await self.store.agents()

    def _require_streaming(self, agent: str) -> None:
        hosted = self.agents.get(agent)
        if hosted is not None and not hosted.profile.streaming:
            raise UnsupportedOperation("This agent does not stream; use message:send")
