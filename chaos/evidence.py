"""Writes a file for each task with a violation, with everything that clients saw of the task."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from chaos.checker import Violation
from chaos.history import Frame, History

MAX_FILES = 50


def write(folder: Path, history: History, violations: Sequence[Violation]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "clock").write_text(f"{time.monotonic():.3f} is {datetime.now(UTC)}\n")
    tasks = dict.fromkeys(violation.task_id for violation in violations if violation.task_id)
    for task_id in list(tasks)[:MAX_FILES]:
        found = [f"{kind}: {text}" for kind, subject, text in violations if subject == task_id]
        (folder / f"{task_id}.txt").write_text("\n".join([*found, "", *_history_of(history, task_id)]) + "\n")


def _history_of(history: History, task_id: str) -> Iterator[str]:
    for acknowledged in history.acknowledged:
        if acknowledged.task_id == task_id:
            yield f"{acknowledged} {history.sent.get(acknowledged.message_id)}"
    for stream in history.streams:
        if stream.task_id == task_id:
            yield "a stream:"
            for seen in stream.seen:
                at = f"{seen.at:.3f} {seen.data.decode()}" if isinstance(seen, Frame) else f"Task {seen.task.decode()}"
                yield f"  {seen.seq} {at}"
    for reading in history.readings:
        if reading.task_id == task_id:
            yield str(reading)
    for cancel in history.cancels:
        if cancel.task_id == task_id:
            yield str(cancel)
    for request in history.requests:
        if task_id in request.url:
            yield f"{request.begun:.3f} to {request.ended:.3f} {request.url}: {request.answer}"
    messages = {acknowledged.message_id for acknowledged in history.acknowledged if acknowledged.task_id == task_id}
    for delivery in history.deliveries:
        if delivery.message_id in messages:
            yield f"webhook {delivery.id} {'accepted' if delivery.accepted else 'refused'} {delivery.data.decode()}"
    for line in history.steps:
        if task_id in line:
            yield f"step {line}"
    final = history.finals.get(task_id)
    if final is not None:
        yield f"at the end {final.task}"
        yield from (f"  {frame.seq} {frame.data.decode()}" for frame in final.frames)
