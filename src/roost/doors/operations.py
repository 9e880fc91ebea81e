"""The operations of A2A on protobuf: a request's message in, one Engine call, the bytes of the answer's message out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from a2a.types import a2a_pb2 as pb
from google.protobuf.message import Message

from roost.doors.context import Context
from roost.doors.protobuf import fitting, read, wire, within, written
from roost.doors.rest import same_agent
from roost.engine import push_configs
from roost.engine.follower import Follower
from roost.engine.live import LiveTask, StreamFrame
from roost.engine.responses import TaskStream
from roost.protocol.errors import Unauthenticated, Unavailable, UnsupportedOperation
from roost.protocol.states import TERMINAL
from roost.protocol.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)

if TYPE_CHECKING:
    from roost.doors.sdk import SdkCall

T = TypeVar("T")
R = TypeVar("R")


class Operations:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.engine = context.engine

    async def send(self, call: SdkCall, params: pb.SendMessageRequest) -> bytes:
        request = await self._read(call, SendMessageRequest, params)
        answer = await self.engine.send(call.principal, call.agent, request, call.head.extensions)
        call.replayed = answer.replayed
        if answer.task is not None:
            return within(pb.SendMessageResponse, "task", await self._write(pb.Task, answer.task))
        return within(pb.SendMessageResponse, "message", await self._write(pb.Message, answer.message or b"{}"))

    async def get(self, call: SdkCall, params: pb.GetTaskRequest) -> bytes:
        request = _request(call, GetTaskRequest, params)
        return await self._write(pb.Task, await self.engine.get(call.principal, call.agent, request))

    async def list_tasks(self, call: SdkCall, params: pb.ListTasksRequest) -> bytes:
        request = _request(call, ListTasksRequest, params)
        return page_of(await self.engine.list_tasks(call.principal, call.agent, request))

    async def cancel(self, call: SdkCall, params: pb.CancelTaskRequest) -> bytes:
        request = await self._read(call, CancelTaskRequest, params)
        return await self._write(pb.Task, await self.engine.cancel(call.principal, call.agent, request))

    async def create_config(self, call: SdkCall, params: pb.TaskPushNotificationConfig) -> bytes:
        found = await self._push(call, TaskPushNotificationConfig, params, push_configs.create)
        return wire(pb.TaskPushNotificationConfig, found)

    async def get_config(self, call: SdkCall, params: pb.GetTaskPushNotificationConfigRequest) -> bytes:
        found = await self._push(call, GetTaskPushNotificationConfigRequest, params, push_configs.get)
        return wire(pb.TaskPushNotificationConfig, found)

    async def list_configs(self, call: SdkCall, params: pb.ListTaskPushNotificationConfigsRequest) -> bytes:
        found = await self._push(call, ListTaskPushNotificationConfigsRequest, params, push_configs.list_configs)
        return wire(pb.ListTaskPushNotificationConfigsResponse, found)

    async def delete_config(self, call: SdkCall, params: pb.DeleteTaskPushNotificationConfigRequest) -> bytes:
        await self._push(call, DeleteTaskPushNotificationConfigRequest, params, push_configs.delete)
        return b""

    async def extended_card(self, call: SdkCall, params: pb.GetExtendedAgentCardRequest) -> bytes:
        same_agent(call.agent, params.tenant)
        return wire(pb.AgentCard, await self.context.cards.extended(call.base, call.agent, call.principal))

    def send_streaming(self, call: SdkCall, params: pb.SendMessageRequest) -> AsyncGenerator[bytes]:
        return self._follow(call, self._sent(call, params))

    def subscribe(self, call: SdkCall, params: pb.SubscribeToTaskRequest) -> AsyncGenerator[bytes]:
        request = _request(call, SubscribeToTaskRequest, params)
        return self._follow(call, self.engine.subscribe(call.principal, call.agent, request, call.last_event_id))

    async def _sent(self, call: SdkCall, params: pb.SendMessageRequest) -> TaskStream:
        request = await self._read(call, SendMessageRequest, params)
        return await self.engine.stream(call.principal, call.agent, request, call.head.extensions)

    async def _follow(self, call: SdkCall, opened: Awaitable[TaskStream]) -> AsyncGenerator[bytes]:
        """The opening, then what the follower brings while the caller's credential holds."""
        stream = await opened
        opening, follower, access = stream.opening, stream.follower, self.context.access
        call.replayed = opening.replayed
        try:
            if follower is not None:
                call.position = follower.position
                access.watch(follower, call.principal)
            if opening.task is not None:
                yield within(pb.StreamResponse, "task", await self._write(pb.Task, opening.task))
            else:
                yield within(pb.StreamResponse, "message", await self._write(pb.Message, opening.message or b"{}"))
            if follower is None:
                return
            while (frames := await follower.batch()) is not None:
                for response in await self._responses(follower.live, frames):
                    yield response
            _check_end(follower)
        finally:
            if follower is not None:
                access.unwatch(follower)
                self.engine.release(follower)

    # What takes long where there is much of it: A2A 0.3 does it beside the loop

    async def _read(self, call: SdkCall, kind: type[T], params: Message) -> T:
        return _request(call, kind, params)

    async def _write(self, kind: type[Message], data: bytes) -> bytes:
        return wire(kind, data)

    async def _responses(self, live: LiveTask, frames: list[StreamFrame]) -> list[bytes]:
        return shared_responses(live, frames)

    async def _push(self, call: SdkCall, kind: type[T], params: Message, operation: Callable[..., Awaitable[R]]) -> R:
        return await operation(self.engine, call.principal, call.agent, _request(call, kind, params))


def _request(call: SdkCall, kind: type[T], params: Message) -> T:
    same_agent(call.agent, params.tenant)  # type: ignore[attr-defined]  # every request of A2A has one
    return read(kind, params)


def page_of(data: bytes) -> bytes:
    """Of tasks. Of one that cannot be said in protobuf there is what can: it keeps no others from being listed."""
    page = msgspec.json.decode(data)
    try:
        return written(pb.ListTasksResponse, page)
    except UnsupportedOperation:
        tasks = [{**fitting(pb.Task, task), "status": fitting(pb.TaskStatus, task["status"])} for task in page["tasks"]]
        return written(pb.ListTasksResponse, {**page, "tasks": tasks})


def _check_end(follower: Follower) -> None:
    """Raise if the stream ends before its task does."""
    live = follower.live
    if follower.over or (live.state in TERMINAL and follower.position >= live.seq):
        return
    where = {"lastEventId": str(follower.position)}
    if not follower.open:
        raise Unauthenticated("the credential that opened this stream has ended", metadata=where)
    raise Unavailable("the host is shutting down; subscribe to the task to go on", metadata=where, retry_after=1)


_responses: WeakKeyDictionary[LiveTask, tuple[int, int, list[bytes]]] = WeakKeyDictionary()
"""The last ones of each task: a thousand readers at one place of a stream are given the same."""


def shared_responses(live: LiveTask, frames: list[StreamFrame]) -> list[bytes]:
    if not frames:
        return []
    first, last = frames[0].seq, frames[-1].seq
    found = _responses.get(live)
    if found is None or found[:2] != (first, last):
        found = _responses[live] = (first, last, [wire(pb.StreamResponse, frame.data) for frame in frames])
    return found[2]
