"""`task`, as an agent's function sees it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from functools import cached_property
from typing import Any, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from roost.engine import steps
from roost.engine.live import OUTPUT
from roost.engine.media_types import accepts
from roost.engine.run import Run, Unwind
from roost.protocol.codec import decoder, encode
from roost.protocol.entries import Received
from roost.protocol.types import Artifact, JSONObject, Message, Part, TaskState

T = TypeVar("T")

Says = str | Part | list[Part] | dict[str, Any]
"""What a message can be made of: text, a part, parts, or data."""

_step_key: ContextVar[str] = ContextVar("step_key")


class Answer(Struct):
    """What a client said when it was asked."""

    message: Message
    metadata: JSONObject | None = None

    @property
    def text(self) -> str:
        return self.message.text

    @property
    def parts(self) -> list[Part]:
        return self.message.parts

    @property
    def data(self) -> Any:
        """The first data part's value, or None."""
        return first_data(self.message.parts)


class Paced:
    """Awaited, it waits while too much of the task is uncommitted, as `yield` does."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __await__(self) -> Generator[Any, None, None]:
        return self.run.pace().__await__()


class AgentTask:
    """A task that is being worked on. The message that began the run is the same on every re-run."""

    def __init__(self, run: Run, join_s: float) -> None:
        self._run = run
        self._join_s = join_s
        self._given: Received = run.received[0]

    @cached_property
    def _received(self) -> Received:
        """The agent's own copy: what it does to its message must not reach the task's history."""
        return decoder(Received)(encode(self._given))

    @property
    def id(self) -> str:
        return self._run.live.new.id

    @property
    def context_id(self) -> str:
        return self._run.live.new.context_id

    @property
    def caller(self) -> str:
        """Whose task it is, as issuer:subject; `*` where tasks belong to the whole tenant."""
        return self._run.live.new.scope.owner

    @property
    def tenant(self) -> str:
        return self._run.live.new.scope.tenant

    @property
    def message(self) -> Message:
        return self._received.message

    @property
    def text(self) -> str:
        """The message's text parts, joined by newlines."""
        return self._given.message.text

    @property
    def parts(self) -> list[Part]:
        return self._received.message.parts

    @property
    def data(self) -> Any:
        """The first data part's value, or None."""
        return first_data(self.parts)

    @property
    def metadata(self) -> JSONObject:
        """The request's metadata; the message has its own."""
        return self._received.metadata or {}

    @property
    def extensions(self) -> list[str]:
        """URIs of the extensions that the client activated."""
        return list(self._given.extensions)

    def accepts(self, media_type: str) -> bool:
        """May the client be given this type? True where it named none."""
        return accepts(self._given.accepted_output_modes, media_type)

    @property
    def step_key(self) -> str:
        """Inside a step: a key that is the same on every try, for the services that the step calls."""
        try:
            return _step_key.get()
        except LookupError:
            raise RuntimeError("task.step_key has a value only inside the function that task.step calls") from None

    def status(self, says: Says) -> Paced:
        """Tell the client what is going on: a WORKING status with a message."""
        self._run.status(TaskState.WORKING, self._run.message(as_parts(says)))
        return Paced(self._run)

    def emit(self, value: Any) -> Paced:
        """The same as `yield value`, for functions that do not yield. Who emits much should await it."""
        emit(self._run, value, self._join_s)
        return Paced(self._run)

    async def ask(self, says: Says, *, auth: bool = False) -> Answer:
        """Ask the client and wait for the answer, for as long as it takes.

        The function is unwound here and called again from the top when the answer is there.
        With auth=True the task is AUTH_REQUIRED instead of INPUT_REQUIRED.
        """
        state = TaskState.AUTH_REQUIRED if auth else TaskState.INPUT_REQUIRED
        received = await self._run.ask(state, self._run.message(as_parts(says)))
        return Answer(received.message, received.metadata)

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call fn once and remember its result (JSON): a re-run gets it from the journal."""
        key = self._run.step_key(name)

        async def work() -> Any:
            token = _step_key.set(key)
            try:
                if inspect.iscoroutinefunction(fn):
                    return await fn(*args, **kwargs)
                result = await asyncio.to_thread(_called, fn, *args, **kwargs)
                return await result if inspect.isawaitable(result) else result
            finally:
                _step_key.reset(token)

        return await self._run.step(name, work)

    def reply(self, says: Says) -> None:
        """Answer with a message and no task: the first and last thing of an Agent(direct=True).

        After other emissions, a second or a crash there is a task; it ends COMPLETED with the message.
        """
        self._run.reply(self._run.message(as_parts(says)))
        raise Unwind

    def done(self, says: Says) -> None:
        """End the task COMPLETED with a message, here."""
        self._end(TaskState.COMPLETED, says)

    def fail(self, says: Says) -> None:
        """End the task FAILED with a message for the client, here."""
        self._end(TaskState.FAILED, says)

    def reject(self, says: Says) -> None:
        """End the task REJECTED: this agent does not do such work."""
        self._end(TaskState.REJECTED, says)

    def _end(self, state: TaskState, says: Says) -> None:
        self._run.status(state, self._run.message(as_parts(says)))
        raise Unwind


class ThreadTask(AgentTask):
    """The same for a function in a thread: its calls block, and stop the function once the task is over."""

    def __init__(self, run: Run, join_s: float, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(run, join_s)
        self._loop = loop

    def status(self, says: Says) -> None:  # type: ignore[override]  # has waited when it returns
        self._do(self._paced(lambda: AgentTask.status(self, says)))

    def emit(self, value: Any) -> None:  # type: ignore[override]  # has waited when it returns
        self._do(self._paced(lambda: emit(self._run, value, self._join_s)))

    def ask(self, says: Says, *, auth: bool = False) -> Answer:  # type: ignore[override]  # blocks instead
        return self._do(super().ask(says, auth=auth))

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The function runs in this thread; the journal is read and written on the loop."""
        key, occurrence = self._run.step_key(name), self._run.occurrences.get(name, 0)
        known = self._do(self._run.begin_step(name))
        if known is not None:
            return steps.outcome(known)
        token = _step_key.set(key)
        try:
            record = steps.succeeded(name, occurrence, fn(*args, **kwargs))
        except Exception as error:
            self._do(self._run.end_step(steps.failed(name, occurrence, error)))
            raise
        finally:
            _step_key.reset(token)
        self._do(self._run.end_step(record))
        return record.result

    def reply(self, says: Says) -> None:
        async def reply() -> None:
            AgentTask.reply(self, says)

        self._do(reply())

    def _end(self, state: TaskState, says: Says) -> None:
        async def end() -> None:
            super(ThreadTask, self)._end(state, says)

        self._do(end())

    async def _paced(self, say: Callable[[], object]) -> None:
        say()
        await self._run.pace()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        self._stopped(work)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stopped(self, work: Coroutine[Any, Any, Any] | None = None) -> None:
        if self._run.cancelled or self._run.dead or self._run.stopped:
            if work is not None:
                work.close()
            raise Unwind


