"""The writer in a process of its own, where it never waits for the interpreter lock of the event loop.

That wait is most of the cost of a commit in a thread: see docs/adr/0006-writer-process.md. The process belongs to the
host: it ends when the host's end of the socket closes. Until then it also holds the host's lock on the journal, so that
no other host starts while it still writes.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from inspect import signature
from pathlib import Path
from types import GenericAlias
from typing import Any, BinaryIO, cast, get_type_hints

import msgspec
from msgspec import Raw, Struct

from roost.engine.store_types import Append, OutcomeUnknown, StoreMisplaced, StoreUnavailable
from roost.stores import (
    sqlite_checkpoints,
    sqlite_identities,
    sqlite_pushes,
    sqlite_records,
    sqlite_reservations,
    sqlite_tasks,
)
from roost.stores.sqlite_connections import P, Query, T
from roost.stores.sqlite_files import JournalFiles, JournalIds, JournalLock, found_ids
from roost.stores.sqlite_writer import SQLiteWriter, reason

OPERATIONS: dict[str, Callable[..., Any]] = {
    query.__name__: query
    for query in (
        sqlite_tasks.probe,
        sqlite_tasks.adopt,
        sqlite_tasks.adopt_task,
        sqlite_tasks.leave,
        sqlite_reservations.confirm_reserved,
        sqlite_reservations.drop_reserved,
        sqlite_pushes.put_push,
        sqlite_pushes.delete_push,
        sqlite_pushes.hold_pushes,
        sqlite_pushes.move_pushes,
        sqlite_pushes.retry_pushes,
        sqlite_records.prune_tasks,
        sqlite_records.add_usage,
        sqlite_records.note_served,
        sqlite_identities.add_token,
        sqlite_identities.revoke_token,
        sqlite_identities.add_key,
        sqlite_identities.retire_key,
        sqlite_identities.write_audit,
        sqlite_checkpoints.drop_drafts,
        sqlite_checkpoints.draft_leaves,
        sqlite_checkpoints.add_checkpoint,
    )
}
"""The queries that the process runs, by the name that a request gives."""
COMMIT = "commit"


class WriterRequest(Struct, array_like=True):
    operation: str
    args: Raw


class WriterReply(Struct, array_like=True):
    result: Raw = Raw(b"\xc0")
    failure: str | None = None
    """The reason why SQLite refused the operation."""
    error: str = StoreUnavailable.__name__
    """The error to raise for a failure: one of ERRORS."""


ERRORS: dict[str, type[StoreUnavailable]] = {error.__name__: error for error in (StoreUnavailable, StoreMisplaced)}


GONE = "the process that writes the journal is gone"

encode = msgspec.msgpack.Encoder().encode

PAIR = b"\x92"
"""The beginning of an array of two in msgpack, as which a WriterRequest is written."""
JOINED = 64 * 1024
"""Bytes below which a request is written at once."""
CLOSE_S = 5.0
Decode = Callable[[Any], Any]


@cache
def _decoders(operation: str) -> tuple[Decode, Decode]:
    """Return the decoders of an operation's arguments and of its result, made from its signature."""
    hints = get_type_hints(SQLiteWriter.commit if operation == COMMIT else OPERATIONS[operation])
    hints.pop("connection", None)
    result = hints.pop("return")
    args = GenericAlias(tuple, tuple(hints.values()))
    return msgspec.msgpack.Decoder(args).decode, msgspec.msgpack.Decoder(result).decode


