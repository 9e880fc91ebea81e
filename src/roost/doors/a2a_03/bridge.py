"""Carries out operations of 1.0 for requests of 0.3. The SDK's compatibility layer converts, our operations work.

What the layer gets wrong is corrected here; docs/a2a-0.3.md lists it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as old
from a2a.types import a2a_pb2 as pb
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from msgspec import Raw, Struct
from pydantic import BaseModel

from roost.doors.a2a_03.requests import EXACT
from roost.doors.admission import Call, OpenStream
from roost.doors.http import Headers
from roost.doors.large import prepare
from roost.doors.operations import opening, unary
from roost.doors.protobuf import page_of, read, wire, write
from roost.doors.sse import EventForm
from roost.engine.responses import SendResult, TaskStream
from roost.engine.ring import StreamFrame
from roost.protocol.codec import decoder
from roost.protocol.cost import separators_in
from roost.protocol.errors import A2AError, TaskNotFound, UnsupportedOperation
from roost.protocol.operations import BY_NAME, Operation
from roost.protocol.types import ListTaskPushNotificationConfigsRequest, SendMessageRequest

T = TypeVar("T")

_LIST_CONFIGS = BY_NAME["ListTaskPushNotificationConfigs"]
LISTED = 100
"""Tasks in a list. A2A 0.3 has no pages."""
SMALL_BYTES = 256 * 1024
SMALL_VALUES = 500
"""The most bytes and values that are converted on the event loop. A value takes the layer about 20 us."""
PAUSE_EVERY = 20
"""Events after which others have a turn."""

Form = Callable[[Any], bytes]
"""Writes a value of 0.3 as a binding sends it."""


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


def request_of(operation: Operation, core: Message) -> Any:
    """Convert a message of 1.0 into the request of our operations."""
    kind = operation.request
    if isinstance(core, pb.ListTaskPushNotificationConfigsRequest):  # in 0.3 a request need not name a config
        kind = ListTaskPushNotificationConfigsRequest
    return read(kind, core)


def prepare_core(core: Message, *limits: int) -> bytes:
    """Make a PreparedRequest of a large message. Runs in a worker process."""
    return prepare(read(SendMessageRequest, core), *limits)


async def carry_out(
    call: Call, operation: Operation, request: Any, write: Callable[[str, bytes], bytes]
) -> tuple[bytes, bool]:
    """Carry out a unary operation. Return the written result, and whether the message was a repeated one.

    `write` is the binding's function of a module, which takes the operation's name and our result.
    """
    is_first = operation.name == "GetTaskPushNotificationConfig" and isinstance(
        request, ListTaskPushNotificationConfigsRequest
    )
    result = await unary(_LIST_CONFIGS if is_first else operation)(call, request)
    replayed = isinstance(result, SendResult) and result.replayed
    data = result.json() if isinstance(result, SendResult) else result
    if is_first:
        data = _first_config(request.task_id, data)
    return await _converted(call, data, write, operation.name, data), replayed


def result_of(operation: str, data: bytes, form: Form) -> bytes:
    """Convert a result of ours, and write it in the form of a binding."""
    conversion = CONVERSIONS[operation]
    message = conversion.message()
    encode = page_of if operation == "ListTasks" else lambda data: wire(conversion.message, data)
    message.MergeFromString(_expressible(lambda: encode(data)))
    return form(conversion.to_compat(message))


async def _converted(call: Call, data: bytes, work: Callable[..., bytes], *args: bytes | str | bool) -> bytes:
    """Convert what is small here, and the rest in a worker process."""
    if is_small(data):
        return work(*args)
    return await call.context.requests.workers.run(call.principal.name, work, *args)


class _Configs(Struct):
    configs: list[Raw] = []


_configs_in = decoder(_Configs)


def _first_config(task_id: str, data: bytes) -> bytes:
    found = _configs_in(data).configs
    if not found:
        raise TaskNotFound("The task has no webhook", metadata={"taskId": task_id})
    return bytes(found[0])


async def open_stream(call: Call, operation: Operation, request: Any) -> TaskStream:
    return await opening(operation)(call, request)


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


def written_events(data: bytes, ends_at_question: bool, form: Form) -> bytes:
    """Convert a list of events, and write each in the form of a binding. Both lists are msgpack."""
    events = msgspec.msgpack.decode(data, type=list[bytes])
    return msgspec.msgpack.encode([form(event_of(event, ends_at_question=ends_at_question)) for event in events])


async def events_of(
    call: Call, operation: Operation, events: list[bytes], write: Callable[[bytes, bool], bytes]
) -> list[bytes]:
    """Convert a batch of events. `write` is the binding's function of a module, on `written_events`."""
    written: list[bytes] = []
    for number, event in enumerate(events, 1):
        one = await _converted(call, event, write, msgspec.msgpack.encode([event]), not operation.resumes)
        written += msgspec.msgpack.decode(one, type=list[bytes])
        if number % PAUSE_EVERY == 0:
            await asyncio.sleep(0)
    return written


def is_small(data: bytes) -> bool:
    """Say whether a conversion takes at most milliseconds."""
    return len(data) <= SMALL_BYTES and separators_in(data) <= SMALL_VALUES


class OldForm(EventForm):
    """Server-sent events of 0.3. `write` converts events, `ending` writes an error that ends the stream.

    prefix, suffix: the envelope of each event.
    """

    headers: Headers = []
    is_escaped = False

    def __init__(
        self,
        call: Call,
        operation: Operation,
        write: Callable[[bytes, bool], bytes],
        ending: Callable[[A2AError], bytes],
        prefix: bytes = b"",
        suffix: bytes = b"",
    ) -> None:
        self.call = call
        self.operation = operation
        self.write = write
        self.ending = ending
        self.prefix = prefix
        self.suffix = suffix

    async def opening(self, stream: OpenStream) -> bytes:
        written = await events_of(self.call, self.operation, [stream.opening.json()], self.write)
        return self._event(stream.position, written[0])

    async def batch(self, stream: OpenStream, frames: list[StreamFrame]) -> bytes:
        written = await events_of(self.call, self.operation, [frame.data for frame in frames], self.write)
        return b"".join(self._event(frame.seq, data) for frame, data in zip(frames, written, strict=True))

    def _event(self, seq: int | None, data: bytes) -> bytes:
        line = b"" if seq is None else b"id: %d\n" % seq
        return b"%bdata: %b%b%b\n\n" % (line, self.prefix, data, self.suffix)

    def is_done(self) -> bool:
        return False

    async def closing(self, stream: OpenStream) -> bytes:
        return b""

    def broken(self, error: A2AError) -> bytes:
        return self.ending(error)


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
