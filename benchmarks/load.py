"""The load generator, a process of its own: it reads a job as JSON from stdin and writes its result as JSON to stdout.

    python -m benchmarks.load < job.json

It uses uvloop and a hand-written protocol (wire.py), so that it costs a fraction of what a server does. Every result
says how busy the load generator was.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle, islice

import msgspec
import uvloop
from msgspec import Struct, field

from benchmarks.stats import quantile
from benchmarks.wire import Connection, Requests

COMPLETED = b"TASK_STATE_COMPLETED"
EMITTED = re.compile(rb'"text": ?"(\d{19})"')
TASK_ID = re.compile(rb'"task": ?\{"id": ?"([^"]+)"')
CONNECTING = 32
BEGIN_S = 10.0
WORKING_S = 0.2
"""The seconds after which a new task is WORKING, so that a subscriber does not get that as an event."""
SCATTER_S = 1.0
GRACE_S = 120.0


class Closed(Struct, tag=True):
    """Every connection sends its next request when it has an answer, for some seconds or a number of requests."""

    port: int
    path: str
    text: str | None = None
    connections: int = 1
    seconds: float = 0.0
    requests: int = 0
    """How many requests each connection sends; 0 for as many as the time allows."""
    lead_s: float = 0.0
    """The seconds before the measurement; answers that come in them do not count."""
    replicas: list[int] = []
    """More ports: the connections are spread over `port` and these."""
    at_once: bool = False
    """Ask for the answer when the task begins, not when it ends."""
    token: str = ""
    """Sent as a bearer token."""


class Paced(Struct, tag=True):
    """Several streams at the same time, which begin one after the other within `spread_s` seconds."""

    port: int
    path: str
    text: str
    streams: int
    spread_s: float


class Subscribe(Struct, tag=True):
    """One task that many subscribers follow."""

    port: int
    base: str
    text: str
    subscribers: int


class Across(Struct, tag=True):
    """Several tasks, which begin on one replica within `spread_s` seconds and are each followed on another replica."""

    port: int
    other: int
    base: str
    text: str
    tasks: int
    spread_s: float


class Poll(Struct, tag=True):
    """One request after the other with a pause between them, until SIGTERM."""

    port: int
    path: str
    pause_s: float = 0.002


Job = Closed | Paced | Subscribe | Across | Poll


class Result(Struct):
    seconds: float = 0.0
    requests: int = 0
    """Answers within the time that have the status 200 and, for a message, end with COMPLETED."""
    events: int = 0
    """The `data:` lines that came within the time."""
    errors: int = 0
    error: str = ""
    """The first wrong answer."""
    counts: dict[int, int] = field(default_factory=dict)
    """How many streams had how many events."""
    timed: int = 0
    """How many latencies were measured: one for each answer, or one for each event that carries its emission time."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    """The latency of an answer; in Paced, Subscribe and Across the time from the emission of an event."""
    late_ms: float = 0.0
    """The worst delay of the generator itself in Poll, which is the noise in max_ms."""
    busy: float = 0.0
    """The CPU seconds of the generator per second."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def event_rate(self) -> float:
        return self.events / self.seconds


class Generator:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.result = Result()
        self.counts: Counter[int] = Counter()
        self.latencies: list[float] = []
        self.deadline = float("inf")
        self.started = self.counted = self.cpu = 0.0

    def begin(self, seconds: float = 0.0, lead_s: float = 0.0) -> None:
        self.started, self.cpu = time.perf_counter(), time.process_time()
        self.counted = self.started + lead_s
        if seconds:
            self.deadline = self.counted + seconds

    def finish(self) -> Result:
        result = self.result
        now = time.perf_counter()
        result.busy = (time.process_time() - self.cpu) / (now - self.started)
        result.counts = dict(sorted(self.counts.items()))
        result.seconds = min(now, self.deadline) - self.counted
        if now > self.deadline and not result.requests:
            self._count_late()
            result.seconds = now - self.counted
        if self.latencies:
            self.latencies.sort()
            result.timed = len(self.latencies)
            result.p50_ms = quantile(self.latencies, 0.5) * 1000
            result.p95_ms = quantile(self.latencies, 0.95) * 1000
            result.p99_ms = quantile(self.latencies, 0.99) * 1000
            result.max_ms = self.latencies[-1] * 1000
        return result

    def _count_late(self) -> None:
        """Count the answers that came after the deadline: a server that needs longer for one has a rate too."""
        self.result.requests = len(self.latencies)
        self.result.events = sum(size * streams for size, streams in self.counts.items())

    def failed(self, what: str) -> None:
        self.result.errors += 1
        self.result.error = self.result.error or what[:500]


class Client:
    """One connection of a job: it sends requests, checks the answers, and calls `done` when one is complete."""

    def __init__(self, generator: Generator, requests: Requests, done: Callable[[Client], None]) -> None:
        self.generator = generator
        self.requests = requests
        self.done = done
        self.connection = Connection(self.got, self.ended)
        self.left = 0
        self.sent = 0.0
        self.events = 0
        self.last = b""
        self.timed = False
        """Whether to read the emission time from the events."""

    async def connect(self) -> None:
        await self.generator.loop.create_connection(lambda: self.connection, "127.0.0.1", self.requests.port)

    def send(self) -> None:
        self.events = 0
        self.sent = time.perf_counter()
        self.connection.send(self.requests.next())

    def got(self, data: bytes) -> None:
        self.last = data
        if self.connection.length < 0:
            events = data.count(b"data:")
            self.events += events
            if self.timed:
                now = time.time_ns()
                self.generator.latencies += [(now - int(at)) / 1e9 for at in EMITTED.findall(data)]
            if time.perf_counter() <= self.generator.deadline:
                self.generator.result.events += events

    def ended(self, status: int) -> None:
        generator = self.generator
        if status != 200 or (self.requests.ends and COMPLETED not in self.last):
            generator.failed(f"{status} {self.last.decode(errors='replace')}")
        else:
            now = time.perf_counter()
            if not self.timed:
                generator.latencies.append(now - self.sent)
            if generator.counted <= now <= generator.deadline:
                generator.result.requests += 1
            if self.events:
                generator.counts[self.events] += 1
        self.done(self)


