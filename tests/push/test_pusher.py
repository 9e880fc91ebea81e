"""Every entry reaches its webhook at least once and in order, whatever becomes of webhooks, workers and the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from roost.engine import push, push_delivery, push_slots
from roost.engine.push import Pusher
from roost.engine.push_delivery import PushRules
from roost.engine.store_types import PushConfig
from roost.engine.webhook import Undeliverable, delivery_id
from roost.identity.seal import Seal, new_key
from roost.protocol.codec import decoder
from roost.protocol.types import StreamResponse, TaskState
from tests.push.fakes import RULES, URL, SharedStore, Store, Task, Webhooks, die, pushing, webhook
from tests.waiting import until


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def sender() -> Webhooks:
    return Webhooks()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "LOOK_S", 0.02)
    monkeypatch.setattr(push, "TROUBLE_S", 0.02)


async def begun(store: Store, pusher: Pusher, *, cursor: int = 0) -> Task:
    task = Task(store)
    config = webhook(task, cursor)
    await task.begin(config, pusher.worker.name)
    pusher.hold_new(config)
    return task


async def at_rest(store: Store, task: Task, pusher: Pusher) -> None:
    await until(lambda: store.push(task.id).due is None and task.id not in pusher.held)


async def has_looked(store: Store, pusher: Pusher) -> None:
    """Wait until the pusher has looked for all that is due from beginning to end, and nothing is under way."""
    looks = store.looks
    await until(lambda: store.looks >= looks + 2 and not pusher.running)


async def test_every_entry_is_sent_in_order_and_then_nothing_is_kept_in_memory(store, sender):
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        for _ in range(50):
            await task.say()
            pusher.kick([task.id])
        await task.end()
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(*range(1, 53))
        assert store.push(task.id).config.cursor == 52
        assert (store.push(task.id).holder, pusher.held, pusher.running) == (None, {}, set())
        assert pusher.stats.pushes == {"delivered": 52, "failed": 0, "refused": 0, "dead": 0}


async def test_an_active_task_costs_no_coroutine(store, sender):
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: sender.calls and not pusher.running and not pusher.moves.task)
        push = store.push(task.id)
        assert (push.holder, push.config.cursor, push.due is not None) == ("w1", 1, True)
        assert task.id in pusher.held


async def test_cursors_of_many_are_written_together(store, sender):
    async with pushing(store, sender) as pusher:
        tasks = [await begun(store, pusher) for _ in range(100)]
        for task in tasks:
            await task.end()
        pusher.kick([task.id for task in tasks])
        await until(lambda: not pusher.held)
        assert len(sender.calls) == 200
        assert len(store.moves) < 200


async def test_a_failure_is_tried_again_after_twice_the_time_each(store, sender, monkeypatch):
    monkeypatch.setattr(push_delivery, "jittered", lambda seconds: seconds)
    sender.answers[URL] = [500, Undeliverable("no connection", final=False), 302, 503, 200]
    async with pushing(store, sender, RULES._replace(attempts=7)) as pusher:
        task = await begun(store, pusher)
        await task.end()
        await at_rest(store, task, pusher)
        failed = [move for move in store.moves if move.attempts]
        assert [move.attempts for move in failed] == [1, 2, 3, 4]
        assert [move.delay_s for move in failed] == [0.002, 0.004, 0.008, 0.016]
        assert [move.cursor for move in failed] == [0] * 4
        assert [move.error for move in failed] == [
            "it answered 500",
            "no connection",
            "it answered 302, redirects are not followed",
            "it answered 503",
        ]
        assert sender.bodies() == [*task.bodies(1) * 5, *task.bodies(2)]
        pushed = store.push(task.id)
        assert (pushed.attempts, pushed.error) == (0, "")
        assert pusher.stats.pushes == {"delivered": 2, "failed": 4, "refused": 0, "dead": 0}


async def test_waits_are_never_longer_than_an_hour(store, sender, monkeypatch):
    monkeypatch.setattr(push_delivery, "jittered", lambda seconds: seconds)
    sender.answers[URL] = 500
    async with pushing(store, sender, PushRules(attempts=100, retry_s=1e6)) as pusher:
        task = await begun(store, pusher)
        await until(lambda: store.push(task.id).attempts)
        assert store.moves[-1].delay_s == 3600


async def test_every_try_of_an_event_has_the_same_delivery_id(store, sender):
    sender.answers[URL] = [500, 500]
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await task.end()
        await at_rest(store, task, pusher)
        ids = [call.headers["X-Roost-Delivery-Id"] for call in sender.calls]
        assert ids == [*[delivery_id(task.id, "hook", 1)] * 3, delivery_id(task.id, "hook", 2)]


async def test_what_is_not_taken_is_a_dead_letter_and_the_next_comes(store, sender):
    sender.answers[URL] = [500] * 3
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await task.end()
        await at_rest(store, task, pusher)
        (dead,) = store.dead
        assert (dead.task_id, dead.config_id, dead.seq, dead.attempts) == (task.id, "hook", 1, 3)
        assert dead.error == "it answered 500"
        assert sender.bodies() == [*task.bodies(1) * 3, *task.bodies(2)]
        assert (store.push(task.id).buried, store.push(task.id).paused) == (0, False)


async def test_after_three_dead_letters_in_a_row_the_webhook_is_left_alone_until_a_retry(store, sender):
    sender.answers[URL] = 500
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        for _ in range(4):
            await task.say()
        await task.end()
        await until(lambda: store.push(task.id).paused)
        assert [dead.seq for dead in store.dead] == [1, 2, 3]
        assert task.id not in pusher.held
        pusher.kick([task.id])
        await pusher.hold_task(task.id)
        await has_looked(store, pusher)
        assert len(sender.calls) == 9
        sender.answers[URL] = 200
        sender.calls.clear()
        assert await store.retry_pushes(None, None) == 1
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(*range(1, 7))
        assert store.dead == []


async def test_an_address_that_is_refused_is_tried_once(store, sender):
    sender.answers[URL] = [Undeliverable("it is not public", final=True)]
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await task.end()
        await at_rest(store, task, pusher)
        (dead,) = store.dead
        assert (dead.seq, dead.attempts, dead.error) == (1, 1, "it is not public")
        assert pusher.stats.pushes == {"delivered": 1, "failed": 0, "refused": 1, "dead": 1}


async def test_a_webhook_that_is_gone_is_left_alone_at_once(store, sender):
    sender.answers[URL] = 410
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: store.push(task.id).paused)
        pushed = store.push(task.id)
        assert (pushed.config.cursor, pushed.error, store.dead) == (0, "it answered 410, it is gone", [])
        assert len(sender.calls) == 1
        sender.answers[URL] = 200
        await store.retry_pushes(task.id, "hook")
        await until(lambda: store.push(task.id).config.cursor == 1)


async def test_a_long_wait_is_for_whoever_is_there_who_counts_on(sender, monkeypatch):
    monkeypatch.setattr(push_delivery, "KEEP_S", 0.0)
    store = SharedStore()
    sender.answers[URL] = 500
    async with pushing(store, sender, RULES._replace(retry_s=600.0)) as first:
        task = await begun(store, first)
        await until(lambda: store.push(task.id).attempts == 1)
        await until(lambda: (store.push(task.id).holder, first.held) == (None, {}))
        die(first)
    store.make_due(task.id)
    async with pushing(store, sender, worker="w2") as second:
        await until(lambda: store.dead)
        assert store.dead[0].attempts == 3
        assert len(sender.calls) == 3
        assert second.stats.pushes["failed"] == 2


async def test_a_short_wait_does_not_go_with_the_worker_that_waits(sender, monkeypatch):
    monkeypatch.setattr(push_delivery, "KEEP_S", 3600.0)
    store = SharedStore()
    sender.answers[URL] = [500]
    async with pushing(store, sender, RULES._replace(retry_s=600.0)) as first:
        task = await begun(store, first)
        await until(lambda: store.push(task.id).attempts == 1 and not first.running)
        die(first)
    store.workers_dead.add("w1")
    store.make_due(task.id)
    async with pushing(store, sender, worker="w2"):
        await until(lambda: store.push(task.id).config.cursor == 1)
        assert store.push(task.id).holder == "w2"


async def test_what_was_delivered_and_written_down_is_not_sent_again_after_a_crash(sender):
    store = SharedStore()
    async with pushing(store, sender) as first:
        task = await begun(store, first)
        await task.say()
        first.kick([task.id])
        await until(lambda: store.push(task.id).config.cursor == 2)
        sender.shut[URL] = asyncio.Event()
        await task.end()
        first.kick([task.id])
        await until(lambda: len(sender.calls) == 3)
        die(first)
    del sender.shut[URL]
    async with pushing(store, sender, worker="w2") as second:
        await has_looked(store, second)
        assert len(sender.calls) == 3, "its holder is alive"
        store.workers_dead.add("w1")
        await at_rest(store, task, second)
        assert sender.bodies() == task.bodies(1, 2) + task.bodies(3) * 2


async def test_a_worker_whose_hook_was_taken_over_stops(sender):
    store = SharedStore()
    async with pushing(store, sender) as first, pushing(store, sender, worker="w2", started=False) as second:
        task = await begun(store, first)
        await until(lambda: store.push(task.id).config.cursor == 1 and not first.running)
        sender.shut[URL] = asyncio.Event()
        for _ in range(20):
            await task.say()
        first.kick([task.id])
        await until(lambda: len(sender.calls) == 2)
        store.workers_dead.add("w1")
        second.start()
        await until(lambda: len(sender.calls) == 3)
        store.workers_dead.clear()
        sender.shut.pop(URL).set()
        await until(lambda: task.id not in first.held and not first.running)
        await until(lambda: store.push(task.id).config.cursor == 21 and not second.running)
        assert store.push(task.id).holder == "w2"


async def test_a_config_that_is_replaced_during_a_call_begins_where_it_says(store, sender):
    other = "https://other.example.com/"
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        for _ in range(5):
            await task.say()
        sender.shut[URL] = asyncio.Event()
        await until(lambda: sender.calls)
        assert await pusher.put(webhook(task, 4, url=other))
        sender.shut.pop(URL).set()
        await task.end()
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        assert sender.bodies(other) == task.bodies(5, 6, 7)
        assert len(sender.bodies()) == 1
        assert len(store.pushes) == 1


async def test_a_config_that_is_deleted_during_a_call_is_not_called_again(store, sender):
    sender.shut[URL] = asyncio.Event()
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await task.end()
        await until(lambda: sender.calls)
        await pusher.delete(task.id, "hook")
        sender.shut.pop(URL).set()
        await has_looked(store, pusher)
        assert len(sender.calls) == 1
        assert (store.pushes, pusher.held) == ({}, {})


async def test_a_change_that_the_store_refused_leaves_the_config_as_it_was(store, sender, monkeypatch):
    async def refuse(config: PushConfig, worker: str) -> bool:
        raise push.StoreUnavailable("down")

    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: store.push(task.id).config.cursor == 1)
        with monkeypatch.context() as broken:
            broken.setattr(store, "put_push", refuse)
            with pytest.raises(push.StoreUnavailable):
                await pusher.put(webhook(task, 1, url="https://other.example.com/"))
        await task.end()
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(1, 2)


async def test_while_the_store_writes_nothing_nothing_is_sent_twice(store, sender):
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: sender.calls)
        store.down = True
        await task.end()
        pusher.kick([task.id])
        await until(lambda: len(sender.calls) == 2)
        looks = store.looks
        await until(lambda: store.refused and store.looks >= looks + 2)
        store.down = False
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(1, 2)


async def test_what_was_held_by_an_answer_that_was_lost_is_found_again(store, sender):
    store.loses_holds = True
    task = Task(store)
    await task.begin(webhook(task), "nobody")
    await task.end()
    async with pushing(store, sender) as pusher:
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(1, 2)
        assert not pusher.amiss


async def test_a_paused_task_that_goes_on_is_heard_of_again(store, sender):
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await task.say(TaskState.INPUT_REQUIRED)
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        await task.say(goes_on=True)
        await pusher.hold_task(task.id)
        await task.end()
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(1, 2, 3, 4)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_task_that_goes_on_in_the_moment_its_config_comes_to_rest(store, sender, monkeypatch, before):
    """Just before the store puts it to rest, or just after."""
    real = store.move_pushes

    async def move(worker, moves):
        resting = any(move.delay_s is None for move in moves) and task.head.state is TaskState.INPUT_REQUIRED
        if resting and before:
            await task.say(goes_on=True)
            pusher.kick([task.id])
            await pusher.hold_task(task.id)
        moved = await real(worker, moves)
        if resting and not before:
            await task.say(goes_on=True)
            pusher.kick([task.id])
            await pusher.hold_task(task.id)
        return moved

    monkeypatch.setattr(store, "move_pushes", move)
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await task.say(TaskState.INPUT_REQUIRED)
        pusher.kick([task.id])
        await until(lambda: sender.bodies() == task.bodies(1, 2, 3))
        await task.end()
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(1, 2, 3, 4)


async def test_a_direct_exchange_is_no_news_until_it_is_a_task(store, sender):
    async with pushing(store, sender) as pusher:
        direct, task = Task(store, hidden=True), Task(store, hidden=True)
        for exchange in (direct, task):
            config = webhook(exchange)
            await exchange.begin(config)
            pusher.hold_new(config)
        await until(lambda: not pusher.running)
        await direct.end()
        task.hidden = False
        await task.end()
        pusher.kick([direct.id, task.id])
        await at_rest(store, task, pusher)
        await until(lambda: not pusher.held)
        assert sender.bodies() == task.bodies(1, 2)
        assert (direct.id, "hook") not in store.pushes


async def test_a_slow_host_takes_only_its_own_slots(store, sender, monkeypatch):
    monkeypatch.setattr(push_delivery, "CALLS", 4)
    slow = [f"https://slow.example.com/{number}" for number in range(10)]
    sender.shut = dict.fromkeys(slow, asyncio.Event())
    async with pushing(store, sender, RULES._replace(per_host=2)) as pusher:
        for url in (*slow, *(f"https://quick.example.com/{number}" for number in range(20))):
            task = Task(store)
            config = webhook(task, url=url)
            await task.begin(config)
            pusher.hold_new(config)
        await until(lambda: len([call for call in sender.calls if "quick" in call.url]) == 20)
        assert sender.most == {"slow.example.com": 2, "quick.example.com": 2}
        sender.shut[slow[0]].set()
        await until(lambda: len(sender.calls) == 30)
        assert sender.most["slow.example.com"] == 2


async def test_a_crowd_at_one_host_waits_in_the_store(store, sender, monkeypatch):
    monkeypatch.setattr(push_slots, "CROWD", 5)
    sender.shut[URL] = asyncio.Event()
    async with pushing(store, sender) as pusher:
        for _ in range(12):
            await begun(store, pusher)
        await until(lambda: len(pusher.held) == 5)
        waiting = [held for held in store.pushes.values() if held.holder is None]
        assert len(waiting) == 7
        assert {held.attempts for held in waiting} == {0}
        sender.shut.pop(URL).set()


async def test_what_comes_within_the_window_is_sent_as_one_task(store, sender, monkeypatch):
    window = asyncio.Event()
    monkeypatch.setattr(push_delivery, "asyncio", SimpleNamespace(sleep=lambda _: window.wait()))
    async with pushing(store, sender, RULES._replace(coalesce_s=0.05)) as pusher:
        task = await begun(store, pusher)
        for _ in range(5):
            await task.say()
            pusher.kick([task.id])
        window.set()
        await until(lambda: sender.calls)
        (body,) = sender.bodies()
        sent = decoder(StreamResponse)(body).task
        assert sent is not None
        assert (sent.id, sent.status.state, sent.metadata) == (task.id, TaskState.WORKING, {"seq": 6})
        await task.end()
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        sent = decoder(StreamResponse)(sender.bodies()[1]).task
        assert sent is not None
        assert sent.status.state is TaskState.COMPLETED
        assert store.push(task.id).config.cursor == 7
        ids = [call.headers["X-Roost-Delivery-Id"] for call in sender.calls]
        assert ids == [delivery_id(task.id, "hook", 6), delivery_id(task.id, "hook", 7)]


async def test_with_another_key_a_config_waits_for_one_who_has_its_own(sender, monkeypatch, caplog):
    monkeypatch.setattr(push_delivery, "WRONG_KEY_S", 0.05)
    store = SharedStore()
    async with pushing(store, sender, seal=Seal(new_key())) as pusher:
        task = await begun(store, pusher)
        await until(lambda: store.push(task.id).error)
        assert "another key" in store.push(task.id).error
        assert (store.push(task.id).paused, store.push(task.id).holder, sender.calls) == (False, None, [])
    async with pushing(store, sender, worker="w2"):
        await until(lambda: store.push(task.id).config.cursor == 1)


async def open_when(gate: asyncio.Event, holds: Callable[[], object]) -> None:
    await until(holds)
    gate.set()


async def test_whoever_closes_leaves_what_is_left_to_others_at_once(sender):
    store = SharedStore()
    async with pushing(store, sender) as first:
        task = await begun(store, first)
        sender.shut[URL] = asyncio.Event()
        await until(lambda: sender.calls)
        await task.end()
        gate = sender.shut.pop(URL)
        opening = asyncio.create_task(open_when(gate, lambda: first.closing))
    await opening
    assert sender.bodies() == task.bodies(1), "the call under way came to its end, and no other was begun"
    assert (store.push(task.id).holder, store.push(task.id).config.cursor) == (None, 1)
    async with pushing(store, sender, worker="w2") as second:
        await at_rest(store, task, second)
        assert sender.bodies() == task.bodies(1, 2)


async def test_a_call_that_does_not_end_does_not_hold_up_the_close(sender, monkeypatch):
    monkeypatch.setattr(push, "CLOSE_S", 0.05)
    store = SharedStore()
    sender.shut[URL] = asyncio.Event()
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: sender.calls)
    assert (store.push(task.id).holder, store.push(task.id).config.cursor) == (None, 0)


async def test_a_worker_that_lost_its_lease_begins_anew_with_nothing(sender):
    store = SharedStore()
    async with pushing(store, sender) as pusher:
        sender.shut[URL] = asyncio.Event()
        task = await begun(store, pusher)
        await until(lambda: sender.calls)
        pusher.worker.name = "w1+1"
        pusher.lapse()
        assert (pusher.held, store.push(task.id).holder) == ({}, "w1")
        store.workers_dead.add("w1")
        sender.shut.pop(URL).set()
        await until(lambda: store.push(task.id).config.cursor == 1)
        assert store.push(task.id).holder == "w1+1"


async def test_a_lost_wake_up_costs_time_only(sender):
    store = SharedStore()
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: sender.calls and not pusher.running)
        await task.end()
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(1, 2)


async def test_a_task_that_is_not_kept_any_more_is_forgotten(store, sender):
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: sender.calls and not pusher.running and not pusher.moves.task)
        store.lose(task.id)
        pusher.kick([task.id])
        pusher.held[task.id]["hook"].settled = None
        await until(lambda: not pusher.held)
        assert len(sender.calls) == 1


async def test_no_secret_is_in_the_log(store, sender, caplog):
    caplog.set_level(logging.DEBUG)
    sender.answers[URL] = [500, Undeliverable("it is not public", final=True), 410]
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await task.end()
        await until(lambda: store.push(task.id).paused)
    assert "hooks.example.com:443" in caplog.text
    assert "k3y" not in caplog.text
    assert "/in" not in caplog.text


async def test_an_error_that_nobody_foresaw_is_logged_without_its_text(store, sender, caplog, monkeypatch):
    async def broken(url, headers, body):
        raise RuntimeError(url)

    async with pushing(store, sender) as pusher:
        with monkeypatch.context() as patched:
            patched.setattr(sender, "post", broken)
            task = await begun(store, pusher)
            await until(lambda: "RuntimeError" in caplog.text)
        await until(lambda: store.push(task.id).config.cursor == 1)
    assert "k3y" not in caplog.text


async def test_the_outbox_is_counted(store, sender):
    sender.answers[URL] = Undeliverable("it is not public", final=True)
    async with pushing(store, sender) as pusher:
        await begun(store, pusher)
        await until(lambda: (pusher.stats.push_outbox, pusher.stats.push_dead) == (1, 1))


async def test_what_another_host_deleted_or_replaced_is_not_called(sender):
    store = SharedStore()
    async with pushing(store, sender) as pusher:
        deleted, replaced = await begun(store, pusher), await begun(store, pusher)
        await until(lambda: len(sender.calls) == 2 and not pusher.running and not pusher.moves.task)
        await store.delete_push(deleted.id, "hook")
        await store.put_push(webhook(replaced, 1, url="https://other.example.com/"), "w2")
        for task in (deleted, replaced):
            await task.end()
        pusher.kick([deleted.id, replaced.id])
        await until(lambda: not pusher.held)
        assert len(sender.calls) == 2
        assert store.push(replaced.id).holder == "w2"


async def test_while_the_store_reads_nothing_what_is_pending_waits(store, sender, caplog):
    async with pushing(store, sender) as pusher:
        caplog.set_level(logging.DEBUG)
        task = await begun(store, pusher)
        await until(lambda: sender.calls and not pusher.running and not pusher.moves.task)
        store.unreadable = True
        await task.end()
        pusher.kick([task.id])
        await until(lambda: "waits for the store" in caplog.text)
        store.unreadable = False
        await at_rest(store, task, pusher)
        assert sender.bodies() == task.bodies(1, 2)


async def test_what_went_on_while_the_store_was_down_is_found_when_it_is_back(store, sender):
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await task.say(TaskState.INPUT_REQUIRED)
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        await task.say(goes_on=True)
        store.unreadable = True
        await pusher.hold_task(task.id)
        assert pusher.held == {}
        store.unreadable = False
        await until(lambda: sender.bodies() == task.bodies(1, 2, 3))


async def test_a_config_that_is_deleted_while_it_is_being_taken_over_is_not_called(store, sender):
    task = Task(store)
    await task.begin(webhook(task), "nobody")
    store.answers.clear()
    async with pushing(store, sender) as pusher:
        await until(lambda: store.unanswered)
        assert store.push(task.id).holder == "w1"
        await pusher.delete(task.id, "hook")
        store.answers.set()
        await until(lambda: not store.unanswered and not pusher.unsure)
        await has_looked(store, pusher)
        assert (sender.calls, pusher.held, store.pushes) == ([], {}, {})


async def test_a_config_that_is_replaced_while_the_store_is_asked_is_the_new_one(store, sender):
    other = "https://other.example.com/"
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: sender.calls and not pusher.running and not pusher.moves.task)
        store.answers.clear()
        asking = asyncio.create_task(pusher.hold_task(task.id))
        await until(lambda: store.unanswered)
        await pusher.put(webhook(task, 1, url=other))
        store.answers.set()
        await asking
        await task.end()
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        assert (sender.bodies(), sender.bodies(other)) == (task.bodies(1), task.bodies(2))


async def test_two_who_replace_a_config_at_the_same_time_leave_one_of_theirs(store, sender):
    urls = [f"https://other.example.com/{number}" for number in range(5)]
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await asyncio.gather(*(pusher.put(webhook(task, 1, url=url)) for url in urls))
        await task.end()
        pusher.kick([task.id])
        await at_rest(store, task, pusher)
        assert [url for url in urls if sender.bodies(url)] == urls[-1:]


async def test_whoever_closes_gives_back_what_waits_for_its_next_try(sender, monkeypatch):
    monkeypatch.setattr(push_delivery, "KEEP_S", 3600.0)
    store = SharedStore()
    sender.answers[URL] = 500
    async with pushing(store, sender, RULES._replace(retry_s=600.0)) as pusher:
        task = await begun(store, pusher)
        await until(lambda: store.push(task.id).attempts == 1)
        await until(lambda: not pusher.running)
    assert (store.push(task.id).holder, store.push(task.id).attempts) == (None, 1)


async def test_after_the_close_nothing_is_held(store, sender):
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: sender.calls)
    pusher.hold_new(webhook(task))
    await pusher.hold_task(task.id)
    await pusher.put(webhook(task))
    assert pusher.held == {}


async def test_a_store_that_does_not_answer_does_not_hold_up_the_close(store, sender, monkeypatch):
    monkeypatch.setattr(push, "CLOSE_S", 0.05)
    async with pushing(store, sender) as pusher:
        await begun(store, pusher)
        await until(lambda: sender.calls)
        store.down = True
    assert pusher.held == {}


async def test_a_retry_while_a_call_is_under_way_waits_for_it(store, sender):
    """An operator retries what failed before: the webhook has one call at a time all the same."""
    sender.answers[URL] = [500, 500, 500]
    async with pushing(store, sender) as pusher:
        task = await begun(store, pusher)
        await until(lambda: store.dead)
        sender.shut[URL] = asyncio.Event()
        await task.say()
        pusher.kick([task.id])
        await until(lambda: sender.now["hooks.example.com"] == 1)
        assert await store.retry_pushes(task.id, "hook") == 1
        pusher.hurry.set()
        await until(lambda: store.push(task.id).holder == "w1")
        calls = len(sender.calls)
        sender.shut.pop(URL).set()
        await until(lambda: sender.bodies()[calls:] == task.bodies(1, 2))
        assert sender.most["hooks.example.com"] == 1
