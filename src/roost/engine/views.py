"""A Task as bytes: split for the snapshot, spliced and trimmed for the reader."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from roost.engine.store_types import Snapshot
from roost.protocol.codec import decoder, encode
from roost.protocol.raw import read_folded
from roost.protocol.types import Task, TaskState


class _Body(Struct, rename="camel", omit_defaults=True):
    """A snapshot's body, taken apart no further than a reader needs."""

    id: str
    status: Raw
    context_id: str = ""
    history: list[Raw] = []
    metadata: Raw | UnsetType = UNSET


_body = decoder(_Body)


def split(task: Task) -> tuple[bytes, bytes]:
    """(the task without artifacts, the array of artifacts)"""
    artifacts = task.artifacts
    task.artifacts = []
    try:
        return encode(task), encode(artifacts)
    finally:
        task.artifacts = artifacts


def splice(body: bytes, artifacts: bytes) -> bytes:
    return body if artifacts == b"[]" else b'%b,"artifacts":%b}' % (body[:-1], artifacts)


def trim_body(body: bytes, history_length: int | None) -> bytes:
    if history_length is None:
        return body
    found = _body(body)
    if len(found.history) <= history_length:
        return body
    found.history = found.history[len(found.history) - history_length :]
    return encode(found)


def trim_task(task: bytes, history_length: int) -> bytes:
    """A whole task's bytes with no more history than asked for."""
    found = read_folded(task)
    return task_bytes(found, history_length)


def snapshot_bytes(snapshot: Snapshot, history_length: int | None, *, artifacts: bool = True) -> bytes:
    body = trim_body(snapshot.body, history_length)
    return splice(body, snapshot.artifacts) if artifacts else body


def task_bytes(task: Task, history_length: int | None = None) -> bytes:
    if history_length is None or len(task.history) <= history_length:
        return encode(task)
    history: list[Any] = task.history
    task.history = history[len(history) - history_length :]
    try:
        return encode(task)
    finally:
        task.history = history


def state_word(state: TaskState | None) -> str:
    """The state as messages to people name it."""
    return str(state).removeprefix("TASK_STATE_")
