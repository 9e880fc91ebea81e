"""Measures how long a host's routes wait, from a process of its own that does nothing else.

    python -m benchmarks.hostile.probe JOB    (the job as JSON)

It asks one question after the other on kept-alive connections. A line on stdin is a mark: when every probe has answered
once more, it writes what it measured since the last mark as a line of JSON.

Machines are shared, so that a wait has several figures: by the clock; without the time in which the kernel ran
something else although the event loop of the host, or this process, was ready to run (the run delay in
/proc/PID/schedstat); and the CPU time that the thread of the event loop used meanwhile, or all threads of its process
("busy").
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec
import uvloop
from a2a.types import a2a_pb2 as pb
from msgspec import Struct, field

from benchmarks.grpc_load import SERVICE, header_block
from benchmarks.hostile.grpc_connection import GrpcConnection
from benchmarks.servers import cpu_clock
from benchmarks.stats import quantile
from benchmarks.wire import Connection, message_id

LONG_MS = 50.0
"""A wait that is reported by itself."""
MOST_LONG = 100
RECONNECT_S = 0.2
ANSWER_S = 180.0
PIECES, PIECES_PER_S = 600, 10


class ProbeJob(Struct):
    port: int
    grpc_port: int
    """0 for a host without gRPC."""
    pid: int
    """The process whose main thread runs the event loop."""
    writer: int
    """The process that writes the journal; 0 if there is none."""
    probes: dict[str, float]
    """The names of the probes, each with its pause in seconds."""
    task_id: str = ""
    token: str = ""


class Wait(Struct):
    at: float
    """When it began, on the monotonic clock."""
    wall_ms: float
    own_ms: float
    cpu_ms: float
    busy_ms: float


class Waits(Struct):
    """The measurements of one probe between two marks."""

    answers: int = 0
    failures: int = 0
    failure: str = ""
    p99_ms: float = 0.0
    wall_ms: float = 0.0
    own_ms: float = 0.0
    cpu_ms: float = 0.0
    long: list[Wait] = field(default_factory=list)


class Delays:
    """Reads the CPU time and the run delay of a process's main thread, in nanoseconds."""

    def __init__(self, pid: int) -> None:
        self.file = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY) if pid else -1
        self.clock = cpu_clock(pid)

    def busy(self) -> int:
        """Return the CPU time of all threads."""
        try:
            return time.clock_gettime_ns(self.clock)
        except OSError:  # the process has ended
            return 0

    def read(self) -> tuple[int, int]:
        if self.file < 0:
            return 0, 0
        try:
            cpu, delay, _ = os.pread(self.file, 100, 0).split()
        except (OSError, ValueError):  # the process has ended
            return 0, 0
        return int(cpu), int(delay)


class Reading(NamedTuple):
    """The clocks at one moment. All but the first are in nanoseconds."""

    at: float
    cpu: int
    """The CPU time of the event loop's thread."""
    delay: int
    """The run delay of that thread and of this process."""
    writer: int
    """The run delay of the process that writes the journal."""
    busy: int
    """The CPU time of the host's process."""


class Clock:
    """The clocks that a wait is measured with."""

    def __init__(self, job: ProbeJob) -> None:
        self.host, self.writer, self.own = Delays(job.pid), Delays(job.writer), Delays(os.getpid())

    def read(self) -> Reading:
        cpu, delay = self.host.read()
        own, writer = self.own.read()[1], self.writer.read()[1]
        return Reading(time.monotonic(), cpu, delay + own, writer, self.host.busy())


class Probe(ABC):
    """Asks the host something again and again."""

    writes = False
    """Whether the answer waits for the journal."""

    def __init__(self, job: ProbeJob, clock: Clock, pause_s: float) -> None:
        self.job = job
        self.clock = clock
        self.pause_s = pause_s
        self.waits = Waits()
        self.walls: list[float] = []
        self.rounds = 0
        self.turned = asyncio.Event()

    @abstractmethod
    async def ask(self) -> str:
        """Ask once; return what is wrong with the answer, or "" if nothing is."""

    async def run(self) -> None:
        while True:
            begun = self.clock.read()
            try:
                wrong = await asyncio.wait_for(self.ask(), ANSWER_S)
            except (OSError, TimeoutError) as error:
                wrong = f"{type(error).__name__} {error}"
            if wrong:
                self.waits.failures += 1
                self.waits.failure = self.waits.failure or wrong[:300]
                await asyncio.sleep(RECONNECT_S)
            else:
                self.count(begun, self.clock.read())
            self.rounds += 1
            self.turned.set()
            await asyncio.sleep(self.pause_s)

    def count(self, begun: Reading, ended: Reading, usual: float = 0.0) -> None:
        wall, cpu, delay, writer, busy = (after - before for before, after in zip(begun, ended, strict=True))
        wall = max(0.0, wall - usual)
        own = max(0.0, wall * 1000 - (delay + writer * self.writes) / 1e6)
        waits = self.waits
        waits.answers += 1
        self.walls.append(wall * 1000)
        waits.wall_ms = max(waits.wall_ms, wall * 1000)
        if own > waits.own_ms:
            waits.own_ms, waits.cpu_ms = own, cpu / 1e6
        if own > LONG_MS and len(waits.long) < MOST_LONG:
            waits.long.append(Wait(begun.at, wall * 1000, own, cpu / 1e6, busy / 1e6))

    async def taken(self) -> Waits:
        """Wait until the question that is open now is answered, and return what was measured."""
        rounds = self.rounds + 1
        while self.rounds < rounds:
            self.turned.clear()
            await self.turned.wait()
        found, walls = self.waits, sorted(self.walls)
        self.waits, self.walls = Waits(), []
        found.p99_ms = quantile(walls, 0.99) if walls else 0.0
        return found


