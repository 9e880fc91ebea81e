"""A TCP proxy between a replica and PostgreSQL that can reset connections, or hold back all data silently."""

from __future__ import annotations

import asyncio
from typing import Self, cast


class Proxy:
    """Listens on its own port and forwards all data to `port`."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.pipes: set[_End] = set()
        self.holding = False
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

    async def black_hole(self, seconds: float, *, then_cut: bool) -> None:
        """Forward nothing for a while, without an error or an end. Then resume, or cut."""
        self.holding = True
        for end in self.pipes:
            end.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.holding = False
            if then_cut:
                self.cut()
            for end in list(self.pipes):
                end.resume()


class _End(asyncio.Protocol):
    """One end of a connection. It forwards what it receives to the other end."""

    transport: asyncio.Transport | None = None
    other: _End | None = None

    def __init__(self, proxy: Proxy, other: _End | None = None) -> None:
        self.proxy = proxy
        self.dialled_for = other
        """The end that this one was opened for, if it is the outgoing one."""
        self.buffered: list[bytes] = []
        """Data that arrived before it could be forwarded."""
        self.dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self.proxy.pipes.add(self)
        if self.dialled_for is None:
            self.transport.pause_reading()
            if not self.proxy.holding:
                self._dial()
        else:
            self.other, self.dialled_for.other = self.dialled_for, self

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
        elif not self.proxy.holding:
            self.resume()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.proxy.holding:
            self.buffered.append(data)  # it arrived when reading was already paused
        elif self.other.transport is not None:
            self.other.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self.proxy.pipes.discard(self)
        if self.other is not None and self.other.transport is not None:
            if error is None and not self.proxy.holding:
                self.other.transport.close()
            else:
                self.other.abort()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause()

    def resume_writing(self) -> None:
        if self.other is not None and not self.proxy.holding:
            self.other.resume()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def pause(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self.dialled_for is None and self.other is None:
            if self.dialling is None:
                self._dial()
        else:
            buffered, self.buffered = self.buffered, []
            for data in buffered:
                self.data_received(data)
            self.transport.resume_reading()
