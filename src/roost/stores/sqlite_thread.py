"""Carries the writer in a thread: for a host inside another program, and for tests."""

from __future__ import annotations

import asyncio
import queue
import threading
from pathlib import Path
from typing import Any

from roost.stores.sqlite_writer import SQLiteWriter

Job = tuple[str, tuple[Any, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class ThreadCarrier:
    def __init__(self, path: Path, lock: int) -> None:
        self.writer = SQLiteWriter(path)
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="sqlite-writer", daemon=True)
        self.thread.start()

    async def do(self, operation: str, *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.jobs.put((operation, args, loop, future))
        return await future

    async def close(self) -> None:
        self.jobs.put(None)
        self.thread.join()
        self.writer.close()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            operation, args, loop, future = job
            result: Any = None
            failure: Exception | None = None
            try:
                result = self.writer.do(operation, *args)
            except Exception as error:
                failure = error
            try:
                loop.call_soon_threadsafe(_settle, future, result, failure)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more


def _settle(future: asyncio.Future[Any], result: Any, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
