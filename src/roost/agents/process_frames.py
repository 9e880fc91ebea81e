"""What a host and an agent's own process say to each other: length-prefixed msgpack on a socket pair."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from roost.protocol.entries import Received
from roost.protocol.types import Artifact, JSONObject, Message, TaskState

T = TypeVar("T")

MAX_FRAME = 64 * 1024 * 1024


class Start(Struct):
    """Host to process: what to run."""

    file: str
    agent: str
    tenant: str
    owner: str
    task_id: str
    context_id: str
    received: list[Received]
    join_s: float


class ProcessFrame(Struct, array_like=True):
    """Process to host: an operation of Run, with its arguments. Host to process: its answer."""

    op: str
    body: Raw = Raw(b"\xc0")


class StatusFrame(Struct):
    state: TaskState
    message: Message | None
    metadata: JSONObject | None


class ArtifactFrame(Struct):
    artifact: Artifact
    append: bool
    last_chunk: bool
    metadata: JSONObject | None


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
    """The next frame, None at the end."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > MAX_FRAME:
            raise ValueError(f"a frame of {size} bytes is too large")
        return msgspec.msgpack.decode(await reader.readexactly(size), type=ProcessFrame)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