class HttpProbe(Probe):
    def __init__(self, job: ProbeJob, clock: Clock, pause_s: float, path: str) -> None:
        super().__init__(job, clock, pause_s)
        self.path = path
        self.connection: Connection | None = None
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.body = b""

    def request(self) -> bytes:
        return self.head("GET", "").encode()

    def head(self, method: str, more: str) -> str:
        token = f"Authorization: Bearer {self.job.token}\r\n" if self.job.token else ""
        host = f"Host: 127.0.0.1:{self.job.port}\r\n"
        return f"{method} {self.path} HTTP/1.1\r\n{host}A2A-Version: 1.0\r\n{token}{more}\r\n"

    async def ask(self) -> str:
        self.answer = asyncio.get_running_loop().create_future()
        if self.connection is None or self.connection.transport is None:
            self.connection = Connection(self.got, self.ended)
            made = self.connection
            await asyncio.get_running_loop().create_connection(lambda: made, "127.0.0.1", self.job.port)
        self.body = b""
        self.connection.send(self.request())
        status = await self.answer
        return "" if status == 200 else f"{self.path}: {status} {self.body[:200].decode(errors='replace')}"

    def got(self, data: bytes) -> None:
        self.body = data

    def ended(self, status: int) -> None:
        if not self.answer.done():
            self.answer.set_result(status)


class SendProbe(HttpProbe):
    writes = True

    def request(self) -> bytes:
        body = b'{"message":{"messageId":"%b","role":"ROLE_USER","parts":[{"text":"1"}]}}' % message_id()
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return self.head("POST", more).encode() + body


class StreamProbe(SendProbe):
    """Reads a stream of evenly spaced events. What counts is a gap between two of them, beyond the usual one."""

    def request(self) -> bytes:
        text = b"%d %d" % (PIECES, PIECES_PER_S)
        body = b'{"message":{"messageId":"%b","role":"ROLE_USER","parts":[{"text":"%b"}]}}' % (message_id(), text)
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.last = self.clock.read()
        return self.head("POST", more).encode() + body

    def got(self, data: bytes) -> None:
        now = self.clock.read()
        self.count(self.last, now, 1 / PIECES_PER_S)
        self.last = now
        self.rounds += 1
        self.turned.set()
        super().got(data)

    async def run(self) -> None:
        while True:
            try:
                wrong = await self.ask()
            except OSError as error:
                wrong = str(error)
            if wrong:
                self.waits.failures += 1
                self.waits.failure = self.waits.failure or wrong[:300]
                self.rounds += 1
                self.turned.set()
            await asyncio.sleep(RECONNECT_S)


class GrpcProbe(Probe):
    def __init__(self, job: ProbeJob, clock: Clock, pause_s: float) -> None:
        super().__init__(job, clock, pause_s)
        self.headers = header_block(f"{SERVICE}/GetTask")
        self.question = pb.GetTaskRequest(tenant="bench", id=job.task_id).SerializeToString()
        self.connection: GrpcConnection | None = None

    async def ask(self) -> str:
        if self.connection is None or self.connection.transport is None:
            _, self.connection = await asyncio.get_running_loop().create_connection(
                GrpcConnection, "127.0.0.1", self.job.grpc_port
            )
        answer = await self.connection.call(self.headers, self.question)
        if answer is None or pb.Task.FromString(answer).id != self.job.task_id:
            return f"gRPC GetTask: {'the connection was lost' if answer is None else answer[:100]!r}"
        return ""


def _probe(name: str, job: ProbeJob, clock: Clock, pause_s: float) -> Probe:
    match name:
        case "healthz":
            return HttpProbe(job, clock, pause_s, "/healthz")
        case "card":
            return HttpProbe(job, clock, pause_s, "/agents/bench/.well-known/agent-card.json")
        case "get":
            return HttpProbe(job, clock, pause_s, f"/agents/bench/tasks/{job.task_id}")
        case "list":
            return HttpProbe(job, clock, pause_s, "/agents/bench/tasks?pageSize=10")
        case "send":
            return SendProbe(job, clock, pause_s, "/agents/bench/message:send")
        case "stream":
            return StreamProbe(job, clock, pause_s, "/agents/bench/message:stream")
        case "grpc":
            return GrpcProbe(job, clock, pause_s)
    raise ValueError(name)


async def run(job: ProbeJob) -> None:
    clock = Clock(job)
    probes = {name: _probe(name, job, clock, pause) for name, pause in job.probes.items()}
    running = [asyncio.create_task(probe.run()) for probe in probes.values()]
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        waits = await asyncio.gather(*(probe.taken() for probe in probes.values()))
        found = dict(zip(probes, waits, strict=True))
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.flush()
        if ended := [each for each in running if each.done()]:
            ended[0].result()


if __name__ == "__main__":
    given = msgspec.convert(json.loads(sys.argv[1]), ProbeJob)
    uvloop.run(run(given))
