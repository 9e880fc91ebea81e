"""One call of an agent: what it may say, and what a re-run need not say again.

Every emission has an ordinal. On a re-run, after an answer or a crash, emissions up to the
barrier (the last recorded step or answer) are in the journal already and are not made again;
what a dead run had streamed after the barrier is replaced by a restart frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from roost.engine import steps
from roost.engine.hosted import HostedAgent
from roost.engine.ids import new_id, now_us
from roost.engine.live import OUTPUT, LiveTask
from roost.identity.quotas import QuotaSlot
from roost.protocol import entries as kinds
from roost.protocol.codec import decoder, encode
from roost.protocol.entries import Entry, Received, StepRecord
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import (
    Artifact,
    JSONObject,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
)

log = logging.getLogger("roost.engine")

YIELD_EVERY = 32
MAX_UNCOMMITTED = 256
MAX_UNCOMMITTED_BYTES = 1024 * 1024
"""Then an emission that can wait does."""
MOST_UNCOMMITTED = 100_000
MOST_UNCOMMITTED_BYTES = 64 * 1024 * 1024
"""Then one that cannot wait fails."""


class TooFast(RuntimeError):
    """An agent that never awaits has filled the buffer many times over."""


class Unwind(BaseException):
    """Leaves the agent's function: the task is paused, or is no longer this run's to write."""


class Run:
    barrier = 0
    ordinal = 0
    emitted = 0
    asked = 0
    begun = False
    paused = False
    """It asked, and left the task to the run that will have the answer."""
    dead = False
    """Nothing that this run still says is believed."""
    cancelled = False
    stopped = False
    """The runner wants it to end; a thread sees this at its next call."""
    failure: str | None = None
    """Why the runner stopped it: a limit was exceeded."""
    decision: asyncio.Future[bytes | None] | None = None
    """Of a direct agent: the reply, or None when it became a task."""
    join_timer: asyncio.TimerHandle | None = None
    has_turn = True
    """Nobody else runs in its context; otherwise the store has to be asked."""
    queueing: asyncio.Task[None] | None = None
    """Waits for the turn."""
    task: asyncio.Task[None] | None = None
    stopping: asyncio.Task[None] | None = None
    place: QuotaSlot | None = None
    """Among the tasks that its principal, tenant and agent may have at the same time; left when it ends."""

    def __init__(self, live: LiveTask, hosted: HostedAgent, received: list[Received]) -> None:
        self.live = live
        self.hosted = hosted
        self.received = received
        """All messages of the task, oldest first."""
        self.steps: dict[tuple[str, int], tuple[StepRecord, int]] = {}
        """By name and occurrence: those on record, with their ordinals."""
        self.base: dict[str, Artifact | None] = {}
        """Artifacts that a dead run touched after the barrier, as they were at the barrier."""
        self.occurrences: dict[str, int] = {}
        self.started: set[str] = set()
        self.joined: list[str] = []

    def leave(self) -> None:
        if self.place is not None:
            self.place.leave()

    def replay(self, records: list[Entry]) -> None:
        """Learn from the journal what was said and done before."""
        for entry in records:
            if entry.kind == kinds.STEP:
                record = decoder(StepRecord)(entry.data)
                self.steps[record.name, record.occurrence] = (record, entry.ordinal)
            if entry.kind in (kinds.STEP, kinds.MESSAGE):
                self.barrier = max(self.barrier, entry.ordinal)

    # What an agent emits. Synchronous: an emission is buffered; `pace` waits where it must.

    def text(self, piece: str, join_s: float = 0.0) -> None:
        """A piece of text, appended to the artifact `output`; small ones may be joined for a while."""
        if not join_s:
            if not self._fresh():
                self.started.add(OUTPUT)
            elif OUTPUT in self.started and not self.base:
                self.live.write_piece(now_us(), piece)
            else:
                self._write_artifact(Artifact(artifact_id=OUTPUT, parts=[Part(text=piece)]), True, False, None)
            return
        self.check()
        self.ordinal += 1
        if self.ordinal <= self.barrier:
            self.started.add(OUTPUT)
            return
        self.emitted += 1
        self.joined.append(piece)
        if self.join_timer is None:
            self.join_timer = asyncio.get_running_loop().call_later(join_s, self._flush_on_time)

    def _flush_on_time(self) -> None:
        try:
            self.flush_text()
        except Unwind:
            return  # the run is over: what it had left to say is said by nobody

    def flush_text(self) -> None:
        if self.join_timer is None:
            return
        self.join_timer.cancel()
        self.join_timer = None
        pieces, self.joined = self.joined, []
        self.check()
        self.decide_task()
        self.live.ordinal = self.ordinal
        self._write_artifact(Artifact(artifact_id=OUTPUT, parts=[Part(text="".join(pieces))]), True, False, None)

    def status(self, state: TaskState, message: Message | None = None, metadata: JSONObject | None = None) -> None:
        if self._fresh():
            self.live.write_status(now_us(), state, message, metadata)
            self.paused = state in PAUSED

    def artifact(
        self, artifact: Artifact, *, append: bool, last_chunk: bool = False, metadata: JSONObject | None = None
    ) -> None:
        if not self._fresh():
            self.started.add(artifact.artifact_id)
            return
        self._write_artifact(artifact, append, last_chunk, metadata)

    def _write_artifact(self, artifact: Artifact, append: bool, last_chunk: bool, metadata: JSONObject | None) -> None:
        known = artifact.artifact_id in self.started
        self.started.add(artifact.artifact_id)
        if artifact.artifact_id in self.base:
            before = self.base.pop(artifact.artifact_id)
            if append and before is not None:
                artifact = replace(artifact, parts=[*before.parts, *artifact.parts])
            append = False
        event = TaskArtifactUpdateEvent(
            task_id=self.live.new.id,
            context_id=self.live.new.context_id,
            artifact=artifact,
            append=append and (known or self._exists(artifact.artifact_id)),
            last_chunk=last_chunk,
            metadata=metadata,
        )
        self.live.write_artifact(now_us(), event)

    def _exists(self, artifact_id: str) -> bool:
        return any(artifact.artifact_id == artifact_id for artifact in self.live.task.artifacts)

    def _fresh(self) -> bool:
        """Count an emission; False if the journal has it already."""
        if self.dead or self.live.lost or self.live.state in TERMINAL:
            raise Unwind
        if self.join_timer is not None:
            self.flush_text()
        self.ordinal += 1
        if self.ordinal <= self.barrier:
            return False
        if self.decision is not None:
            self.decide_task()
        if len(self.live.entries) >= MOST_UNCOMMITTED or self.live.size >= MOST_UNCOMMITTED_BYTES:
            raise TooFast("this agent emits faster than the journal can write: use yield, or await task.emit(...)")
        self.live.ordinal = self.ordinal
        self.emitted += 1
        return True

    async def pace(self) -> None:
        """Let others run, and wait while too much of this task is uncommitted."""
        live = self.live
        if (
            len(live.entries) + len(live.flying) >= MAX_UNCOMMITTED
            or live.size + live.flying_bytes >= MAX_UNCOMMITTED_BYTES
        ):
            await live.commit()
        elif self.emitted % YIELD_EVERY == 0:
            await asyncio.sleep(0)

    def check(self) -> None:
        if self.dead or self.live.lost or self.live.state in TERMINAL:
            raise Unwind

    # What waits for its commit

    async def step(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        occurrence = self.occurrences.get(name, 0)
        known = await self.begin_step(name)
        if known is not None:
            return steps.outcome(known)
        try:
            record = steps.succeeded(name, occurrence, await work())
        except Exception as error:
            await self.end_step(steps.failed(name, occurrence, error))
            raise
        await self.end_step(record)
        return record.result

    async def begin_step(self, name: str) -> StepRecord | None:
        """The step's record, if the journal has it. What the step had said is counted as said."""
        self.check()
        self.flush_text()
        occurrence = self.occurrences.get(name, 0)
        self.occurrences[name] = occurrence + 1
        found = self.steps.pop((name, occurrence), None)
        if found is None:
            return None
        record, ordinal = found
        self.ordinal = max(self.ordinal, ordinal)
        return record

    async def end_step(self, record: StepRecord) -> None:
        """Keep what the step came to."""
        self.check()
        self.flush_text()
        self.decide_task()
        self.live.ordinal = self.ordinal
        self.live.write_record(now_us(), kinds.STEP, record)
        await self.live.commit()

    def step_key(self, name: str) -> str:
        return f"{self.live.new.id}:{name}:{self.occurrences.get(name, 0)}"

    async def ask(self, state: TaskState, question: Message) -> Received:
        """The answer, if it is in the journal; otherwise pause the task and unwind."""
        if self.cancelled:
            raise Unwind
        self.asked += 1
        if self.asked < len(self.received):
            self.status(state, question)
            return self.received[self.asked]
        self.status(state, question)
        self.dead = True  # what the function says while it unwinds must not follow the question
        await self.live.commit()
        raise Unwind

    # Direct replies

    def reply(self, message: Message) -> None:
        """Answer with a message and no task if it is the first thing; later, the message ends the task."""
        self.check()
        if not self.hosted.profile.direct:
            raise RuntimeError("task.reply() is for an Agent(direct=True); others answer by yield or return")
        if self.decision is None or self.decision.done():
            self.status(TaskState.COMPLETED, message)
            return
        message.task_id = ""
        self.live.write_record(now_us(), kinds.REPLY, message)
        self.live.end_direct()
        self.decision.set_result(encode(message))

    def decide_task(self) -> None:
        """It is a task now: no direct reply can follow."""
        if self.decision is not None and not self.decision.done():
            self.decision.set_result(None)
            self.live.show()
            if self.begun and self.live.state is TaskState.SUBMITTED and self.hosted.profile.announce:
                self.live.write_status(now_us(), TaskState.WORKING)

    @property
    def about(self) -> dict[str, str]:
        """For logs: whose task this is."""
        scope = self.live.new.scope
        return {"task": self.live.new.id, "agent": scope.agent, "principal": scope.owner}

    def message(self, parts: list[Part], metadata: JSONObject | None = None) -> Message:
        """A message of the agent's in this task."""
        return Message(
            message_id=new_id(),
            role=Role.AGENT,
            parts=parts,
            task_id=self.live.new.id,
            context_id=self.live.new.context_id,
            metadata=metadata,
        )

    def report_unused(self) -> None:
        for name, occurrence in self.steps:
            log.warning(
                "task %s: step %r #%d is on record, but this run never asked for it",
                self.live.new.id,
                name,
                occurrence,
                extra=self.about,
            )
