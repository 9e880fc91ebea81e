"""Carries out operations of 1.0 for requests of 0.3. The SDK's compatibility layer converts, our operations work.

What the layer gets wrong is corrected here; docs/a2a-0.3.md lists it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as old
from a2a.types import a2a_pb2 as pb
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from pydantic import BaseModel

from roost.doors.a2a_03.requests import EXACT
from roost.doors.admission import Call, OpenStream
from roost.doors.http import Headers
from roost.doors.operations import opening, unary
from roost.doors.protobuf import page_of, read, wire, write
from roost.doors.sse import EventForm
from roost.engine.responses import SendResult, TaskStream
from roost.engine.ring import StreamFrame
from roost.protocol.errors import A2AError, TaskNotFound, UnsupportedOperation
from roost.protocol.operations import BY_NAME, Operation

T = TypeVar("T")

_LIST_CONFIGS = BY_NAME["ListTaskPushNotificationConfigs"]
LISTED = 100
"""Tasks in a list. A2A 0.3 has no pages."""
LARGE = 8 * 1024
"""Bytes of input beyond which a conversion runs in a thread. A megabyte of small numbers takes seconds."""

_worker = ThreadPoolExecutor(1, "a2a-0.3")


async def offload(size: int, work: Callable[[], T]) -> T:
    """Run a conversion on the event loop if its input is small, otherwise in a thread, one at a time."""
    return work() if size <= LARGE else await asyncio.get_running_loop().run_in_executor(_worker, work)


class Conversion(NamedTuple):
    """Converts an operation's result to a value of 0.3."""

    message: type[Message]
    """The response of 1.0 as a protobuf message."""
    to_compat: Callable[[Any], Any]


def _task_or_message(response: pb.SendMessageResponse) -> old.Task | old.Message:
    if response.HasField("task"):
        return conversions.to_compat_task(response.task)
    return conversions.to_compat_message(response.message)


def _configs(response: pb.ListTaskPushNotificationConfigsResponse) -> list[old.TaskPushNotificationConfig]:
    return [conversions.to_compat_task_push_notification_config(config) for config in response.configs]


def compat_card(card: pb.AgentCard) -> old.AgentCard:
    """Convert a card of 1.0, without its signatures, which do not fit the card of 0.3. No task lists its states."""
    made = conversions.to_compat_agent_card(card)
    capabilities = made.capabilities.model_copy(update={"state_transition_history": False})
    return made.model_copy(update={"signatures": None, "protocol_version": "0.3.0", "capabilities": capabilities})


CONVERSIONS: dict[str, Conversion] = {
    "SendMessage": Conversion(pb.SendMessageResponse, _task_or_message),
    "GetTask": Conversion(pb.Task, conversions.to_compat_task),
    "CancelTask": Conversion(pb.Task, conversions.to_compat_task),
    "ListTasks": Conversion(
        pb.ListTasksResponse, lambda page: [conversions.to_compat_task(task) for task in page.tasks]
    ),
    "CreateTaskPushNotificationConfig": Conversion(
        pb.TaskPushNotificationConfig, conversions.to_compat_task_push_notification_config
    ),
    "GetTaskPushNotificationConfig": Conversion(
        pb.TaskPushNotificationConfig, conversions.to_compat_task_push_notification_config
    ),
    "ListTaskPushNotificationConfigs": Conversion(pb.ListTaskPushNotificationConfigsResponse, _configs),
    "DeleteTaskPushNotificationConfig": Conversion(Empty, lambda empty: None),
    "GetExtendedAgentCard": Conversion(pb.AgentCard, compat_card),
}


class CompatResult(NamedTuple):
    value: Any
    """The result in the form that the binding asked for."""
    replayed: bool


