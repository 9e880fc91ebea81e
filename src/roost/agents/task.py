"""`AgentTask`: the `task` that an agent's function is called with."""

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
from roost.engine.media_types import accepts
from roost.engine.turn import OUTPUT, Turn, Unwind
from roost.protocol.codec import decoder, encode
from roost.protocol.entries import Received
from roost.protocol.types import Artifact, JSONObject, Message, Part, TaskState

T = TypeVar("T")

Content = str | Part | list[Part] | dict[str, Any]
"""The values that a message can be made from: text, a part, a list of parts, or data."""

_step_key: ContextVar[str] = ContextVar("step_key")


class Answer(Struct):
    """A client's answer to a question."""

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
    """Returned by emissions. Awaiting it waits while too much of the task is uncommitted, as `yield` does."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def __await__(self) -> Generator[Any, None, None]:
        return self.turn.pace().__await__()


class AgentTask:
    """The task that an agent's function works on.

    The message is the one that began the task, on every re-run. Answers come from `ask` only.
    """

    def __init__(self, turn: Turn, join_s: float) -> None:
        self._turn = turn
        self._join_s = join_s
        self._given: Received = turn.messages[0]

    @cached_property
    def _received(self) -> Received:
        """A copy for the function, whose changes to its message must not reach the task's history."""
        return _decoded(self._given)

    @property
    def id(self) -> str:
        return self._turn.task_id

    @property
    def context_id(self) -> str:
        return self._turn.context_id

    @property
    def caller(self) -> str:
        """The principal that the task belongs to, as issuer:subject; `*` where tasks belong to the whole tenant."""
        return self._turn.caller

    @property
    def tenant(self) -> str:
        return self._turn.tenant

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
        """The metadata of the request; the message has metadata of its own."""
        return self._received.metadata or {}

    @property
    def extensions(self) -> list[str]:
        """The URIs of the extensions that the client activated."""
        return list(self._given.extensions)

    def accepts(self, media_type: str) -> bool:
        """True if the client accepts this media type, or has named none."""
        return accepts(self._given.accepted_output_modes, media_type)

    @property
    def step_key(self) -> str:
        """A key that is the same on every try of a step, for the services that the step calls.

        It has a value only inside the function that `step` calls.
        """
        try:
            return _step_key.get()
        except LookupError:
            raise RuntimeError("task.step_key has a value only inside the function that task.step calls") from None

    def status(self, says: Content) -> Paced:
        """Tell the client about progress, with a WORKING status that has this message."""
        self._turn.status(TaskState.WORKING, self._turn.message(as_parts(says)))
        return Paced(self._turn)

    def emit(self, value: Any) -> Paced:
        """Emit a value, as `yield value` does. A function that emits much should await the call."""
        emit(self._turn, value, self._join_s)
        return Paced(self._turn)

    async def ask(self, says: Content, *, auth: bool = False) -> Answer:
        """Ask the client a question and return the answer, however long it takes.

        The function is unwound here, and called again from the top when the answer has come.
        With auth=True the task is AUTH_REQUIRED instead of INPUT_REQUIRED.
        """
        state = TaskState.AUTH_REQUIRED if auth else TaskState.INPUT_REQUIRED
        received = await self._turn.ask(state, self._turn.message(as_parts(says)))
        received = _decoded(received)
        return Answer(received.message, received.metadata)

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call fn once and record its result as JSON. A re-run gets the result from the journal."""

        async def work(key: str) -> Any:
            token = _step_key.set(key)
            try:
                if inspect.iscoroutinefunction(fn):
                    return await fn(*args, **kwargs)
                result = await asyncio.to_thread(_called, fn, *args, **kwargs)
                return await result if inspect.isawaitable(result) else result
            finally:
                _step_key.reset(token)

        return await steps.run(self._turn, name, work)

    def reply(self, says: Content) -> None:
        """Answer with a message and no task, if the agent is an Agent(direct=True), and return from the function.

        After another emission, a second or a crash the exchange is a task, which ends COMPLETED with the message.
        """
        self._turn.reply(self._turn.message(as_parts(says)))
        raise Unwind

    def done(self, says: Content) -> None:
        """End the task COMPLETED with a message, and return from the function."""
        self._end(TaskState.COMPLETED, says)

    def fail(self, says: Content) -> None:
        """End the task FAILED with a message for the client, and return from the function."""
        self._end(TaskState.FAILED, says)

    def reject(self, says: Content) -> None:
        """End the task REJECTED with a message, and return from the function: the agent does not do such work."""
        self._end(TaskState.REJECTED, says)

    def _end(self, state: TaskState, content: Content) -> None:
        self._turn.status(state, self._turn.message(as_parts(content)))
        raise Unwind


class ThreadTask(AgentTask):
    """The task of a function in a thread. Its calls block, and leave the function once the turn has to stop."""

    def __init__(self, turn: Turn, join_s: float, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(turn, join_s)
        self._loop = loop
        self._stopped = False

    def stop(self) -> None:
        """Make the next call leave the function."""
        self._stopped = True

    def status(self, says: Content) -> None:  # type: ignore[override]  # has waited when it returns
        self._do(self._paced(lambda: AgentTask.status(self, says)))

    def emit(self, value: Any) -> None:  # type: ignore[override]  # has waited when it returns
        self._do(self._paced(lambda: emit(self._turn, value, self._join_s)))

    def ask(self, says: Content, *, auth: bool = False) -> Answer:  # type: ignore[override]  # blocks instead
        return self._do(super().ask(says, auth=auth))

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call fn in this thread; the journal is read and written on the event loop."""
        step = self._do(self._turn.begin_step(name))
        if step.record is not None:
            return steps.outcome(step.record)
        token = _step_key.set(step.key)
        try:
            record = steps.succeeded(name, step.occurrence, fn(*args, **kwargs))
        except Exception as error:
            self._do(self._turn.end_step(steps.failed(name, step.occurrence, error)))
            raise
        finally:
            _step_key.reset(token)
        self._do(self._turn.end_step(record))
        return record.result

    def reply(self, says: Content) -> None:
        async def reply() -> None:
            AgentTask.reply(self, says)

        self._do(reply())

    def _end(self, state: TaskState, content: Content) -> None:
        async def end() -> None:
            super(ThreadTask, self)._end(state, content)

        self._do(end())

    async def _paced(self, emit: Callable[[], object]) -> None:
        emit()
        await self._turn.pace()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._stopped or self._turn.cancelled or self._turn.closed:
            work.close()
            raise Unwind
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def emit(turn: Turn, value: Any, join_s: float) -> None:
    """Emit what an agent's function has yielded or returned."""
    if isinstance(value, str):
        if value:
            turn.text(value, join_s)
    elif isinstance(value, Artifact):
        parts = [as_part(part) for part in value.parts]
        turn.artifact(replace(value, parts=parts, metadata=_copied(value.metadata)), append=False)
    elif value is not None:
        turn.artifact(Artifact(artifact_id=OUTPUT, parts=[as_part(value)]), append=True)


def as_part(value: Any) -> Part:
    """Make a part from a copy of the value, which the function may change later."""
    if isinstance(value, Part):
        return replace(value, data=_copied(value.data), metadata=_copied(value.metadata))
    if isinstance(value, str):
        return Part(text=value)
    if isinstance(value, (bytes, bytearray)):
        return Part(raw=bytes(value), media_type="application/octet-stream")
    return Part(data=_copied(value))


def _decoded(received: Received) -> Received:
    """Return a copy in which the data of parts is decoded, however large it is."""
    return decoder(Received)(encode(received))


def _copied(value: Any) -> Any:
    """Return the value as JSON gives it back, which is what clients will read."""
    return value if value is None or value is UNSET else decoder(object)(encode(value))


def _called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("the step raised StopIteration") from error  # which a future cannot carry


def as_parts(content: Content) -> list[Part]:
    return [as_part(item) for item in content] if isinstance(content, list) else [as_part(content)]


def first_data(parts: list[Part]) -> Any:
    return next((part.data for part in parts if part.data is not UNSET), None)
