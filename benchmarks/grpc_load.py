"""The load generator for gRPC: it reads a job as JSON from stdin and writes its result as JSON to stdout.

    python -m benchmarks.grpc_load < job.json

Like load.py it has its own client protocol, because gRPC's client costs as much as a server does. It speaks as much of
HTTP/2 as a call needs, and ignores the headers of answers: a call is good if its last message says COMPLETED.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from typing import cast

import msgspec
import uvloop
from a2a.types import a2a_pb2 as pb
from msgspec import Struct

from benchmarks.load import GRACE_S, Generator, Result
from benchmarks.wire import message_id

SERVICE = "/lf.a2a.v1.A2AService"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK = END_STREAM = 1
END_HEADERS = 4
INITIAL_WINDOW = 4
WIDE = 2**31 - 1


class Calls(Struct):
    """Every connection makes its next call when it has its answer, for some seconds."""

    port: int
    method: str
    """SendMessage or SendStreamingMessage."""
    text: str
    seconds: float
    connections: int


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(path: str) -> bytes:
    """Encode each header as a literal that is not added to the table (RFC 7541, section 6.2.2)."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        "a2a-version": "1.0",
    }
    return b"".join(
        b"\0%c%b%c%b" % (len(name), name.encode(), len(value), value.encode()) for name, value in headers.items()
    )


class Connection(asyncio.Protocol):
    """A connection that makes one call after the other."""

    def __init__(self, generator: Generator, job: Calls) -> None:
        self.generator = generator
        self.job = job
        self.headers = header_block(f"{SERVICE}/{job.method}")
        self.over: asyncio.Future[None] = generator.loop.create_future()
        self.buffer = b""
        self.stream = -1
        self.sent = 0.0
        self.begin()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        settings = struct.pack(">HI", INITIAL_WINDOW, WIDE)
        window = struct.pack(">I", WIDE - 65_535)
        self.transport.write(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, window))

    def begin(self) -> None:
        self.message, self.last, self.events = b"", b"", 0

    def send(self) -> None:
        self.begin()
        self.stream += 2
        body = request(self.job.text)
        message = b"\0" + struct.pack(">I", len(body)) + body
        self.sent = time.perf_counter()
        self.transport.write(
            frame(HEADERS, END_HEADERS, self.stream, self.headers) + frame(DATA, END_STREAM, self.stream, message)
        )

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer + data if self.buffer else data
        at = 0
        while len(buffer) - at >= 9:
            end = at + 9 + int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) < end:
                break
            self.got(buffer[at + 3], buffer[at + 4], buffer[at + 9 : end])
            at = end
        self.buffer = buffer[at:]

    def got(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == DATA:
            self.got_data(payload)
        elif kind == SETTINGS and not flags & ACK:
            self.transport.write(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.transport.write(frame(PING, ACK, 0, payload))
        elif kind in (RST_STREAM, GOAWAY):
            self.generator.failed(f"the server ended the {'call' if kind == RST_STREAM else 'connection'}")
            self.transport.close()
        elif kind == HEADERS and flags & END_STREAM:
            self.ended()

    def got_data(self, payload: bytes) -> None:
        message = self.message + payload if self.message else payload
        at, events = 0, 0
        while len(message) - at >= 5:
            end = at + 5 + int.from_bytes(message[at + 1 : at + 5], "big")
            if len(message) < end:
                break
            self.last = message[at + 5 : end]
            events += 1
            at = end
        self.message = message[at:]
        self.events += events
        if time.perf_counter() <= self.generator.deadline:
            self.generator.result.events += events

    def ended(self) -> None:
        generator, now = self.generator, time.perf_counter()
        if self.job.method == "SendMessage":
            state = pb.SendMessageResponse.FromString(self.last).task.status.state
        else:
            state = pb.StreamResponse.FromString(self.last).status_update.status.state
            generator.counts[self.events] += 1
        if state != pb.TASK_STATE_COMPLETED:
            generator.failed(f"the last of {self.events} messages has no completed task")
        else:
            generator.latencies.append(now - self.sent)
            if now <= generator.deadline:
                generator.result.requests += 1
        if now < generator.deadline:
            self.send()
        else:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


def request(text: str) -> bytes:
    message = pb.Message(message_id=message_id().decode(), role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    return pb.SendMessageRequest(tenant="bench", message=message).SerializeToString()


async def run(job: Calls) -> Result:
    generator = Generator()
    clients = [Connection(generator, job) for _ in range(job.connections)]
    for client in clients:
        await generator.loop.create_connection(lambda client=client: client, "127.0.0.1", job.port)  # type: ignore[misc]
    generator.begin(job.seconds)
    for client in clients:
        client.send()
    await asyncio.wait_for(asyncio.gather(*(client.over for client in clients)), job.seconds + GRACE_S)
    return generator.finish()


if __name__ == "__main__":
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Calls)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(run(given))))
