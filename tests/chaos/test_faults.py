"""The faults: the same seed gives the same schedule, and the proxy forwards, cuts and holds back data."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest
from chaos.faults import BLACK_HOLE, CUT, EVERY, FREEZE, KILL, NATS, RESTART, ROLL, schedule
from chaos.proxy import Proxy
from chaos.scenario import STORES

from tests.waiting import PATIENCE_S, until


@pytest.mark.parametrize("store", STORES)
def test_the_same_seed_gives_the_same_faults(store: str) -> None:
    assert schedule(Random(1), store, 50) == schedule(Random(1), store, 50)
    assert schedule(Random(1), store, 50) != schedule(Random(2), store, 50)


def test_a_round_has_each_kind_of_fault_that_applies_to_its_store() -> None:
    assert set(Counter(fault.kind for fault in schedule(Random(1), "sqlite", 4))) == {KILL, ROLL, FREEZE}
    kinds = Counter(fault.kind for fault in schedule(Random(1), "postgres+nats", 400))
    assert kinds == {KILL: 400, **{kind: 400 // every for kind, every in EVERY.items()}}
    assert set(kinds) == {KILL, ROLL, FREEZE, CUT, BLACK_HOLE, RESTART, NATS}


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """Run a server that echoes all data, and yield its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_the_proxy_passes_everything_on() -> None:
    async with echo() as port, Proxy(port) as proxy, connected(proxy.port) as (reader, writer):
        said = b"x" * 1_000_000
        writer.write(said)
        assert await reader.readexactly(len(said)) == said


async def test_a_cut_resets_connections_and_the_next_one_works() -> None:
    async with echo() as port, Proxy(port) as proxy:
        async with connected(proxy.port) as (reader, writer):
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            proxy.cut()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
        async with connected(proxy.port) as (reader, writer):
            writer.write(b"again")
            assert await reader.readexactly(5) == b"again"


@pytest.mark.parametrize("then_cut", [False, True])
async def test_a_black_hole_says_nothing_until_it_ends(then_cut: bool) -> None:
    async with echo() as port, Proxy(port) as proxy, connected(proxy.port) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        hole = asyncio.create_task(proxy.black_hole(PATIENCE_S, then_cut=then_cut))
        await until(lambda: proxy.holding)
        writer.write(b"late")
        async with connected(proxy.port) as (late, late_writer):
            late_writer.write(b"new")
            answers = [asyncio.create_task(reader.readexactly(4)), asyncio.create_task(late.readexactly(3))]
            async with connected(port) as (beside, beside_writer):
                beside_writer.write(b"beside")
                assert await beside.readexactly(6) == b"beside"
            assert not any(answer.done() for answer in answers)
            hole.cancel()
            said, said_late = await asyncio.wait_for(asyncio.gather(*answers, return_exceptions=True), PATIENCE_S)
            if then_cut:
                assert isinstance(said, ConnectionError | asyncio.IncompleteReadError)
            else:
                assert (said, said_late) == (b"late", b"new")
