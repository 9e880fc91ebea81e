"""`Run`: the engine's implementation of `Turn`, and what a re-run need not emit again.

Every emission has an ordinal. On a re-run, after an answer or a crash, emissions up to the barrier (the last
recorded step or answer) are in the journal already and are dropped. What a dead run had streamed after the
barrier is replaced by a restart frame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from msgspec.structs import replace

from roost.engine.hosted import HostedAgent
from roost.engine.ids import now_us
from roost.engine.limits import (
    MAX_UNCOMMITTED,
    MAX_UNCOMMITTED_BYTES,
    MOST_UNCOMMITTED,
    MOST_UNCOMMITTED_BYTES,
    YIELD_EVERY,
)
from roost.engine.live import LOST, LiveTask
from roost.engine.turn import OUTPUT, Step, Turn, Unwind
from roost.extensions.data import TokenUsage, usage_artifact
from roost.protocol import entries as kinds
from roost.protocol.codec import decoder, encode
from roost.protocol.entries import Entry, Received, StepRecord
from roost.protocol.raw import raw_decoder
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import (
    Artifact,
    JSONObject,
    Message,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
)

log = logging.getLogger("roost.engine")


class TooFast(RuntimeError):
    """An agent that never waits has filled the buffer of its task."""


class Run(Turn):
    """One call of an agent. Agents see the `Turn`; the rest is for the runner and the intake."""

    barrier = 0
    """The ordinal of the last recorded step or answer."""
    ordinal = 0
    """How many emissions the agent has made, those included that the journal has already."""
    emitted = 0
    """How many emissions were new."""
    asked = 0
    """How many questions the agent has put, those included that have an answer."""
    begun = False
    """The agent has been called."""
    paused = False
    """The agent has put a question, and left the task to the run that gets the answer."""
    dead = False
    """The engine takes nothing from this run any more."""
    cancel_requested = False
    """A client has canceled the task."""
    stopped = False
    """The runner has cancelled `task`."""
    task: asyncio.Task[None] | None = None
    """The asyncio task that calls the agent; None until it is this run's turn."""
    base: dict[str, Artifact | None] | None = None
    """The artifacts that a dead run touched after the barrier, as they were at the barrier."""
    join_timer: asyncio.TimerHandle | None = None
    """Emits the text in `joined` when it fires."""
    joined: list[str]
    """Pieces of text that wait to be joined; there are some while there is a timer."""
    used = TokenUsage(0, 0, 0)
    cost_usd: float | None = None

    def __init__(
        self,
        live: LiveTask,
        hosted: HostedAgent,
        messages: list[Received],
        *,
        has_turn: bool = True,
        rerun: bool = False,
        decision: asyncio.Future[bytes | None] | None = None,
    ) -> None:
        self.live = live
        self.hosted = hosted
        self._messages = messages
        self.has_turn = has_turn
        """No other task runs in the context; otherwise the store has to be asked."""
        self._rerun = rerun
        self.decision = decision
        """The outcome for a direct agent: the encoded reply, or None if the exchange became a task."""
        self.steps: dict[tuple[str, int], tuple[StepRecord, int]] = {}
        """The steps on record that were not reached yet, with their ordinals, by name and occurrence."""
        self.occurrences: dict[str, int] = {}
        """How many steps of each name have begun."""
        self.started: set[str] = set()
        """Ids of the artifacts that this run has emitted."""

    @classmethod
    def resumed(cls, live: LiveTask, hosted: HostedAgent, records: Iterable[Entry], *, has_turn: bool) -> Run:
        """A run that goes on after the internal entries of a task's journal."""
        run = cls(live, hosted, [], has_turn=has_turn, rerun=True)
        for entry in records:
            if entry.kind == kinds.MESSAGE:
                run._messages.append(raw_decoder(Received)(entry.data))
            elif entry.kind == kinds.STEP:
                record = decoder(StepRecord)(entry.data)
                run.steps[record.name, record.occurrence] = (record, entry.ordinal)
            else:
                continue
            run.barrier = max(run.barrier, entry.ordinal)
        if not hosted.profile.replays:
            run.ordinal = run.barrier
        return run

    def restart_artifacts(self, base: dict[str, Artifact | None]) -> None:
        """Begin these artifacts anew: `base` has them as they were at the barrier, None for one that was not there."""
        self.base = base

    # What the runner does

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.get_running_loop().create_task(work)

    def begin(self) -> None:
        """Announce that the agent is being called, unless a direct reply may still come."""
        self.begun = True
        undecided = self.decision is not None and not self.decision.done()
        if self.live.state is TaskState.SUBMITTED and self.hosted.profile.announce and not undecided:
            self.live.write_status(now_us(), TaskState.WORKING)

    def request_cancel(self) -> None:
        self.cancel_requested = True

    def stop(self) -> None:
        """Cancel the coroutine that calls the agent."""
        self.stopped = True
        if self.task is not None:
            self.task.cancel()

    def close(self) -> None:
        """Take nothing from the agent any more."""
        self.dead = True

    def report_unused(self) -> None:
        """Log the recorded steps that the agent did not reach."""
        for name, occurrence in self.steps:
            log.warning(
                "task %s: step %r #%d is on record, but this run did not reach it",
                self.task_id,
                name,
                occurrence,
                extra=self.about,
            )

    # What a turn is about

    @property
    def task_id(self) -> str:
        return self.live.new.id

    @property
    def context_id(self) -> str:
        return self.live.new.context_id

    @property
    def agent_id(self) -> str:
        return self.live.new.scope.agent

    @property
    def caller(self) -> str:
        return self.live.new.scope.owner

    @property
    def tenant(self) -> str:
        return self.live.new.scope.tenant

    @property
    def messages(self) -> list[Received]:
        return self._messages

    @property
    def rerun(self) -> bool:
        return self._rerun

    @property
    def cancelled(self) -> bool:
        return self.cancel_requested or self.stopped

    @property
    def closed(self) -> bool:
        return self.dead or self.live.lost

    async def read_task(self) -> Task:
        self.flush_text()
        await self.live.commit()
        return await self.live.read(lambda task, _: decoder(Task)(encode(task)))

    # Emissions

    def text(self, piece: str, join_s: float = 0.0) -> None:
        if not join_s:
            if not self._fresh():
                self.started.add(OUTPUT)
            elif OUTPUT in self.started and not self.base:
                self.live.write_piece(now_us(), piece, self.ordinal)
            else:
                self._write_artifact(Artifact(artifact_id=OUTPUT, parts=[Part(text=piece)]), True, False, None)
            return
        self._check()
        self.ordinal += 1
        if self.ordinal <= self.barrier:
            self.started.add(OUTPUT)
            return
        self.emitted += 1
        if self.join_timer is None:
            self.joined = [piece]
            self.join_timer = asyncio.get_running_loop().call_later(join_s, self._flush_on_time)
        else:
            self.joined.append(piece)

    def _flush_on_time(self) -> None:
        try:
            self.flush_text()
        except Unwind:
            return  # the task is over, and the text that was left is dropped with the run

    def flush_text(self) -> None:
        if self.join_timer is None:
            return
        self.join_timer.cancel()
        self.join_timer = None
        self._check()
        self.become_task()
        self._write_artifact(Artifact(artifact_id=OUTPUT, parts=[Part(text="".join(self.joined))]), True, False, None)

    def status(self, state: TaskState, message: Message | None = None, metadata: JSONObject | None = None) -> None:
        if self._fresh():
            self.live.write_status(now_us(), state, message, metadata, self.ordinal)
            self.paused = state in PAUSED

    def artifact(
        self, artifact: Artifact, *, append: bool, last_chunk: bool = False, metadata: JSONObject | None = None
    ) -> None:
        if not self._fresh():
            self.started.add(artifact.artifact_id)
            return
        self._write_artifact(artifact, append, last_chunk, metadata)

    def usage(self, tokens: TokenUsage, cost_usd: float | None = None) -> None:
        used = self.used
        self.used = TokenUsage(used.input + tokens.input, used.output + tokens.output, used.cached + tokens.cached)
        if cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost_usd
        self.artifact(usage_artifact(self.used, self.cost_usd), append=False)

    def _write_artifact(self, artifact: Artifact, append: bool, last_chunk: bool, metadata: JSONObject | None) -> None:
        known = artifact.artifact_id in self.started
        self.started.add(artifact.artifact_id)
        if self.base and artifact.artifact_id in self.base:
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
        self.live.write_artifact(now_us(), event, self.ordinal)

    def _exists(self, artifact_id: str) -> bool:
        return any(artifact.artifact_id == artifact_id for artifact in self.live.task.artifacts)

    def _fresh(self) -> bool:
        """Count an emission; False if the journal has it already."""
        live = self.live
        if self.dead or live.phase is LOST or live.state in TERMINAL:
            raise Unwind
        if self.join_timer is not None:
            self.flush_text()
        self.ordinal += 1
        if self.ordinal <= self.barrier:
            return False
        if self.decision is not None:
            self.become_task()
        if len(live.entries) >= MOST_UNCOMMITTED or live.size >= MOST_UNCOMMITTED_BYTES:
            raise TooFast("this agent emits faster than the journal can write: use yield, or await task.emit(...)")
        self.emitted += 1
        return True

    async def pace(self) -> None:
        live = self.live
        if (
            len(live.entries) + len(live.flying) >= MAX_UNCOMMITTED
            or live.size + live.flying_bytes >= MAX_UNCOMMITTED_BYTES
        ):
            await live.commit()
        elif self.emitted % YIELD_EVERY == 0:
            await asyncio.sleep(0)

    async def commit(self) -> None:
        self.flush_text()
        await self.live.commit()

    def _check(self) -> None:
        if self.dead or self.live.lost or self.live.state in TERMINAL:
            raise Unwind

    # Steps and questions

    async def begin_step(self, name: str) -> Step:
        self._check()
        self.flush_text()
        occurrence = self.occurrences.get(name, 0)
        self.occurrences[name] = occurrence + 1
        record, ordinal = self.steps.pop((name, occurrence), (None, 0))
        self.ordinal = max(self.ordinal, ordinal)  # what the step has emitted is in the journal
        return Step(name, occurrence, f"{self.task_id}:{name}:{occurrence}", record)

    async def end_step(self, record: StepRecord) -> None:
        self._check()
        self.flush_text()
        self.become_task()
        self.live.write_record(now_us(), kinds.STEP, record, self.ordinal)
        await self.live.commit()

    async def ask(self, state: TaskState, question: Message) -> Received:
        if self.cancel_requested:
            raise Unwind
        self.asked += 1
        if self.asked < len(self._messages):
            self.status(state, question)
            return self._messages[self.asked]
        self.status(state, question)
        self.close()  # what the function emits while it unwinds must not follow the question
        await self.live.commit()
        raise Unwind

    # Direct replies

    def reply(self, message: Message) -> None:
        self._check()
        if not self.hosted.profile.direct:
            raise RuntimeError("task.reply() is for an Agent(direct=True); others answer by yield or return")
        if self.decision is None or self.decision.done():
            self.status(TaskState.COMPLETED, message)
            return
        message.task_id = ""
        self.live.write_record(now_us(), kinds.REPLY, message)
        self.live.end_direct()
        self.decision.set_result(encode(message))

    def become_task(self) -> None:
        if self.decision is not None and not self.decision.done():
            self.decision.set_result(None)
            self.live.show()
            if self.begun and self.live.state is TaskState.SUBMITTED and self.hosted.profile.announce:
                self.live.write_status(now_us(), TaskState.WORKING)
