"""The operations of A2A on the journal. Every door calls these, with a Principal; nothing else does the work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from roost.engine import idempotency, listing, recovery
from roost.engine.agent_queue import AgentQueue
from roost.engine.committer import Committer
from roost.engine.follower import SUBSCRIBE_ENDS, Follower
from roost.engine.hosted import HostedAgent
from roost.engine.idempotency import IdempotencyRules
from roost.engine.ids import now_us
from roost.engine.intake import Repeated, accept
from roost.engine.leases import Lease
from roost.engine.live import LiveTask
from roost.engine.ports import Store, Wakes
from roost.engine.push import Pusher
from roost.engine.remote_tasks import RemoteTasks
from roost.engine.responses import ResultWaiter, SendResult, StreamWaiter, TaskStream
from roost.engine.retention import RetentionPolicy, RetentionSweeper
from roost.engine.run import Run
from roost.engine.runner import Runner
from roost.engine.stats import Stats
from roost.engine.store_types import NewTask, Scope, Stored
from roost.engine.tenancy import OFF, confined
from roost.engine.views import split, task_bytes, trim_task, view
from roost.engine.wake_throttle import WakeThrottle
from roost.identity.principal import Principal
from roost.identity.quotas import Meter, Quotas
from roost.protocol.errors import (
    AgentNotFound,
    Moved,
    TaskNotCancelable,
    TaskNotFound,
    Unavailable,
    UnsupportedOperation,
)
from roost.protocol.states import SETTLED, TERMINAL
from roost.protocol.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    TaskStatus,
)

log = logging.getLogger("roost.engine")

R = TypeVar("R")

CANCEL_WAIT_S = 5.0
LEAVE_S = 5.0
"""For the last words to the store."""
TRIES = 3
"""Of what is asked of a task that moves to another host at the same time."""


class Engine:
    """`worker` is the name of this process among those that share the store; it changes when a lease is lost."""

    pusher: Pusher | None = None
    disk_low = False
    tenancy = OFF
    """What a message's tenant_id means here: see tenancy.py."""
    max_parts, max_metadata = 1000, 64 * 1024
    """Of a message."""

    def __init__(
        self,
        store: Store,
        worker: str,
        wakes: Wakes | None = None,
        rules: IdempotencyRules | None = None,
        keeping: RetentionPolicy | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.store = store
        self.worker = worker
        self.wakes = wakes
        self.rules = rules or IdempotencyRules()
        self.meter = meter or Meter(Quotas({}))
        self.stats = Stats()
        self.throttle = WakeThrottle()
        self.committer = Committer(store, self.stats, self._moved)
        self.runner = Runner(self, self.released)
        self.lives: dict[str, LiveTask] = {}
        self.loading: dict[str, asyncio.Task[bool]] = {}
        self.arriving: dict[bytes, asyncio.Future[None] | None] = {}
        """Keys of messages that are being accepted, with a future if a repeat waits for what comes of the first."""
        self.accepting = True
        self.lease = Lease(self)
        self.remote_tasks = RemoteTasks(self)
        self.keeper = RetentionSweeper(self, keeping or RetentionPolicy())
        self.recovering: asyncio.Task[None] | None = None
        self.recovered = asyncio.Event()
        """What was left behind before the start has its turns; only then is it known who is first in a context."""

    def add(self, hosted: HostedAgent) -> None:
        self.runner.add(hosted)

    async def start(self) -> None:
        self.committer.start()
        await self.lease.start()
        await self.remote_tasks.start()
        if self.pusher is not None:
            self.pusher.start()
        self.keeper.start()
        self.recovering = asyncio.get_running_loop().create_task(recovery.recover(self), name="recovery")

    def drain(self) -> None:
        """No new messages, and streams end where they are; running tasks go on."""
        self.accepting = False
        for live in self.lives.values():
            live.end_streams()

    async def close(self, grace_s: float = 0.0) -> None:
        """Give running tasks their grace, then leave what is not over to others, or to the next start."""
        self.drain()
        if self.recovering is not None:
            self.recovering.cancel()
        await self.runner.finish(grace_s)
        for live in {*await self.runner.close(), *self.lives.values()}:
            if live.worker == self.worker:
                live.release()
        await self.committer.close()
        if self.pusher is not None:
            await self.pusher.close()
        for live in list(self.lives.values()):
            live.refused(Unavailable("the host is shutting down; connect again to go on", retry_after=1))
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.keeper.close()
                await self.remote_tasks.close()
                await self.lease.close()
        except TimeoutError:
            log.error("the store does not answer: what this host ran is taken over when its lease is over")
        await self.store.close()

    def lapse(self, worker: str) -> None:
        """The lease is lost: whoever has it now goes on with our tasks. Go on as `worker`, with nothing."""
        for live in list(self.lives.values()):
            if self.owns(live) or live.dirty or live.in_flight or live.new.id in self.runner.runs:
                live.refused(Moved())
                self.lives.pop(live.new.id, None)
        self.runner.abandon()
        self.worker = worker
        if self.pusher is not None:
            self.pusher.lapse(worker)

    def owns(self, live: LiveTask) -> bool:
        """This process writes the task; otherwise another may, or nobody."""
        return live.worker == self.worker

    def _moved(self, lives: list[LiveTask]) -> None:
        """Something of these was committed: those that have to know are told."""
        if self.wakes is not None:
            self.wakes.tell([live.new.id for live in lives])
        if self.pusher is not None and self.pusher.held:
            self.pusher.kick([live.new.id for live in lives])

    # Operations

    async def send(
        self, principal: Principal, agent: str, request: SendMessageRequest, extensions: Sequence[str] = ()
    ) -> SendResult:
        configuration = request.configuration
        waiting = ResultWaiter(self)
        try:
            await accept(self, principal, self.queue_of(agent), request, extensions, waiting)
        except Repeated as repeated:
            return await idempotency.answer_again(self, repeated.reserved, request)
        run, live = waiting.run, waiting.run.live
        accepted = live.shown_seq
        history = None if configuration is None else configuration.history_length
        at_once = configuration is not None and configuration.return_immediately
        try:
            if run.decision is not None:
                reply = await self._decided(run)
                if reply is not None:
                    return SendResult(None, reply)
            if waiting.over or at_once:
                return SendResult(await live.read(lambda task, _: task_bytes(task, history)), None)
            body = await waiting.settled
            return SendResult(body if history is None else trim_task(body, history), None)
        except Moved:
            if not self.store.shared:
                raise
            return SendResult(await self._elsewhere(live.new.id, accepted, history, at_once), None)
        finally:
            waiting.detach()

    async def _elsewhere(self, task_id: str, accepted: int, history: int | None, at_once: bool) -> bytes:
        """The task as it was accepted, or as it ends or asks, after another host took it from us."""
        live = await self.load(task_id)
        if live is None:
            raise Moved
        try:
            seq = accepted if at_once else await idempotency.settled_after(self, live, accepted)
            return task_bytes(await recovery.as_of(self.store, live, seq), history)
        finally:
            self.unhold(live)

    async def stream(
        self,
        principal: Principal,
        agent: str,
        request: SendMessageRequest,
        extensions: Sequence[str] = (),
        *,
        counted: bool = True,
    ) -> TaskStream:
        """`counted`: the client is streamed to, and its quota of streams says whether it may be."""
        self._streaming(agent)
        begin = partial(self._stream, principal, agent, request, extensions)
        if not counted:
            return await begin()
        return await self._placed(principal, confined(self.tenancy, principal, request.message).tenant, agent, begin)

    async def _stream(
        self, principal: Principal, agent: str, request: SendMessageRequest, extensions: Sequence[str]
    ) -> TaskStream:
        configuration = request.configuration
        watching = StreamWaiter(self, None if configuration is None else configuration.history_length)
        try:
            await accept(self, principal, self.queue_of(agent), request, extensions, watching)
        except Repeated as repeated:
            return await idempotency.stream_again(self, repeated.reserved, request)
        if watching.run.decision is not None:
            try:
                reply = await self._decided(watching.run)
            except BaseException:
                watching.detach()
                raise
            if reply is not None:
                watching.detach()
                return TaskStream(SendResult(None, reply), None, None)
        return watching.stream

    async def get(self, principal: Principal, agent: str, request: GetTaskRequest) -> bytes:
        self.queue_of(agent)
        live = self.lives.get(request.id)
        if live is not None and self._current(live) and shows(live.new, live.hidden, principal, agent):
            return await live.read(lambda task, _: task_bytes(task, request.history_length))
        stored = await self._stored(principal, agent, request.id)
        if stored.snapshot is not None and stored.head.state in SETTLED:
            return view(stored.snapshot, request.history_length)
        return await self._look(request.id, lambda task, _: task_bytes(task, request.history_length))

    async def list_tasks(self, principal: Principal, agent: str, request: ListTasksRequest) -> bytes:
        self.queue_of(agent)
        return await listing.list_tasks(self, Scope(principal.tenant, principal.owner, agent), request)

    async def cancel(self, principal: Principal, agent: str, request: CancelTaskRequest) -> bytes:
        return await self._cancel_found(request.id, lambda: self.find(principal, agent, request.id))

    async def state_of(self, task_id: str) -> Stored:
        """For an operator: whose task it is and how it stands, whoever they are."""
        stored = await self.store.read_task(task_id)
        if stored is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        return stored

    async def cancel_any(self, task_id: str) -> None:
        """For an operator, whose task it is does not matter; what is in it stays unseen."""

        async def find() -> LiveTask:
            live = await self.load(task_id)
            if live is None:
                raise TaskNotFound(metadata={"taskId": task_id})
            return live

        await self._cancel_found(task_id, find)

    async def _cancel_found(self, task_id: str, find: Callable[[], Awaitable[LiveTask]]) -> bytes:
        for _ in range(TRIES):
            live = await find()
            try:
                if live.state in TERMINAL:
                    raise TaskNotCancelable(
                        f"Task is already {self.word(live.state)} and cannot be canceled",
                        metadata={"taskId": task_id},
                    )
                async with asyncio.timeout(CANCEL_WAIT_S):
                    return await self._cancel(live)
            except TimeoutError:
                return await live.read(lambda task, _: task_bytes(task))
            except Moved:
                continue
            finally:
                self.unhold(live)
        raise Moved

    async def _cancel(self, live: LiveTask) -> bytes:
        """Stop the run, or end the task where there is none; a question on its way may come first."""
        while True:
            if self._is_anothers(live):
                await self._cancel_elsewhere(live)
                continue
            if live.state in TERMINAL and not live.dirty and not live.in_flight:
                return await live.read(lambda task, _: task_bytes(task))
            settled = live.when_settled()
            self.stop(live)
            body = await settled
            if live.state in TERMINAL and not live.dirty and not live.in_flight:
                return body

    def stop(self, live: LiveTask) -> None:
        """Cancel a task that is ours or nobody's."""
        if live.state not in TERMINAL and not self.runner.cancel(live.new.id):
            if self._is_anothers(live):
                raise Moved
            if live.worker is None:
                live.take_over(self.worker)
                live.goes_on = True  # its webhooks are at rest, and have to hear of it
            live.write_status(now_us(), TaskState.CANCELED)

    async def _cancel_elsewhere(self, live: LiveTask) -> None:
        """Leave word with the host that runs it, and wait until it is over or nobody's."""
        await self.store.ask_cancel(live.new.id)
        if self.wakes is not None:
            self.wakes.tell([live.new.id])
        follower = self.follow(live, live.shown_seq, SUBSCRIBE_ENDS)
        try:
            while self._is_anothers(live):
                if await follower.batch() is None and self._is_anothers(live):
                    raise Moved
        finally:
            self.release(follower)
        if live.lost:
            raise Moved

    def _is_anothers(self, live: LiveTask) -> bool:
        """Another host runs it: nothing of ours may be written to it."""
        return self.store.shared and live.worker not in (None, self.worker) and live.state not in TERMINAL

    async def subscribe(
        self,
        principal: Principal,
        agent: str,
        request: SubscribeToTaskRequest,
        last_event_id: int | None = None,
        *,
        counted: bool = True,
    ) -> TaskStream:
        self._streaming(agent)
        if not self.accepting:
            raise Unavailable("the host is shutting down; connect again to go on", retry_after=1)
        live = await self.find(principal, agent, request.id)
        begin = partial(self._subscribe, live, last_event_id)
        try:
            return await (self._placed(principal, live.new.scope.tenant, agent, begin) if counted else begin())
        finally:
            self.unhold(live)

    async def _subscribe(self, live: LiveTask, last_event_id: int | None) -> TaskStream:
        if last_event_id is not None:
            return await recovery.resume_stream(self, live, last_event_id)
        if live.state in TERMINAL:
            raise UnsupportedOperation(
                f"Task is already {self.word(live.state)}: there is nothing to subscribe to. Read it with GetTask,"
                " or send Last-Event-ID to replay its stream",
                metadata={"taskId": live.new.id},
            )

        def look(task: Task, seq: int) -> TaskStream:
            follower = self.follow(live, seq, SUBSCRIBE_ENDS)
            return TaskStream(SendResult(task_bytes(task), None), seq, follower)

        return await live.read(look)

    def follow(self, live: LiveTask, position: int, ends: frozenset[TaskState]) -> Follower:
        return Follower(live, self.store, self.stats, self.throttle, position, ends)

    async def _placed(
        self, principal: Principal, tenant: str, agent: str, begin: Callable[[], Awaitable[TaskStream]]
    ) -> TaskStream:
        """A stream that counts among those of its caller, tenant and agent until it is released."""
        if self.meter.idle:
            return await begin()
        place = self.meter.open_stream(principal.name, tenant, agent)
        try:
            stream = await begin()
        except BaseException:
            place.leave()
            raise
        if stream.follower is None:
            place.leave()
        else:
            stream.follower.place = place
        return stream

    def release(self, follower: Follower) -> None:
        follower.close()
        if follower.place is not None:
            follower.place.leave()
        self.released(follower.live)

    async def knows(self, agent: str) -> bool:
        """Say whether the agent is served here, or has tasks in the journal."""
        return agent in self.runner.queues or agent in await self.store.agents()

    def queue_of(self, agent: str) -> AgentQueue:
        queue = self.runner.queues.get(agent)
        if queue is None:
            raise AgentNotFound(f"There is no agent {agent!r} here; GET /agents/ lists those there are")
        return queue

    async def _decided(self, run: Run) -> bytes | None:
        assert run.decision is not None
        reply = await asyncio.shield(run.decision)
        await run.live.commit()
        return reply

    # Finding tasks

    async def find(self, principal: Principal, agent: str, task_id: str) -> LiveTask:
        """The live task, held until `unhold`; TaskNotFound to everyone whose task it is not."""
        self.queue_of(agent)
        live = self.lives.get(task_id)
        if live is None or not shows(live.new, live.hidden, principal, agent):
            await self._stored(principal, agent, task_id)
        live = await self.load(task_id)
        if live is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        if not shows(live.new, live.hidden, principal, agent):
            self.unhold(live)
            raise TaskNotFound(metadata={"taskId": task_id})
        return live

    async def _stored(self, principal: Principal, agent: str, task_id: str) -> Stored:
        """A task as the store has it. For one that is another's the store does what it does for one that is not."""
        stored = await self.store.read_task(task_id, principal.owner)
        if stored is None or not shows(stored.new, stored.head.hidden, principal, agent):
            raise TaskNotFound(metadata={"taskId": task_id})
        return stored

    async def load(self, task_id: str) -> LiveTask | None:
        """The one live object of a task, held; from the journal if nothing was happening to it."""
        while True:
            live = self.lives.get(task_id)
            if live is not None and live.lost:
                del self.lives[task_id]
                continue
            if live is not None:
                live.busy += 1
                if not self._current(live):
                    try:
                        await self.remote_tasks.refresh(live)
                    except BaseException:
                        self.unhold(live)
                        raise
                    if live.lost:
                        self.unhold(live)
                        continue
                return live
            loading = self.loading.get(task_id)
            if loading is None:
                loading = self.loading[task_id] = asyncio.get_running_loop().create_task(self._restore(task_id))
            if not await asyncio.shield(loading):
                return None

    def _current(self, live: LiveTask) -> bool:
        """Nobody else can have written to it since."""
        return not self.store.shared or self.owns(live) or live.dirty or live.in_flight

    async def _restore(self, task_id: str) -> bool:
        try:
            live = await recovery.restore(self.store, task_id, self.committer.touch)
            if live is not None:
                self.lives[task_id] = live
            return live is not None
        finally:
            del self.loading[task_id]

    async def split_task(self, task_id: str) -> tuple[TaskStatus, bytes, bytes]:
        """The status, the body and the artifacts of a task that is not settled in the store."""
        return await self._look(task_id, lambda task, _: (task.status, *split(task)))

    async def _look(self, task_id: str, look: Callable[[Task, int], R]) -> R:
        live = await self.load(task_id)
        if live is None:
            raise TaskNotFound(metadata={"taskId": task_id})
        try:
            return await live.read(look)
        finally:
            self.unhold(live)

    def unhold(self, live: LiveTask) -> None:
        live.busy -= 1
        self.released(live)

    def released(self, live: LiveTask) -> None:
        """Forget a task that nothing happens to any more; the journal remembers it."""
        if live.lost or live.idle:
            if self.lives.get(live.new.id) is live:
                del self.lives[live.new.id]
        elif not live.busy and not live.followers and (live.dirty or live.in_flight):
            live.commit().add_done_callback(lambda _: self.released(live))

    def _streaming(self, agent: str) -> None:
        if not self.queue_of(agent).hosted.profile.streaming:
            raise UnsupportedOperation("This agent does not stream; use message:send")

    @staticmethod
    def word(state: TaskState | None) -> str:
        return str(state).removeprefix("TASK_STATE_")


def shows(new: NewTask, hidden: bool, principal: Principal, agent: str) -> bool:
    """To anyone else the task does not exist."""
    scope = new.scope
    return scope.owner == principal.owner and scope.agent == agent and principal.sees(scope.tenant) and not hidden
