"""From the journal back to life: tasks that are needed again, runs that go on, streams that resume."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, NamedTuple

from roost.engine.agent_queue import AgentQueue
from roost.engine.follower import SUBSCRIBE_ENDS
from roost.engine.hosted import HostedAgent
from roost.engine.ids import now_us
from roost.engine.live import LiveTask
from roost.engine.ports import Journal
from roost.engine.responses import SendResult, TaskStream
from roost.engine.run import Run
from roost.engine.store_types import Adopted, StoreUnavailable
from roost.engine.views import task_bytes
from roost.protocol import entries as kinds
from roost.protocol.codec import decoder
from roost.protocol.entries import NO_CHAIN, AttemptRecord, Entry
from roost.protocol.errors import InvalidParams, Moved, Unavailable
from roost.protocol.fold import fold, new_task
from roost.protocol.states import ACTIVE
from roost.protocol.types import Artifact, Part, StreamResponse, Task, TaskState

if TYPE_CHECKING:
    from roost.engine.engine import Engine

log = logging.getLogger("roost.engine")

PAGE = 1000
ANY_SUB = 2**62
"""Past every internal entry of a seq."""
ORPHANS = 100
"""Adopted at once: the rest is for others, or for the next look."""
AT_ONCE = 16
STRAYS = 10_000
STRAYS_EVERY = 5
"""Looks."""
LOOK_S = 1.0
MAX_ATTEMPTS = 3
BACKOFF_S = (0.0, 1.0, 4.0)
RETRY_S, RETRY_MAX_S = 0.2, 5.0


async def restore(journal: Journal, task_id: str, touch: Callable[[LiveTask], None]) -> LiveTask | None:
    """A task as the journal has it: its snapshot, and the entries since."""
    stored = await journal.read_task(task_id)
    if stored is None:
        return None
    snapshot = stored.snapshot
    task, position = new_task(task_id, stored.new.context_id), (-1, 0)
    last = Entry(0, 0, "", b"", 0, 0, NO_CHAIN)
    if snapshot is not None:
        task = decoder(Task)(snapshot.body)
        task.artifacts = decoder(list[Artifact])(snapshot.artifacts)
        position = (snapshot.seq, snapshot.sub)
        last = await _entry_at(journal, task_id, position)
    tail = 0
    async for page in _pages(journal, task_id, position):
        fold(task, page)
        tail += sum(len(entry.data) for entry in page)
        last = page[-1]
    return LiveTask.restore(stored, task, last, tail, touch)


async def _entry_at(journal: Journal, task_id: str, position: tuple[int, int]) -> Entry:
    seq, sub = position
    before = (seq, sub - 1) if sub else (seq - 1, ANY_SUB)
    [entry] = await journal.read_entries(task_id, before[0], 1, wire=False, sub=before[1])
    return entry


async def _pages(journal: Journal, task_id: str, after: tuple[int, int] = (-1, 0)) -> AsyncIterator[list[Entry]]:
    """All entries after a position, in pages."""
    while page := await journal.read_entries(task_id, after[0], PAGE, wire=False, sub=after[1]):
        yield page
        after = (page[-1].seq, page[-1].sub)


async def prepare(journal: Journal, live: LiveTask, hosted: HostedAgent, has_turn: bool) -> tuple[Run, int]:
    """Make the run that goes on where the journal ends.

    The number says how often the agent was called since the last answer or, for an agent that resumes, the last step.
    """
    records = await journal.read_internal(live.new.id)
    attempts = 0
    for entry in records:
        if entry.kind == kinds.ATTEMPT:
            attempts += 1
        elif entry.kind == kinds.MESSAGE or hosted.profile.resume:
            attempts = 0
    return Run.resumed(live, hosted, records, has_turn=has_turn), attempts


async def recover(engine: Engine) -> None:
    """Go on with every task whose worker is gone: at the start, and where others may die, for ever."""
    delay = RETRY_S
    worker = engine.worker
    begun: dict[str, Adopted] = {}
    looks = 0
    while engine.accepting:
        if worker != engine.worker:
            begun.clear()  # adopted under a name that we lost: for whoever finds them
            worker = engine.worker
        try:
            if looks == 1:
                await _find_strays(engine, begun)
            await _recover(engine, begun)
            engine.recovered.set()
            if not engine.store.shared:
                return
            delay = RETRY_S
            looks = (looks + 1) % STRAYS_EVERY
            await asyncio.sleep(LOOK_S * random.uniform(0.7, 1.3))  # noqa: S311  # replicas must not march in step
        except (StoreUnavailable, Unavailable) as error:
            looks = 1  # the store may have given us tasks, and the answer was lost
            log.error("interrupted tasks cannot be taken up yet, trying again in %g s: %s", delay, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MAX_S)
        except Exception:
            log.exception("interrupted tasks cannot be taken up yet")
            await asyncio.sleep(RETRY_MAX_S)


async def _find_strays(engine: Engine, begun: dict[str, Adopted]) -> None:
    """Tasks that are ours by the store and that nothing here is about to run: an answer was lost, or a start failed."""
    for task in await engine.store.mine(engine.worker, STRAYS):
        live = engine.lives.get(task.task_id)
        busy = live is not None and (live.busy or live.dirty or live.in_flight)
        if task.task_id not in engine.runner.runs and not busy:
            begun.setdefault(task.task_id, task)


async def _recover(engine: Engine, begun: dict[str, Adopted]) -> None:
    """`begun` are those that are ours already, but do not run yet."""
    agents = list(engine.runner.queues)
    while agents and engine.accepting and engine.lease.held:
        adopted = await engine.store.adopt(engine.worker, agents, ORPHANS)
        begun.update({task.task_id: task for task in adopted})
        if not begun:
            return
        gate = asyncio.Semaphore(AT_ONCE)
        results = await asyncio.gather(
            *(_begin(engine, task, begun, gate) for task in list(begun.values())), return_exceptions=True
        )
        loop = asyncio.get_running_loop()
        for result in results:
            if isinstance(result, Ready):  # in the order of their acceptance: they may be turns of one context
                if (
                    not engine.store.shared
                ):  # there the store says whose turn it is, and the queue must not say otherwise
                    _queue_of(engine, result.run).expect(result.run)
                loop.call_later(result.delay_s, _resubmit, engine, result.run)
        for result in results:
            if isinstance(result, BaseException):
                raise result


class Ready(NamedTuple):
    """A run that has learnt what was before it; its task is held for it."""

    run: Run
    delay_s: float


async def _begin(engine: Engine, adopted: Adopted, begun: dict[str, Adopted], gate: asyncio.Semaphore) -> Ready | None:
    ready = None
    async with gate:
        try:
            ready = await _take_over(engine, adopted)
        except Moved:
            pass  # another host has it
        except (StoreUnavailable, Unavailable):
            raise
        except Exception:
            log.exception("task %s cannot be taken up; the others are", adopted.task_id)
        begun.pop(adopted.task_id, None)
    return ready


async def _take_over(engine: Engine, adopted: Adopted) -> Ready | None:
    task_id = adopted.task_id
    live = await engine.load(task_id)
    if live is None:
        return None
    try:
        if live.fence > adopted.fence or live.dirty or live.in_flight or live.state not in ACTIVE:
            return None  # someone has done something to it since
        live.fence = live.held_fence = adopted.fence
        live.worker = engine.worker
        queue = engine.runner.queues[live.new.scope.agent]
        run, attempts = await prepare(engine.store, live, queue.hosted, not engine.store.shared)
        if live.hidden:
            live.show()
        if engine.pusher is not None:
            await engine.pusher.hold_task(task_id)
        if live.state not in ACTIVE:
            return None  # a cancel was faster
        engine.stats.adopted["handed over" if adopted.handed_over else "worker lost"] += 1
        if attempts >= (MAX_ATTEMPTS if queue.hosted.profile.resume else 1):
            _interrupted(run, attempts)
            return None
        if queue.hosted.profile.resume:
            await _replace_unrecorded(engine.store, run)
            if not adopted.handed_over:
                live.write_record(now_us(), kinds.ATTEMPT, AttemptRecord(attempts + 1, engine.worker))
                await live.commit()
            how = "handed over" if adopted.handed_over else f"its worker was lost, attempt {attempts + 1}"
            log.info("task %s goes on: %s", task_id, how, extra=run.about)
        live.busy += 1
        return Ready(run, BACKOFF_S[attempts])
    finally:
        engine.unhold(live)


def _queue_of(engine: Engine, run: Run) -> AgentQueue:
    return engine.runner.queues[run.live.new.scope.agent]


def _resubmit(engine: Engine, run: Run) -> None:
    live, queue = run.live, _queue_of(engine, run)
    if (
        engine.accepting
        and engine.owns(live)
        and not live.lost
        and live.state in (TaskState.SUBMITTED, TaskState.WORKING)
    ):
        engine.runner.submit(queue, run)
    else:
        queue.forget(run)
    engine.unhold(live)


def _interrupted(run: Run, attempts: int) -> None:
    text = (
        f"The host died {attempts + 1} times while this task was running; it is not tried again."
        if run.hosted.profile.resume
        else "The host was interrupted while this task was running, and this agent cannot be called twice."
    )
    log.warning("task %s: %s", run.live.new.id, text, extra=run.about)
    run.live.write_status(now_us(), TaskState.FAILED, run.message([Part(text=text)]))


async def _replace_unrecorded(journal: Journal, run: Run) -> None:
    """What was streamed after the barrier will be said again: remember the artifacts as they were there."""
    task = new_task(run.live.new.id, run.live.new.context_id)
    touched: set[str] = set()
    async for page in _pages(journal, run.live.new.id):
        fold(task, [entry for entry in page if entry.ordinal <= run.barrier])
        for entry in page:
            if entry.kind == kinds.ARTIFACT and entry.ordinal > run.barrier:
                event = decoder(StreamResponse)(entry.data).artifact_update
                if event is not None:
                    touched.add(event.artifact.artifact_id)
    known = {artifact.artifact_id: artifact for artifact in task.artifacts}
    run.restart_artifacts({artifact_id: known.get(artifact_id) for artifact_id in touched})


async def resume_stream(engine: Engine, live: LiveTask, last: int) -> TaskStream:
    """The Task as of entry `last`, then the entries after it, on a terminal task too."""
    shown = await live.read(lambda _, seq: seq)
    if not 1 <= last <= shown:
        raise InvalidParams(
            f"Last-Event-ID {last} is not an event of this task: it has 1 to {shown}", field="Last-Event-ID"
        )
    task = await as_of(engine.store, live, last)
    return TaskStream(SendResult(task_bytes(task), None), None, engine.follow(live, last, SUBSCRIBE_ENDS))


async def as_of(journal: Journal, live: LiveTask, last: int) -> Task:
    """The task as it was at entry `last`."""
    task = new_task(live.new.id, live.new.context_id)
    async for page in _pages(journal, live.new.id):
        fold(task, [entry for entry in page if (entry.seq, entry.sub) <= (last, 0)])
        if page[-1].seq > last:
            break
    return task
