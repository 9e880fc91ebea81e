"""Conversions of much, beside the loop and one at a time, so that others are served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from a2a.types import a2a_pb2 as pb
from google.protobuf.message import Message

from roost.doors.operations import Operations, page_of, shared_responses
from roost.doors.protobuf import read, wire
from roost.doors.sdk import SdkCall
from roost.engine.live import LiveTask, StreamFrame
from roost.protocol.errors import UnsupportedOperation
from roost.protocol.types import ListTasksRequest

T = TypeVar("T")

MUCH = 8 * 1024
"""Bytes. A megabyte of small numbers takes seconds."""

_worker = ThreadPoolExecutor(1, "a2a-0.3")


async def beside(size: int, work: Callable[[], T]) -> T:
    return work() if size <= MUCH else await asyncio.get_running_loop().run_in_executor(_worker, work)


class OldOperations(Operations):
    async def list_tasks(self, call: SdkCall, params: pb.ListTasksRequest) -> bytes:
        request = read(ListTasksRequest, params)
        page = await self.engine.list_tasks(call.principal, call.agent, request)
        return await beside(len(page), lambda: page_of(page))

    async def _read(self, call: SdkCall, kind: type[T], params: Message) -> T:
        return await beside(params.ByteSize(), lambda: read(kind, params))

    async def _write(self, kind: type[Message], data: bytes) -> bytes:
        return await beside(len(data), lambda: _said(lambda: wire(kind, data)))

    async def _responses(self, live: LiveTask, frames: list[StreamFrame]) -> list[bytes]:
        size = sum(len(frame.data) for frame in frames)
        return await beside(size, lambda: _said(lambda: shared_responses(live, frames)))


def _said(work: Callable[[], T]) -> T:
    try:
        return work()
    except UnsupportedOperation:
        raise UnsupportedOperation(
            "This cannot be said in A2A 0.3: it is nested too deep, or has a number that is too large. A2A 1.0 can say"
            " it, over HTTP: send `A2A-Version: 1.0`"
        ) from None
