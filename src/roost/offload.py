"""Worker processes for work that grows with a request, so that it does not hold the interpreter of the host.

    WorkerPool     in the host: one job per owner at a time, few at once, the rest wait in order
    main           in each worker process: runs one job after the other, until the host closes the connection

A thread would not do: it shares the interpreter lock, and one call into a C parser holds it to its end. The processes
are started when they are needed and end when they are idle: docs/adr/0027-large-requests.md.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from roost.protocol.errors import A2AError, InvalidParams, Unavailable

log = logging.getLogger("roost.offload")

PROCESSES = 2
"""The most worker processes of a host process."""
JOB_S = 30.0
"""Seconds that a job may take."""
IDLE_S = 5.0
"""Seconds after which an idle process ends."""
KEPT_BYTES = 96 * 1024 * 1024
"""A process that has grown beyond this ends after its job, which gives the memory back."""
NICENESS = 5
"""Makes way for the host's event loop."""

Argument = bytes | str | int | float | bool | None
Work = Callable[..., bytes]


class Job(Struct, array_like=True):
    module: str
    function: str
    args: list[Any]


class JobError(Struct, array_like=True):
    """An A2AError that a job raised."""

    module: str
    kind: str
    message: str
    field: str | None
    metadata: dict[str, str] | None


class JobReply(Struct, array_like=True):
    result: bytes = b""
    error: JobError | None = None
    traceback: str = ""
    """Why the job failed otherwise; empty if it did not."""
    is_last: bool = False
    """The process ends after this reply."""


class JobFailed(Exception):
    """A job failed by a fault of ours. The message is the traceback in the worker process."""


_encode = msgspec.msgpack.Encoder().encode
_decode_job = msgspec.msgpack.Decoder(Job).decode
_decode_reply = msgspec.msgpack.Decoder(JobReply).decode


class WorkerPool:
    def __init__(self, processes: int = PROCESSES) -> None:
        self._slots = asyncio.Semaphore(processes)
        self._turns: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        """The jobs of each owner that wait or run."""
        self._idle: list[_WorkerConnection] = []
        self._ending: set[asyncio.Future[int]] = set()
        """Waits for processes that end. A host that ends before them would be told of it after its event loop."""
        self._closed = False

    async def run(self, owner: str, work: Work, *args: Argument) -> bytes:
        """Call a function of a module of ours in a worker process. An A2AError that it raises is raised here."""
        async with self._turn(owner), self._slots:
            if self._closed:
                raise Unavailable("the host is shutting down", retry_after=1)
            reply = await self._call(_encode(Job(work.__module__, work.__name__, list(args))))
        if reply.error is not None:
            raise _raised(reply.error)
        if reply.traceback:
            raise JobFailed(reply.traceback)
        return reply.result

    async def close(self) -> None:
        """End the idle processes, and wait until they and those that ended before are gone."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        if self._ending:
            await asyncio.wait([*self._ending])

    @asynccontextmanager
    async def _turn(self, owner: str) -> AsyncIterator[None]:
        """Wait until no other job of the owner runs. Those who wait are requests and streams, which have limits."""
        self._waiting[owner] += 1
        turn = self._turns.setdefault(owner, asyncio.Lock())
        try:
            async with turn:
                yield
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner], self._turns[owner]

    async def _call(self, job: bytes) -> JobReply:
        try:
            connection = self._idle.pop() if self._idle else await _WorkerConnection.open(self._ending)
        except OSError as error:
            raise Unavailable(f"no process can be started for a large request: {error}", retry_after=1) from None
        connection.is_used()
        try:
            async with asyncio.timeout(JOB_S):
                reply = _decode_reply(await connection.call(job))
        except TimeoutError:
            connection.kill()
            raise InvalidParams(f"the request takes longer than {JOB_S:g} s to convert", field="body") from None
        except (OSError, EOFError):
            connection.kill()
            raise Unavailable("the process that converts large requests ended; try again", retry_after=1) from None
        except BaseException:
            connection.kill()  # its caller has left, and the rest of the work is for nobody
            raise
        if reply.is_last or self._closed:
            connection.close()
        else:
            self._idle.append(connection)
            connection.retire_after(IDLE_S, self._idle)
        return reply


class _WorkerConnection:
    """The host's end of one worker process."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        ending: set[asyncio.Future[int]],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._ending = ending
        self._reader = reader
        self._writer = writer
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, ending: set[asyncio.Future[int]]) -> _WorkerConnection:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220, S603  # takes a millisecond; our own module and arguments
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        return cls(process, ending, *await asyncio.open_connection(sock=ours))

    async def call(self, job: bytes) -> bytes:
        self._writer.write(len(job).to_bytes(4, "big"))
        self._writer.write(job)
        await self._writer.drain()
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    def is_used(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def retire_after(self, seconds: float, idle: list[_WorkerConnection]) -> None:
        def retire() -> None:
            idle.remove(self)
            self.close()

        self._timer = asyncio.get_running_loop().call_later(seconds, retire)

    def close(self) -> None:
        """Let the process end, which it does when its connection closes."""
        self.is_used()
        self._writer.close()
        self._reap()

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def _reap(self) -> None:
        ending = asyncio.get_running_loop().run_in_executor(None, self._process.wait)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _raised(error: JobError) -> A2AError:
    kind: type[A2AError] = getattr(importlib.import_module(error.module), error.kind)
    return kind(error.message, field=error.field, metadata=error.metadata)


# In the worker process


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both; the host decides when to end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(NICENESS)
    gc.disable()  # a job leaves little behind, and a process that has grown ends
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rb") as jobs, suppress(ConnectionError):
        while len(size := jobs.read(4)) == 4:
            reply = _run(jobs.read(int.from_bytes(size, "big")))
            reply.is_last = _resident_bytes() > KEPT_BYTES
            data = _encode(reply)
            connection.sendall(len(data).to_bytes(4, "big"))
            connection.sendall(data)
            if reply.is_last:
                return


def _run(data: bytes) -> JobReply:
    job = _decode_job(data)
    try:
        work: Work = getattr(importlib.import_module(job.module), job.function)
        return JobReply(work(*job.args))
    except A2AError as error:
        kind: Any = type(error)
        return JobReply(error=JobError(kind.__module__, kind.__name__, error.message, error.field, error.metadata))
    except Exception:
        return JobReply(traceback=traceback.format_exc())


def _resident_bytes() -> int:
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:  # not Linux; the process ends when it is idle
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main(int(sys.argv[1]))