class WriterProcess:
    def __init__(self, path: Path, lock: JournalLock) -> None:
        self.path = path
        self.lock = lock
        self.ids = base64.b64encode(encode(found_ids(path))).decode()
        """The files that the process must find, also if it has to be started again."""
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: _WriterConnection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self._start()

    async def commit(self, group: Sequence[Append], reserve_ids: Sequence[int | None]) -> list[int]:
        stale: list[int] = await self._ask(COMMIT, (group, reserve_ids))
        return stale

    async def do(self, query: Query[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        positional = signature(query).bind(None, *args, **kwargs).args[1:] if kwargs else args
        result: T = await self._ask(query.__name__, positional)
        return result

    async def _ask(self, operation: str, args: tuple[Any, ...]) -> Any:
        connection = await self._connected()
        reply = await connection.call(operation, encode(args))
        if reply.failure is not None:
            raise ERRORS[reply.error](reply.failure)
        return _decoders(operation)[1](reply.result)

    async def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        else:
            self.ours.close()
        if self.process is not None:
            await asyncio.to_thread(_end, self.process)

    def _start(self) -> None:
        self.ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603  # our own module, with our own arguments
                [sys.executable, "-m", __name__, str(theirs.fileno()), str(self.path), self.ids],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *self.lock.handles],
            )

    async def _connected(self) -> _WriterConnection:
        if self.connection is None or self.connection.lost:
            if self.connecting is None or self.connecting.done():
                self.connecting = asyncio.get_running_loop().create_task(self._connect())
            await asyncio.shield(self.connecting)  # several may wait for it, and one of them may be cancelled
        assert self.connection is not None
        return self.connection

    async def _connect(self) -> None:
        if self.connection is not None:
            self._start()  # the process was killed; its requests failed, and callers try them again
        loop = asyncio.get_running_loop()
        _, self.connection = await loop.create_unix_connection(_WriterConnection, sock=self.ours)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the process, which ends when its socket closes. If it hangs, nothing in it was acknowledged."""
    try:
        process.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _WriterConnection(asyncio.Protocol):
    """Sends requests and receives the replies in the same order."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.waiting: deque[asyncio.Future[WriterReply]] = deque()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    async def call(self, operation: str, args: bytes) -> WriterReply:
        """Send a WriterRequest. The arguments, which may be large, are not copied into another buffer."""
        if self.lost:
            raise StoreUnavailable(GONE)
        future: asyncio.Future[WriterReply] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        head = PAIR + encode(operation)
        size = (len(head) + len(args)).to_bytes(4, "big")
        if len(args) < JOINED:
            self.transport.write(b"".join((size, head, args)))
        else:
            self.transport.write(size + head)
            self.transport.write(args)
        return await future

    def close(self) -> None:
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
                future.set_exception(OutcomeUnknown(GONE))


_decode_reply = msgspec.msgpack.Decoder(WriterReply).decode


def main(descriptor: int, path: Path, ids: JournalIds) -> None:
    """Run the process: answer requests until the host closes its end of the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both; the host decides when to end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rb") as requests:
        files = JournalFiles(path, ids)
        writer = _open(path, files)
        with suppress(ConnectionError):  # the host was killed
            writer = _serve(connection, requests, path, files, writer)
        if isinstance(writer, SQLiteWriter):
            writer.close()


def _serve(
    connection: socket.socket, requests: BinaryIO, path: Path, files: JournalFiles, writer: SQLiteWriter | WriterReply
) -> SQLiteWriter | WriterReply:
    decode_request = msgspec.msgpack.Decoder(WriterRequest).decode
    while len(size := requests.read(4)) == 4:
        request = decode_request(requests.read(int.from_bytes(size, "big")))
        if isinstance(writer, WriterReply):
            writer = _open(path, files)
        reply = encode(writer if isinstance(writer, WriterReply) else _reply(writer, request))
        connection.sendall(len(reply).to_bytes(4, "big") + reply)
    return writer


def _open(path: Path, files: JournalFiles) -> SQLiteWriter | WriterReply:
    """Open the writer, or return the reply to every request while it cannot be opened."""
    try:
        files.check()
        return SQLiteWriter(path, files)
    except StoreMisplaced as error:
        return WriterReply(failure=str(error), error=type(error).__name__)
    except sqlite3.Error as error:
        return WriterReply(failure=reason(path, error))


def _reply(writer: SQLiteWriter, request: WriterRequest) -> WriterReply:
    try:
        args = _decoders(request.operation)[0](request.args)
        result = (
            writer.commit(*args) if request.operation == COMMIT else writer.do(OPERATIONS[request.operation], *args)
        )
    except StoreUnavailable as error:
        return WriterReply(failure=str(error), error=type(error).__name__)
    return WriterReply(Raw(encode(result)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), msgspec.msgpack.decode(base64.b64decode(sys.argv[3]), type=JournalIds))
