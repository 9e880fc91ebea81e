"""`Turn`: everything that a runtime may read of its task and do to it.

A runtime is whatever calls an agent: a Python function, a process of its own, an executor of a2a-sdk. It implements
`HostedAgent` (hosted.py), gets a `Turn` for each call of the agent, and uses nothing else of the engine.

    Runner ── HostedAgent.run(turn) ──> runtime ── text, artifact, status, ask, step, usage ──> Turn
           ── HostedAgent.cancel(turn), then the coroutine of run() is cancelled ──> runtime

The engine's own implementation is `Run` (run.py). `PipeTurn` (agents/child.py) forwards every call from an agent's
process to the `Run` in the host. tests/agents/test_turn.py holds both to the same contract. The port is provisional:
it may still change until runtimes can be installed as plugins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from roost.engine.ids import new_id
from roost.extensions.data import TokenUsage
from roost.protocol.entries import Received, StepRecord
from roost.protocol.types import Artifact, JSONObject, Message, Part, Role, Task, TaskState

OUTPUT = "output"
"""The id of the artifact that collects the text and parts that an agent yields."""


class Unwind(BaseException):
    """Leaves the agent's function: the task waits for an answer, or this turn may not write to it any more."""


class Step(Struct):
    """A step that has begun."""

    name: str
    occurrence: int
    """How many steps of this name the turn has begun before."""
    key: str
    """The same on every try of this step, for services that take idempotency keys."""
    record: StepRecord | None
    """The outcome, if an earlier run has recorded it. Otherwise the step has to run now."""


class Turn(Protocol):
    """One call of an agent for one task.

    Emissions (`text`, `artifact`, `status`, `usage`) do not block: they are buffered and committed in groups. Await
    `pace` after an emission so that an agent cannot outrun the journal. An emission raises `Unwind` once the task has
    ended or the turn is closed. On a re-run, emissions that the journal has already are counted and dropped.

    Everything but `cancelled` and `closed` is called on the event loop of the coroutine `HostedAgent.run`.
    """

    @property
    def task_id(self) -> str: ...

    @property
    def context_id(self) -> str: ...

    @property
    def agent_id(self) -> str: ...

    @property
    def caller(self) -> str:
        """The principal that the task belongs to, as issuer:subject; `*` where tasks belong to the whole tenant."""

    @property
    def tenant(self) -> str: ...

    @property
    def messages(self) -> Sequence[Received]:
        """Every message of the task, oldest first: the one that began the task, then the answers."""

    @property
    def rerun(self) -> bool:
        """The agent may have been called for this task before: an answer came, or the host died or handed over."""

    @property
    def latest(self) -> Received:
        """The message that began this turn."""
        return self.messages[-1]

    @property
    def extensions(self) -> Sequence[str]:
        """URIs of the extensions that the client activated with the message that began this turn."""
        return self.latest.extensions

    @property
    def about(self) -> dict[str, str]:
        """Fields for log records that concern this task."""
        return {"task": self.task_id, "agent": self.agent_id, "principal": self.caller}

    async def read_task(self) -> Task:
        """A copy of the task as it is now, with everything that this turn has emitted."""

    @property
    def cancelled(self) -> bool:
        """The turn has to stop: a client canceled the task, a limit was exceeded, or the host is shutting down.

        This is true before the coroutine of `HostedAgent.run` is cancelled, and can be read from any thread. For a
        client's cancel, and only for that, `HostedAgent.cancel` is called in between.
        """

    @property
    def closed(self) -> bool:
        """The engine takes nothing from this turn any more, not even a last status. Can be read from any thread."""

    def text(self, piece: str, join_s: float = 0.0) -> None:
        """Append text to the artifact `output`. Pieces that come within `join_s` seconds become one event."""

    def flush_text(self) -> None:
        """Emit the text that is held back for joining."""

    def artifact(
        self, artifact: Artifact, *, append: bool, last_chunk: bool = False, metadata: JSONObject | None = None
    ) -> None:
        """Emit an artifact, or append to one. `metadata` belongs to the event."""

    def status(self, state: TaskState, message: Message | None = None, metadata: JSONObject | None = None) -> None:
        """Emit a status. A terminal state ends the task; a paused one leaves it to the turn that gets the answer."""

    def usage(self, tokens: TokenUsage, cost_usd: float | None = None) -> None:
        """Report what the agent has used since its last report.

        Clients see the sum over this turn as an artifact in the form of cost-v1, replaced by each report.
        """

    def reply(self, message: Message) -> None:
        """Answer with a message and no task, if this is the first emission; later, the message ends the task."""

    def become_task(self) -> None:
        """Decide that this exchange is a task, so that no direct reply can follow. An emission does so by itself."""

    async def pace(self) -> None:
        """Let others run, and wait while too much of this task is uncommitted."""

    async def commit(self) -> None:
        """Wait until everything that was emitted is on disk."""

    async def ask(self, state: TaskState, question: Message) -> Received:
        """Return the answer, if the journal has it. Otherwise pause the task with the question and raise Unwind."""

    async def begin_step(self, name: str) -> Step:
        """Look up the next step of this name; `steps.run` does the whole of a step."""

    async def end_step(self, record: StepRecord) -> None:
        """Commit the outcome of a step that had no record."""

    def message(self, parts: list[Part], metadata: JSONObject | None = None) -> Message:
        """Make a message from the agent in this task."""
        return Message(
            message_id=new_id(),
            role=Role.AGENT,
            parts=parts,
            task_id=self.task_id,
            context_id=self.context_id,
            metadata=metadata,
        )
