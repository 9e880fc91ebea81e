"""Carries the writer in a process of its own, so that it never waits for the event loop's interpreter lock.

Which is most of what a commit costs in a thread: see docs/adr/0006-writer-process.md. The
process is the host's: it ends when the host's end of the socket closes, and until then it holds
the host's lock on the folder too, so that no other host begins while it still writes.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from roost.engine.ports import Append, OutcomeUnknown, StaleFence, StoreUnavailable
from roost.stores.sqlite_writer import Writer


class Request(Struct, array_like=True):
    operation: str
    args: Raw


class Reply(Struct, array_like=True):
    """`failure` says why SQLite refused; `stale` are the places in the group that were refused alone."""

    result: int | None = None
    stale: list[int] = []
    failure: str | None = None


ARGS: dict[str, Any] = {"commit": tuple[list[Append]], "claim": tuple[str, str, int], "probe": tuple[()]}

encode = msgspec.msgpack.Encoder().encode


class ProcessCarrier:
    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock
        self.process: subprocess.Popen[bytes] | None = None
        self.line: _Line | None = None
        self.connecting = asyncio.Lock()
        self._start()

    async def do(self, operation: str, *args: Any) -> Any:
        line = await self._connected()
        reply = await line.ask(encode(Request(operation, Raw(encode(args)))))
        if reply.failure is not None:
            raise StoreUnavailable(reply.failure)
        if operation != "commit":
            return reply.result
        refused = set(reply.stale)
        return [StaleFence(append.task_id) if at in refused else None for at, append in enumerate(args[0])]

    async def close(self) -> None:
        if self.line is not None:
            self.line.hang_up()
            self.line = None
        else:
            self.ours.close()
        if self.process is not None:
            await asyncio.to_thread(self.process.wait)

    def _start(self) -> None:
        self.ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603  # our own module, with our own arguments
                [sys.executable, "-m", __name__, str(theirs.fileno()), str(self.path)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), self.lock],
            )

    async def _connected(self) -> _Line:
        if self.line is not None and not self.line.lost:
            return self.line
        async with self.connecting:
            if self.line is not None and self.line.lost:
                self._start()  # it was killed; what it had in hand was refused, and is tried again
                self.line = None
            if self.line is None:
                loop = asyncio.get_running_loop()
                _, self.line = await loop.create_unix_connection(_Line, sock=self.ours)
            return self.line


class _Line(asyncio.Protocol):
    """Requests out, replies in, in order."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.waiting: deque[asyncio.Future[Reply]] = deque()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    async def ask(self, request: bytes) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.transport.write(len(request).to_bytes(4, "big") + request)
        return await future

    def hang_up(self) -> None:
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            end = 4 + int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < end:
                return
            reply = _decode_reply(bytes(self.buffer[4:end]))
            del self.buffer[:end]
            future = self.waiting.popleft()
            if not future.done():
                future.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        while self.waiting:
            future = self.waiting.popleft()
            if not future.done():
                future.set_exception(OutcomeUnknown("the process that writes the journal is gone"))


_decode_reply = msgspec.msgpack.Decoder(Reply).decode


def main(descriptor: int, path: Path) -> None:
    """The process: requests in, replies out, until the host closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C goes to both; the host decides when to end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    decode_request = msgspec.msgpack.Decoder(Request).decode
    decode_args = {name: msgspec.msgpack.Decoder(kind).decode for name, kind in ARGS.items()}
    with socket.socket(fileno=descriptor) as line, line.makefile("rb") as requests:
        writer = Writer(path)
        while len(size := requests.read(4)) == 4:
            request = decode_request(requests.read(int.from_bytes(size, "big")))
            reply = encode(_reply(writer, request.operation, decode_args[request.operation](request.args)))
            line.sendall(len(reply).to_bytes(4, "big") + reply)
        writer.close()


def _reply(writer: Writer, operation: str, args: tuple[Any, ...]) -> Reply:
    try:
        result = writer.do(operation, *args)
    except StoreUnavailable as error:
        return Reply(failure=str(error))
    if operation == "commit":
        return Reply(stale=[at for at, refusal in enumerate(result) if refusal is not None])
    return Reply(result=result)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
