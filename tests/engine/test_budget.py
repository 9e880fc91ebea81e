"""The budget for bodies that clients have not read: its bounds, its turns, and what one reader shares with others."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.engine.bodies import LARGE, Bodies, BodyReader, Made
from roost.engine.budget import ByteBudget
from roost.protocol.errors import TooManyRequests, Unavailable
from tests.waiting import PATIENCE_S, until

MOST = 100


async def never() -> None:
    await asyncio.get_running_loop().create_future()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), accounts=st.integers(1, 6))
def test_the_bounds_hold_and_whoever_fits_is_let_in(seed: int, accounts: int) -> None:
    """In any order of arrivals, ends and departures: never above a bound, and nobody waits who fits and has a turn."""
    asyncio.run(_random_work(Random(seed), accounts))


async def _random_work(random: Random, accounts: int) -> None:
    budget = ByteBudget(MOST, "Bodies")
    held: list[tuple[str, int]] = []
    waiting: dict[asyncio.Task[None], tuple[str, int]] = {}

    def check() -> None:
        assert budget.used == sum(size for _, size in held)
        assert budget.used <= MOST or len(held) == 1
        for account in {account for account, _ in held}:
            sizes = [size for other, size in held if other == account]
            assert budget.by_account[account] == sum(sizes)
            assert sum(sizes) <= budget.share or len(sizes) == 1
        for account, claims in budget.waiting.items():
            used = budget.by_account.get(account, 0)
            if not used or used + claims[0].size <= budget.share:  # then only the host may have no room for the next
                break
        else:
            return
        assert budget.used
        assert budget.used + claims[0].size > MOST

    for _ in range(200):
        act = random.random()
        if act < 0.5:
            account, size = f"account {random.randrange(accounts)}", random.choice([1, 5, 20, 25, 26, 60, 150])
            waiting[asyncio.create_task(budget.take(account, size, PATIENCE_S))] = (account, size)
        elif act < 0.85 and held:
            budget.give_back(*held.pop(random.randrange(len(held))))
        elif waiting:
            random.choice([*waiting]).cancel()
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        for task in [task for task in waiting if task.done()]:
            taken = waiting.pop(task)
            if not task.cancelled():
                held.append(taken)
        if all(claim.granted.done() is False for claims in budget.waiting.values() for claim in claims):
            granted = [one for task, one in waiting.items() if not task.done()]
            if budget.used == sum(size for _, size in held):  # nobody is between the grant and its task's next step
                check()
            assert len(granted) >= sum(len(claims) for claims in budget.waiting.values())
    while waiting or held:
        if held:
            budget.give_back(*held.pop())
        await asyncio.sleep(0)
        for task in [task for task in waiting if task.done()]:
            taken = waiting.pop(task)
            if not task.cancelled():
                held.append(taken)
    assert budget.used == 0
    assert not budget.by_account
    assert not budget.waiting


async def test_accounts_take_turns() -> None:
    budget = ByteBudget(MOST, "Bodies", share=MOST)
    await budget.take("first", MOST, PATIENCE_S)
    order: list[str] = []

    async def one(account: str) -> None:
        await budget.take(account, MOST, PATIENCE_S)
        order.append(account)
        budget.give_back(account, MOST)

    tasks = [asyncio.create_task(one(account)) for account in ("greedy", "greedy", "greedy", "modest", "third")]
    await until(lambda: sum(map(len, budget.waiting.values())) == 5)
    budget.give_back("first", MOST)
    await asyncio.gather(*tasks)
    assert order == ["greedy", "modest", "third", "greedy", "greedy"]


async def test_a_large_claim_is_not_passed_for_ever_by_small_ones() -> None:
    budget = ByteBudget(MOST, "Bodies", share=MOST)
    await budget.take("a", 60, PATIENCE_S)
    large = asyncio.create_task(budget.take("b", 80, PATIENCE_S))
    await until(lambda: budget.waiting)
    assert not budget.try_take("c", 10)
    budget.give_back("a", 60)
    await large
    assert budget.try_take("c", 10)


async def test_who_waits_too_long_is_told_whose_bodies_are_in_the_way() -> None:
    budget = ByteBudget(MOST, "Bodies")
    await budget.take("a", 25, PATIENCE_S)
    with pytest.raises(TooManyRequests) as own:
        await budget.take("a", 1, 0.001)
    assert own.value.retry_after
    for account in "bcd":
        await budget.take(account, 25, PATIENCE_S)
    with pytest.raises(Unavailable) as others:
        await budget.take("e", 1, 0.001)
    assert others.value.retry_after
    assert not budget.waiting


async def test_readers_of_the_same_body_share_one_copy_which_goes_with_the_last() -> None:
    bodies = Bodies(8 * LARGE)
    made = 0

    async def make() -> Made:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return Made(bytes(LARGE + made))

    readers = [BodyReader(bodies, "a", never) for _ in range(20)]
    found = await asyncio.gather(*(reader.read(2 * LARGE, "key", make) for reader in readers))
    assert made == 1
    assert {id(one.data) for one in found} == {id(found[0].data)}
    assert bodies.budget.used == LARGE + 1, "what was taken is corrected to what it turned out to be"
    for reader in readers[:-1]:
        reader.release()
    late = BodyReader(bodies, "a", never)
    assert (await late.read(2 * LARGE, "key", make)).data is found[0].data
    late.release()
    readers[-1].release()
    assert bodies.budget.used == 0
    assert not bodies.shared
    other = BodyReader(bodies, "a", never)
    assert (await other.read(2 * LARGE, "key", make)).data is not found[0].data


async def test_a_body_that_is_made_is_let_go_while_there_is_no_room() -> None:
    bodies = Bodies(4 * LARGE)
    first, second = BodyReader(bodies, "a", never), BodyReader(bodies, "a", never)
    found = [Made(b"x" * (LARGE + 1))]
    await first.read(LARGE + 1, None, never, found)  # type: ignore[arg-type]  # it is not made again
    made: list[str] = []

    async def again() -> Made:
        made.append("again")
        return Made(b"y" * (LARGE + 1))

    found = [Made(b"x" * (LARGE + 1))]
    reading = asyncio.create_task(second.read(LARGE + 1, None, again, found))
    await until(lambda: bodies.budget.waiting)
    assert not found
    assert not made
    first.release()
    assert (await reading).data[:1] == b"y"


async def test_a_client_that_leaves_gives_its_place_up() -> None:
    bodies = Bodies(4 * LARGE)
    gone = asyncio.Event()

    class Left(Exception):
        pass

    async def left() -> None:
        await gone.wait()
        raise Left

    async def make() -> Made:
        return Made(bytes(LARGE + 1))

    first, second = BodyReader(bodies, "a", never), BodyReader(bodies, "a", left)
    await first.read(LARGE + 1, None, make)
    reading = asyncio.create_task(second.read(LARGE + 1, None, make))
    await until(lambda: bodies.budget.waiting)
    gone.set()
    with pytest.raises(Left):
        await reading
    await until(lambda: not bodies.budget.waiting)
    first.release()
    assert bodies.budget.used == 0


async def test_a_body_that_cannot_be_made_fails_for_all_and_takes_nothing() -> None:
    bodies = Bodies(4 * LARGE)

    async def make() -> Made:
        await asyncio.sleep(0)
        raise Unavailable("not now")

    readers = [BodyReader(bodies, "a", never) for _ in range(3)]
    found = await asyncio.gather(*(reader.read(2 * LARGE, "key", make) for reader in readers), return_exceptions=True)
    assert [type(one) for one in found] == [Unavailable] * 3
    assert bodies.budget.used == 0
    assert not bodies.shared
