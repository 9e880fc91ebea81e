"""A way from a replica to PostgreSQL that can be cut, or swallow everything without a word."""

from __future__ import annotations

import asyncio
from typing import Self, cast


class Proxy:
    """Listens on a port of its own and passes on what comes to `port`."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.pipes: set[_End] = set()
        self.swallows = False
        self.server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: _End(self), "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.server is not None
        self.server.close()
        while self.pipes:
            self.cut()
            await asyncio.sleep(0.01)

    def cut(self) -> None:
        """Reset all connections."""
        for end in list(self.pipes):
            end.abort()

    async def swallow(self, seconds: float, *, then_cut: bool) -> None:
        """Pass nothing on for a while, and say nothing: neither an error nor an end. Then go on, or cut."""
        self.swallows = True
        for end in self.pipes:
            end.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.swallows = False
            if then_cut:
                self.cut()
            for end in list(self.pipes):
                end.go_on()


class _End(asyncio.Protocol):
    """One end of a connection: what it hears, the other end says."""

    transport: asyncio.Transport | None = None
    other: _End | None = None

    def __init__(self, proxy: Proxy, other: _End | None = None) -> None:
        self.proxy = proxy
        self.given = other
        """Set where this end was dialled for another."""
        self.early: list[bytes] = []
        """What came before there was anyone to tell it."""
        self.dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self.proxy.pipes.add(self)
        if self.given is None:
            self.transport.pause_reading()
            if not self.proxy.swallows:
                self._dial()
        else:
            self.other, self.given.other = self.given, self

    def _dial(self) -> None:
        self.dialling = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: _End(self.proxy, self), "127.0.0.1", self.proxy.target)
        except OSError:
            self.abort()
            return
        assert self.other is not None
        if self.transport is None:
            self.other.abort()
        elif not self.proxy.swallows:
            self.go_on()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.proxy.swallows:
            self.early.append(data)  # it was on its way when reading was paused
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.proxy.pipes.discard(self)
        if self.other is not None and self.other.transport is not None:
            if error is None and not self.proxy.swallows:
                self.other.transport.close()
            else:
                self.other.abort()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause()

    def resume_writing(self) -> None:
        if self.other is not None and not self.proxy.swallows:
            self.other.go_on()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def go_on(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self.given is None and self.other is None:
            if self.dialling is None:
                self._dial()
        else:
            early, self.early = self.early, []
            for data in early:
                self.data_received(data)
            self.transport.resume_reading()