async def closed(generator: Generator, job: Closed) -> None:
    over = generator.loop.create_future()
    open_clients = job.connections

    def done(client: Client) -> None:
        nonlocal open_clients
        client.left -= 1
        if client.left and time.perf_counter() < generator.deadline and client.connection.transport:
            client.send()
            return
        open_clients -= 1
        if not open_clients:
            over.set_result(None)

    requests = [
        Requests(port, job.path, job.text, at_once=job.at_once, token=job.token) for port in (job.port, *job.replicas)
    ]
    clients = [Client(generator, each, done) for each in islice(cycle(requests), job.connections)]
    for client in clients:
        client.left = job.requests
        await client.connect()
    generator.begin(job.seconds, job.lead_s)
    for client in clients:
        client.send()
    await asyncio.wait_for(over, job.lead_s + job.seconds + GRACE_S)


async def paced(generator: Generator, job: Paced) -> None:
    over = [generator.loop.create_future() for _ in range(job.streams)]
    requests = Requests(job.port, job.path, job.text)
    clients = [
        Client(generator, requests, lambda _, end=end: end.set_result(None))  # type: ignore[misc]
        for end in over
    ]
    for client in clients:
        client.timed = True
        await client.connect()
    generator.begin()
    for number, client in enumerate(clients):
        generator.loop.call_later(number * job.spread_s / job.streams, client.send)
    await asyncio.wait_for(asyncio.gather(*over), GRACE_S)


async def begin(requests: Requests) -> tuple[Connection, str]:
    """Begin a task; return its connection and its id."""
    loop = asyncio.get_running_loop()
    task_id = loop.create_future()

    def got(data: bytes) -> None:
        found = TASK_ID.search(data)
        if found and not task_id.done():
            task_id.set_result(found.group(1).decode())

    connection = Connection(got, lambda _: None)
    await loop.create_connection(lambda: connection, "127.0.0.1", requests.port)
    connection.send(requests.next())
    return connection, await asyncio.wait_for(task_id, BEGIN_S)


async def follow(generator: Generator, requests: Requests, connecting: asyncio.Semaphore) -> None:
    """Subscribe to a task and wait for its end."""
    over = generator.loop.create_future()
    client = Client(generator, requests, lambda _: over.set_result(None))
    client.timed = True
    async with connecting:
        await client.connect()
        client.send()
        while not client.events and not over.done():
            await asyncio.sleep(0.005)
    await over
    if client.events and COMPLETED not in client.last:
        generator.failed(client.last.decode(errors="replace"))
    client.connection.close()


async def subscribe(generator: Generator, job: Subscribe) -> None:
    generator.begin()
    first, task_id = await begin(Requests(job.port, f"{job.base}/message:stream", job.text))
    requests = Requests(job.port, f"{job.base}/tasks/{task_id}:subscribe")
    await asyncio.sleep(WORKING_S)
    connecting = asyncio.Semaphore(CONNECTING)
    followers = (follow(generator, requests, connecting) for _ in range(job.subscribers))
    await asyncio.wait_for(asyncio.gather(*followers), GRACE_S)
    first.close()


async def across(generator: Generator, job: Across) -> None:
    connecting = asyncio.Semaphore(CONNECTING)
    requests = Requests(job.port, f"{job.base}/message:send", job.text, at_once=True)

    async def one(number: int) -> None:
        await asyncio.sleep(number * job.spread_s / job.tasks)
        first, task_id = await begin(requests)
        first.close()
        # At a random time, so that a replica that polls does not do it at a fixed time from the emissions.
        await asyncio.sleep(random.uniform(WORKING_S, WORKING_S + SCATTER_S))
        await follow(generator, Requests(job.other, f"{job.base}/tasks/{task_id}:subscribe"), connecting)

    generator.begin()
    await asyncio.wait_for(asyncio.gather(*(one(number) for number in range(job.tasks))), GRACE_S)


async def poll(generator: Generator, job: Poll) -> None:
    stopped = asyncio.Event()
    generator.loop.add_signal_handler(signal.SIGTERM, stopped.set)
    due = 0.0

    def again() -> None:
        generator.result.late_ms = max(generator.result.late_ms, (generator.loop.time() - due) * 1000)
        client.send()

    def done(client: Client) -> None:
        nonlocal due
        due = generator.loop.time() + job.pause_s
        generator.loop.call_later(job.pause_s, again)

    client = Client(generator, Requests(job.port, job.path), done)
    await client.connect()
    generator.begin()
    client.send()
    await stopped.wait()


async def run(job: Job) -> Result:
    generator = Generator()
    match job:
        case Closed():
            await closed(generator, job)
        case Paced():
            await paced(generator, job)
        case Subscribe():
            await subscribe(generator, job)
        case Across():
            await across(generator, job)
        case Poll():
            await poll(generator, job)
    return generator.finish()


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(run(job))))


if __name__ == "__main__":
    main()
