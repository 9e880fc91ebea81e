"""The frames between a host and an agent's own process: length-prefixed msgpack on a socket pair.

The host sends `start`. The process sends the calls of `Turn`, each as a frame that is named after the method, and
`end` or `error` last. The host sends an `answer` for each call that returns something or waits, in order.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from roost.extensions.data import TokenUsage
from roost.protocol.types import Artifact, JSONObject, Message, TaskState

T = TypeVar("T")

MAX_FRAME = 64 * 1024 * 1024
"""The largest frame in bytes."""


class Start(Struct):
    """The function to run, and the facts of the turn."""

    file: str
    agent_id: str
    tenant: str
    caller: str
    task_id: str
    context_id: str
    messages: list[bytes]
    """Received messages as JSON, whose data may be large."""
    rerun: bool


class ProcessFrame(Struct, array_like=True):
    op: str
    body: Raw = Raw(b"\xc0")
    """The arguments or the result as msgpack; nil for none."""


class JoinedFrame(Struct):
    piece: str
    join_s: float


class StatusFrame(Struct):
    state: TaskState
    message: Message | None
    metadata: JSONObject | None


class ArtifactFrame(Struct):
    artifact: Artifact
    append: bool
    last_chunk: bool
    metadata: JSONObject | None


class UsageFrame(Struct):
    tokens: TokenUsage
    cost_usd: float | None


class AskFrame(Struct):
    state: TaskState
    question: Message


encode = msgspec.msgpack.Encoder().encode


def pack(op: str, body: Any = None) -> bytes:
    data = encode(ProcessFrame(op, Raw(encode(body))))
    return len(data).to_bytes(4, "big") + data


def unpack(kind: type[T], frame: ProcessFrame) -> T:
    return msgspec.msgpack.decode(frame.body, type=kind)


async def receive(reader: asyncio.StreamReader) -> ProcessFrame | None:
    """Read the next frame; None when the other side has closed the connection."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes is too large")
        return msgspec.msgpack.decode(await reader.readexactly(size), type=ProcessFrame)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