async def carry_out(call: Call, operation: Operation, core: Message, form: Callable[[Any], Any]) -> CompatResult:
    """Carry out a unary operation. `form` turns the value of 0.3 into what the binding sends."""
    if (
        isinstance(core, pb.ListTaskPushNotificationConfigsRequest)
        and operation.name == "GetTaskPushNotificationConfig"
    ):
        return await _first_config(call, core, form)
    request = await _request(operation, core)
    result = await unary(operation)(call, request)
    replayed = isinstance(result, SendResult) and result.replayed
    data = result.json() if isinstance(result, SendResult) else result
    conversion = CONVERSIONS[operation.name]
    encode = page_of if operation.name == "ListTasks" else lambda data: wire(conversion.message, data)

    def convert() -> Any:
        message = conversion.message()
        message.MergeFromString(_expressible(lambda: encode(data)))
        return form(conversion.to_compat(message))

    return CompatResult(await offload(len(data), convert), replayed)


async def _first_config(
    call: Call, core: pb.ListTaskPushNotificationConfigsRequest, form: Callable[[Any], Any]
) -> CompatResult:
    """Read the first webhook of a task: in 0.3 a request need not name one."""
    found: list[old.TaskPushNotificationConfig] = (
        await carry_out(call, _LIST_CONFIGS, core, lambda found: found)
    ).value
    if not found:
        raise TaskNotFound("The task has no webhook", metadata={"taskId": core.task_id})
    return CompatResult(form(found[0]), False)


async def open_stream(call: Call, operation: Operation, core: Message) -> TaskStream:
    return await opening(operation)(call, await _request(operation, core))


async def _request(operation: Operation, core: Message) -> Any:
    return await offload(core.ByteSize(), lambda: read(operation.request, core))


def _expressible(work: Callable[[], T]) -> T:
    try:
        return work()
    except UnsupportedOperation:
        raise UnsupportedOperation(
            "A2A 0.3 cannot express this: it is nested too deep, or has a number that is too large. A2A 1.0 can, over"
            " HTTP: send `A2A-Version: 1.0`"
        ) from None


# Streams


def event_of(data: bytes, *, ends_at_question: bool) -> Any:
    """Convert one event. A stream that a send began ends at a question, and its last event says so."""
    response = _expressible(lambda: write(pb.StreamResponse(), data))
    event = conversions.to_compat_stream_response(response).result
    if ends_at_question and isinstance(event, old.TaskStatusUpdateEvent):
        event.final = event.final or event.status.state == old.TaskState.input_required
    return event


async def events_of(
    stream: OpenStream, frames: list[StreamFrame], form: Callable[[Any], T], *, ends_at_question: bool
) -> list[T]:
    """Convert a batch of events. `form` turns an event of 0.3 into what the binding sends."""

    def convert() -> list[T]:
        return [form(event_of(frame.data, ends_at_question=ends_at_question)) for frame in frames]

    return await offload(sum(len(frame.data) for frame in frames), convert)


class OldForm(EventForm):
    """Server-sent events of 0.3. `form` encodes one event, `ending` an error that ends the stream."""

    headers: Headers = []
    is_escaped = False

    def __init__(self, operation: Operation, form: Callable[[Any], bytes], ending: Callable[[A2AError], bytes]) -> None:
        self.ends_at_question = not operation.resumes
        self.form = form
        self.ending = ending

    async def opening(self, stream: OpenStream) -> bytes:
        data = stream.opening.json()
        encoded = await offload(len(data), lambda: self.form(event_of(data, ends_at_question=self.ends_at_question)))
        return _event(stream.position, encoded)

    async def batch(self, stream: OpenStream, frames: list[StreamFrame]) -> bytes:
        encoded = await events_of(stream, frames, self.form, ends_at_question=self.ends_at_question)
        return b"".join(_event(frame.seq, data) for frame, data in zip(frames, encoded, strict=True))

    def is_done(self) -> bool:
        return False

    async def closing(self, stream: OpenStream) -> bytes:
        return b""

    def broken(self, error: A2AError) -> bytes:
        return self.ending(error)


def _event(seq: int | None, data: bytes) -> bytes:
    line = b"" if seq is None else b"id: %d\n" % seq
    return b"%bdata: %b\n\n" % (line, data)


# JSON


def plain(model: BaseModel) -> Any:
    return with_integers(model.model_dump(mode="json", by_alias=True, exclude_none=True))


def with_integers(value: Any) -> Any:
    """Restore integers, which a protobuf Struct turns into doubles. Above 2^53 a double may not have been one."""
    if isinstance(value, dict):
        return {key: with_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_integers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT else value
