"""The protocol that `roost serve` answers with."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from roost.cli.protocol import Corked


@pytest.fixture
def event_loop_policy():
    return uvloop.EventLoopPolicy()


async def pair():
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    return loop, transport, theirs


async def test_writes_of_one_turn_leave_together():
    loop, transport, theirs = await pair()
    corked = Corked(transport, loop)
    corked.write(b"head ")
    corked.write(b"body")
    assert await loop.sock_recv(theirs, 100) == b"head body"
    transport.close()
    theirs.close()


async def test_what_is_written_to_a_client_that_has_gone_is_dropped_and_not_an_error():
    """uvloop's transport raises when it is written to after its end."""
    loop, transport, theirs = await pair()
    failures = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    corked = Corked(transport, loop)
    corked.write(b"too late")
    transport.abort()
    theirs.close()
    while corked.pending:
        await _turn()
    await _turn()
    corked.write(b"later still")
    while corked.pending:
        await _turn()
    await _turn()
    assert failures == []


async def _turn():
    await asyncio.sleep(0)
