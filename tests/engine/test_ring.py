"""A burst to many followers is spread over turns of the event loop, and nobody is forgotten."""

from __future__ import annotations

import asyncio

from roost.engine.ring import WAKES_PER_ITERATION, WakeThrottle
from tests.waiting import PATIENCE_S


async def test_so_many_are_let_in_at_once_and_the_rest_in_the_next_turns() -> None:
    throttle = WakeThrottle()
    waiters = [asyncio.get_running_loop().create_future() for _ in range(3 * WAKES_PER_ITERATION)]
    for waiter in waiters:
        throttle.admit(waiter)
    let_in = []
    while not all(waiter.done() for waiter in waiters):
        let_in.append(sum(waiter.done() for waiter in waiters))
        await asyncio.sleep(0)
    assert let_in == [WAKES_PER_ITERATION, 2 * WAKES_PER_ITERATION]


async def test_one_that_gave_up_takes_nobodys_place_for_good() -> None:
    throttle = WakeThrottle()
    waiters = [asyncio.get_running_loop().create_future() for _ in range(2 * WAKES_PER_ITERATION)]
    for waiter in waiters:
        throttle.admit(waiter)
    waiters[-1].cancel()
    await asyncio.wait_for(asyncio.gather(*waiters[:-1]), PATIENCE_S)
    late = asyncio.get_running_loop().create_future()
    throttle.admit(late)
    await asyncio.wait_for(late, PATIENCE_S)
    assert [waiter.cancelled() for waiter in waiters] == [False] * (2 * WAKES_PER_ITERATION - 1) + [True]