def emit(run: Run, value: Any, join_s: float) -> None:
    """What an author yields, as an event."""
    if isinstance(value, str):
        if value:
            run.text(value, join_s)
    elif isinstance(value, Artifact):
        parts = [as_part(part) for part in value.parts]
        run.artifact(replace(value, parts=parts, metadata=_copied(value.metadata)), append=False)
    elif value is not None:
        run.artifact(Artifact(artifact_id=OUTPUT, parts=[as_part(value)]), append=True)


def as_part(value: Any) -> Part:
    """A part of our own: the author may go on changing the value, the journal has it as it was."""
    if isinstance(value, Part):
        return replace(value, data=_copied(value.data), metadata=_copied(value.metadata))
    if isinstance(value, str):
        return Part(text=value)
    if isinstance(value, (bytes, bytearray)):
        return Part(raw=bytes(value), media_type="application/octet-stream")
    return Part(data=_copied(value))


def _copied(value: Any) -> Any:
    """As JSON has it, which is how everyone will read it."""
    return value if value is None or value is UNSET else decoder(object)(encode(value))


def _called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("the step raised StopIteration") from error  # a future would never end with it


def as_parts(says: Says) -> list[Part]:
    return [as_part(item) for item in says] if isinstance(says, list) else [as_part(says)]


def first_data(parts: list[Part]) -> Any:
    return next((part.data for part in parts if part.data is not UNSET), None)
