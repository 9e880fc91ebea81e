"""The guarantees of every store on which the engine relies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from roost.engine.ports import Store
from roost.engine.stats import size_of
from roost.engine.store_types import (
    COUNT_CAP,
    Adopted,
    Append,
    ListQuery,
    NewTask,
    Party,
    Position,
    Push,
    Reserved,
    Scope,
    Snapshot,
    StaleFence,
    Stored,
    StoredUsage,
    Taken,
    Tombstone,
    Update,
    UsageDelta,
)
from roost.protocol.entries import Entry
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import TaskState

from .samples import (
    SCOPE,
    WORKER,
    addition,
    answer,
    config,
    creation,
    dead,
    ended,
    entry,
    head,
    move,
    query,
    reservation,
    snapshot,
)

WORKING, COMPLETED, INPUT_REQUIRED = TaskState.WORKING, TaskState.COMPLETED, TaskState.INPUT_REQUIRED
LEASE_S = 600.0


async def alive(store: Store, *workers: str) -> None:
    """Give these workers a lease. In a store for one process only the caller is alive, whatever its name."""
    if store.shared:
        for worker in workers:
            assert await store.renew(worker, LEASE_S)


async def commit(store: Store, *group: Append) -> None:
    assert await store.commit(group) == [None] * len(group)


async def entries_of(store: Store, task_id: str) -> list[Entry]:
    return await store.read_entries(task_id, -1, 10_000, wire=False)


async def listed(store: Store, **changes: object) -> list[str]:
    return [stored.new.id for stored in (await store.list_tasks(query(**changes))).tasks]


# Committing and reading back


async def test_what_is_committed_is_read_back(store: Store) -> None:
    append = creation("t", context_id="c", created=7, status_time=8, state=WORKING, snapshot=snapshot("t"))
    await commit(store, append)
    assert await store.read_task("t") == Stored(
        NewTask("t", SCOPE, "c", 7), head(WORKING, status_time=8), snapshot("t")
    )
    assert await entries_of(store, "t") == append.entries


async def test_a_task_is_read_for_its_owner_only_where_one_is_named(store: Store) -> None:
    owner = "\0 the owner's"
    await commit(store, creation("t", scope=SCOPE._replace(owner=owner), snapshot=snapshot("t")))
    found = await store.read_task("t")
    assert found is not None
    assert await store.read_task("t", owner) == found
    for other in ("", "owner", "\0 the owner"):
        assert await store.read_task("t", other) is None
    assert await store.read_task("u", owner) is None


async def test_what_was_never_committed_is_not_there(store: Store) -> None:
    assert await store.read_task("t") is None
    assert await entries_of(store, "t") == []
    assert await store.read_internal("t") == []
    assert (await store.list_tasks(query()))[:2] == ([], 0)


async def test_an_empty_group_is_committed(store: Store) -> None:
    assert await store.commit([]) == []


async def test_a_group_of_many_tasks_is_committed_together(store: Store) -> None:
    group = [creation(f"t{number:03}", status_time=number) for number in range(300)]
    await commit(store, *group)
    await commit(store, *(addition(append.task_id, entry(2), head=head(WORKING)) for append in group))
    for append in group:
        assert await entries_of(store, append.task_id) == [*append.entries, entry(2)]
    assert (await store.list_tasks(query(state=WORKING))).total == 300


async def test_new_tasks_and_more_of_old_ones_go_into_one_group(store: Store) -> None:
    await commit(store, creation("old"))
    await commit(store, addition("old", entry(2)), creation("new"), addition("old", entry(3)))
    assert [found.seq for found in await entries_of(store, "old")] == [0, 1, 2, 3]
    assert await entries_of(store, "new") == [entry(0, 1), entry(1)]


async def test_an_append_without_a_head_leaves_the_head(store: Store) -> None:
    await commit(store, creation("t", state=WORKING, status_time=5))
    await commit(store, addition("t", entry(2)))
    found = await store.read_task("t")
    assert found is not None
    assert found.head == head(WORKING, status_time=5)


async def test_a_head_moves_without_entries(store: Store) -> None:
    await commit(store, creation("t", hidden=True))
    await commit(store, addition("t", head=head(COMPLETED, worker=None, status_time=9)))
    found = await store.read_task("t")
    assert found is not None
    assert found.head == head(COMPLETED, worker=None, status_time=9)
    assert await entries_of(store, "t") == [entry(0, 1), entry(1)]


async def test_a_snapshot_is_kept_until_a_later_one_replaces_it(store: Store) -> None:
    await commit(store, creation("t"))
    found = await store.read_task("t")
    assert found is not None
    assert found.snapshot is None
    for seq in (2, 3):
        later = Snapshot(seq, 0, b'{"id":"t"}', b'[{"n":%d}]' % seq)
        await commit(store, addition("t", entry(seq), snapshot=later))
        found = await store.read_task("t")
        assert found is not None
        assert found.snapshot == later
    await commit(store, addition("t", entry(4), head=head(COMPLETED)))
    found = await store.read_task("t")
    assert found is not None
    assert found.snapshot == later


async def test_large_blobs_are_kept(store: Store) -> None:
    data = bytes(range(256)) * 4096 * 3
    big = Snapshot(2, 0, b'{"id":"t"}', data)
    await commit(store, creation("t"), creation("other"))
    await commit(store, addition("t", entry(2, data=data), snapshot=big))
    assert await store.read_entries("t", 1, 10, wire=True) == [entry(2, data=data)]
    found = await store.read_task("t")
    assert found is not None
    assert found.snapshot == big


@pytest.mark.parametrize("text", ["ä", "任务", "😀", "a b", "a\x00b", "a'b\"c;--", "%_", "x" * 4000])
async def test_every_kind_of_text_is_kept_and_told_apart(store: Store, text: str) -> None:
    scope = Scope(text, f"{text}o", f"{text}a")
    append = creation(text, entry(0, 1, text.encode()), scope=scope, context_id=text)
    await commit(store, append, creation(text.upper() + "other"))
    found = await store.read_task(text)
    assert found is not None
    assert found.new == append.create
    assert await entries_of(store, text) == append.entries
    assert await listed(store, scope=scope, context_id=text) == [text]
    assert await listed(store, context_id=text) == []


# Entries


async def some_entries(store: Store) -> list[Entry]:
    """Entries over several commits, with internal ones at the ends of commits, in the middle, and alone."""
    commits = [
        [entry(0, 1), entry(1)],
        [entry(2), entry(2, 1), entry(2, 2), entry(3)],
        [entry(3, 1)],
        [entry(3, 2)],
        [entry(4), entry(5), entry(6)],
        [entry(6, 1), entry(7)],
        [entry(8)],
    ]
    await commit(store, creation("t", *commits[0]), creation("other", entry(0, 1), entry(1), entry(2)))
    for some in commits[1:]:
        await commit(store, addition("t", *some))
    return [one for some in commits for one in some]


async def test_entries_come_in_order(store: Store) -> None:
    assert await entries_of(store, "t") == []
    assert await some_entries(store) == await entries_of(store, "t")


async def test_entries_are_read_from_any_position_in_pages_of_any_size(store: Store) -> None:
    everything = await some_entries(store)
    for wire in (False, True):
        wanted = [one for one in everything if not (wire and one.sub)]
        for after in range(-1, 10):
            rest = [one for one in wanted if (one.seq, one.sub) > (after, 0)]
            for limit in (1, 2, 3, 7, 100):
                assert await store.read_entries("t", after, limit, wire=wire) == rest[:limit]


async def test_internal_entries_are_read_by_themselves(store: Store) -> None:
    everything = await some_entries(store)
    assert await store.read_internal("t") == [one for one in everything if one.sub]


async def test_updates_are_what_readers_do_not_know_with_the_head_of_the_same_moment(store: Store) -> None:
    everything = await some_entries(store)
    await commit(store, addition("t", head=head(WORKING, status_time=5)))
    assert await store.read_updates([], 10) == []
    positions = [("t", -1, 0), ("t", 0, 0), ("t", 2, 1), ("t", 3, 2), ("t", 8, 0)]
    for position in positions:
        rest = [one for one in everything if one[:2] > position[1:]]
        found = await store.read_updates([Position(*position), Position("nobody", 0, 0)], 100)
        assert found == [Update("t", head(WORKING, status_time=5), rest)]
    found = await store.read_updates([Position("t", 1, 0), Position("other", 1, 0)], 2)
    assert {update.task_id for update in found} == {"t", "other"}
    assert {update.task_id: update.entries[0] for update in found} == {"t": entry(2), "other": entry(2)}


async def test_a_commit_that_is_repeated_is_a_success_and_changes_nothing(store: Store) -> None:
    """The reply to the first commit may have been lost."""
    created = creation("t", snapshot=snapshot("t"))
    added = addition("t", entry(2), entry(2, 1), entry(3), head=head(WORKING), snapshot=snapshot("t", 3))
    for append in (created, created, added, added):
        await commit(store, append)
    before = await store.read_task("t"), await entries_of(store, "t")
    await commit(store, added)
    assert (await store.read_task("t"), await entries_of(store, "t")) == before
    assert before[1] == [*created.entries, *added.entries]


# Fences


async def test_a_stale_writer_is_refused_alone_and_the_rest_of_its_group_is_committed(store: Store) -> None:
    await alive(store, "worker-2")
    await commit(store, creation("a"), creation("b", scope=SCOPE._replace(agent="of b")), creation("c"))
    assert await store.adopt("worker-2", ["of b"], 10) == [("b", 2, False, WORKER, 3)]
    group = [
        addition("a", entry(2), head=head(WORKING)),
        addition("b", entry(2), head=head(COMPLETED), snapshot=snapshot("b")),
        creation("d"),
        addition("c", entry(2)),
        addition("nobody", entry(2)),
    ]
    results = await store.commit(group)
    assert [isinstance(result, StaleFence) for result in results] == [False, True, False, False, True]
    assert await entries_of(store, "b") == [entry(0, 1), entry(1)]
    found = await store.read_task("b")
    assert found is not None
    assert (found.head, found.snapshot) == (head(worker="worker-2", fence=2), None)
    for name in "ac":
        assert (await entries_of(store, name))[-1] == entry(2)
    assert await store.read_task("d") is not None
    assert await store.read_task("nobody") is None


async def test_an_append_may_raise_the_fence_itself(store: Store) -> None:
    """The answer to a paused task takes the task over."""
    await commit(store, creation("t", state=INPUT_REQUIRED, worker=None))
    await commit(store, addition("t", entry(2), fence=1, head=head(WORKING, worker="worker-2", fence=2)))
    [refusal] = await store.commit([addition("t", entry(3), fence=1)])
    assert isinstance(refusal, StaleFence)
    await commit(store, addition("t", entry(3), fence=2))


async def test_an_append_that_raised_the_fence_may_be_repeated_and_no_other_may_have_done_it(store: Store) -> None:
    await commit(store, creation("t", state=INPUT_REQUIRED, worker=None))
    raised = answer("t", entry(1, 1), entry(2))
    for _ in range(3):
        await commit(store, raised)
    [refusal] = await store.commit([answer("t", entry(1, 1), entry(2), entry(3))])
    assert isinstance(refusal, StaleFence)
    assert await entries_of(store, "t") == [entry(0, 1), entry(1), entry(1, 1), entry(2)]


async def test_of_two_that_raise_the_fence_from_the_same_place_one_is_refused(store: Store) -> None:
    """Two hosts receive an answer, or an answer and a cancel, at once: their appends end at the same position."""
    await commit(store, creation("t", state=INPUT_REQUIRED, worker=None))
    first = answer("t", entry(1, 1, data=b"one answer"), entry(2, data=b"goes on"))
    second = answer("t", entry(1, 1, data=b"another answer"), entry(2, data=b"goes on too"))
    await commit(store, first)
    [refusal] = await store.commit([second])
    assert isinstance(refusal, StaleFence)
    await commit(store, first)
    assert await entries_of(store, "t") == [entry(0, 1), entry(1), *first.entries]


# Leases


async def test_an_adoption_makes_its_worker_the_writer_and_outdates_the_one_before(store: Store) -> None:
    await alive(store, "worker-2")
    await commit(store, creation("t"))
    assert await store.adopt("worker-2", ["agent"], 10) == [Adopted("t", 2, False, WORKER, 1)]
    found = await store.read_task("t")
    assert found is not None
    assert found.head == head(worker="worker-2", fence=2)
    [refusal] = await store.commit([addition("t", entry(2), fence=1)])
    assert isinstance(refusal, StaleFence)
    await commit(store, addition("t", entry(2), fence=2))


async def test_an_adoption_tells_how_many_tasks_the_lost_worker_had_before_the_first(store: Store) -> None:
    await alive(store, "me")
    await commit(store, *(creation(str(number), created=number, worker="gone") for number in range(3)))
    found = [*await store.adopt("me", ["agent"], 2), *await store.adopt("me", ["agent"], 2)]
    assert [(task.task_id, task.lost, task.tasks) for task in found] == [(str(n), "gone", 3) for n in range(3)]


async def test_active_tasks_of_these_agents_whose_worker_is_gone_are_adopted_oldest_first(store: Store) -> None:
    def of(agent: str) -> Scope:
        return SCOPE._replace(agent=agent)

    await alive(store, "me")
    await commit(
        store,
        creation("3", created=3, scope=of("a"), worker="gone"),
        creation("1", created=1, scope=of("b"), worker="gone", state=WORKING),
        creation("2", created=2, scope=of("a")._replace(tenant="other"), worker=None),
        creation("5", created=5, scope=of("a"), worker="gone", hidden=True),
        creation("4b", created=4, scope=of("a"), worker="gone too"),
        creation("4a", created=4, scope=of("a"), worker="gone too"),
        creation("mine", scope=of("a"), worker="me"),
        creation("not mine", scope=of("c"), worker="gone"),
        *(creation(str(state), scope=of("a"), worker="gone", state=state) for state in TERMINAL | PAUSED),
    )
    assert await store.adopt("me", [], 100) == []
    assert await store.adopt("me", ["a", "b"], 2) == [("1", 2, False, "gone", 4), ("2", 2, True, "", 0)]
    rest = [("3", "gone", 4), ("4a", "gone too", 2), ("4b", "gone too", 2), ("5", "gone", 4)]
    rest = [(task_id, 2, False, lost, tasks) for task_id, lost, tasks in rest]
    assert await store.adopt("me", ["a", "b"], 100) == rest
    assert await store.adopt("me", ["a", "b"], 100) == []
    found = await store.read_task("5")
    assert found is not None
    assert (found.head.worker, found.head.fence, found.head.hidden) == ("me", 2, True)


async def test_a_worker_can_ask_what_it_is_to_run(store: Store) -> None:
    await alive(store, WORKER)
    await commit(store, creation("a"), creation("b", worker="other"), creation("c", state=COMPLETED, worker=None))
    assert await store.mine(WORKER, 10) == [Adopted("a", 1, False)]
    assert await store.mine(WORKER, 0) == []


async def test_of_many_that_adopt_at_once_one_has_a_task(store: Store) -> None:
    workers = [f"worker {number}" for number in range(5)] if store.shared else ["me"] * 5
    await alive(store, *workers)
    await commit(store, *(creation(f"{number:02}", worker="gone") for number in range(20)))
    adopted = await asyncio.gather(*(store.adopt(worker, ["agent"], 7) for worker in workers))
    ids = [one.task_id for some in adopted for one in some]
    assert len(ids) == len(set(ids))
    assert {one.fence for some in adopted for one in some} == {2}
    rest = await store.adopt(workers[0], ["agent"], 100)
    assert sorted(ids + [one.task_id for one in rest]) == [f"{number:02}" for number in range(20)]


async def test_a_worker_that_lives_keeps_its_tasks_and_one_that_left_does_not(store: Store) -> None:
    await alive(store, "me", "neighbour")
    await commit(store, creation("t", worker="neighbour"))
    if store.shared:
        assert await store.adopt("me", ["agent"], 10) == []
    await store.leave("neighbour")
    assert await store.adopt("me", ["agent"], 10) == [("t", 2, True, "", 0)]


async def test_a_worker_that_lost_its_lease_is_known_to_live_on(store: Store) -> None:
    assert await store.survivors(["a", "b"]) == []
    await store.survive("b")
    await store.survive("b")
    await store.survive("c")
    assert await store.survivors(["a", "b"]) == ["b"]
    assert await store.survivors([]) == []


async def test_a_lease_is_prolonged_as_often_as_it_likes(store: Store) -> None:
    for _ in range(3):
        assert await store.renew("me", LEASE_S)


async def test_the_turn_in_a_context_is_the_oldest_active_tasks(store: Store) -> None:
    """A store for one process always grants a turn, because its engine decides about turns itself."""
    await alive(store, WORKER)
    await commit(store, creation("1", created=1), creation("2", created=2), creation("alone", context_id="other"))
    assert await store.take_turn("1") is None
    assert await store.take_turn("1") is None
    assert await store.take_turn("alone") is None
    assert await store.take_turn("2") == ("1" if store.shared else None)
    await commit(store, addition("1", entry(2), head=head(COMPLETED, worker=None)))
    assert await store.take_turn("2") is None


async def test_the_word_to_cancel_is_for_whoever_runs_the_task_while_it_is_active(store: Store) -> None:
    await alive(store, WORKER, "me")
    await commit(store, creation("a"), creation("b", worker="me"), creation("over", state=COMPLETED, worker=None))
    assert await store.asked_to_cancel(WORKER) == []
    for name in ("a", "b", "b", "over", "nobody"):
        await store.ask_cancel(name)
    assert (await store.asked_to_cancel(WORKER), await store.asked_to_cancel("me")) == (["a"], ["b"])
    assert await store.asked_to_cancel(WORKER) == ["a"]
    await store.leave(WORKER)
    assert [one.task_id for one in await store.adopt("me", ["agent"], 10)] == ["a"]
    assert (await store.asked_to_cancel(WORKER), sorted(await store.asked_to_cancel("me"))) == ([], ["a", "b"])
    await commit(
        store,
        addition("a", entry(2), fence=2, head=head(COMPLETED, worker=None, fence=2)),
        addition("b", entry(2), head=head(INPUT_REQUIRED, worker=None)),
    )
    assert await store.asked_to_cancel("me") == []


# Reservations


async def refusals(store: Store, *group: Append) -> list[str | None]:
    """Return, for each append, the task that already has its reservation."""
    results = await store.commit(group)
    assert all(result is None or isinstance(result, Taken) for result in results)
    return [result.reserved.task_id if isinstance(result, Taken) else None for result in results]


async def test_a_reservation_tells_who_has_it_from_which_append_on(store: Store) -> None:
    asked = reservation("m")
    assert await store.read_reserved(asked.key) is None
    await commit(store, creation("t", reserve=asked))
    assert await store.read_reserved(asked.key) == Reserved("t", 1, asked.fingerprint)
    await commit(store, addition("t", entry(2), head=head(INPUT_REQUIRED, worker=None)))
    await commit(store, answer("t", entry(2, 1), entry(3), reserve=reservation("n", request="b")))
    assert await store.read_reserved(asked.key) == Reserved("t", 1, asked.fingerprint)
    assert await store.read_reserved(reservation("n").key) == Reserved("t", 3, "b" * 64)


async def test_a_message_that_is_on_record_is_refused_alone_with_the_task_that_it_made(store: Store) -> None:
    asked = reservation("m")
    await commit(store, creation("first", reserve=asked), creation("paused", state=INPUT_REQUIRED, worker=None))
    results = await store.commit(
        [
            creation("before", reserve=reservation("other")),
            creation("second", reserve=reservation("m", request="b"), push=config("second")),
            answer("paused", entry(2), reserve=asked),
            creation("after"),
        ]
    )
    assert [type(result) for result in results] == [type(None), Taken, Taken, type(None)]
    assert [result.reserved for result in results if isinstance(result, Taken)] == [("first", 1, "a" * 64)] * 2
    assert await store.read_task("second") is None
    assert await store.read_pushes("second") == []
    assert await entries_of(store, "paused") == [entry(0, 1), entry(1)]
    assert await store.read_task("before") is not None
    assert await store.read_task("after") is not None
    assert await store.read_reserved(asked.key) == Reserved("first", 1, asked.fingerprint)


async def test_of_two_in_one_group_that_want_the_same_one_has_it(store: Store) -> None:
    asked = reservation("m")
    await commit(store, creation("old"))
    group = [creation("a", reserve=asked), creation("b", reserve=asked), addition("old", entry(2))]
    assert await refusals(store, *group) == [None, "a", None]
    assert await store.read_task("b") is None
    assert (await entries_of(store, "old"))[-1] == entry(2)
    assert await refusals(store, *group) == [None, "a", None]


async def test_of_many_groups_at_once_that_want_the_same_one_has_it(store: Store) -> None:
    groups = [
        [creation(f"{n}", reserve=reservation("m")), creation(f"{n}!", reserve=reservation(f"{n % 3}"))]
        for n in range(12)
    ]
    answers = await asyncio.gather(*(refusals(store, *group) for group in groups))
    reserved = await store.read_reserved(reservation("m").key)
    assert reserved is not None
    expected = {f"{n}": None if f"{n}" == reserved.task_id else reserved.task_id for n in range(12)}
    assert {f"{n}": first for n, (first, _) in enumerate(answers)} == expected
    for number in range(12):
        assert (await store.read_task(f"{number}") is not None) == (f"{number}" == reserved.task_id)
    holders = [await store.read_reserved(reservation(f"{n}").key) for n in range(3)]
    won = {f"{n}!" for n, (_, second) in enumerate(answers) if second is None}
    assert {holder.task_id for holder in holders if holder is not None} == won
    assert len(won) == 3


async def test_an_append_with_a_reservation_may_be_repeated(store: Store) -> None:
    """The reply to the first commit may have been lost."""
    created = creation("t", state=INPUT_REQUIRED, worker=None, reserve=reservation("m"))
    for _ in range(2):
        assert await refusals(store, created, creation("other", reserve=reservation("o"))) == [None, None]
    answered = answer("t", entry(1, 1), entry(2), reserve=reservation("n"))
    for _ in range(2):
        assert await refusals(store, answered) == [None]
    assert await store.read_reserved(reservation("m").key) == Reserved("t", 1, "a" * 64)
    assert await store.read_reserved(reservation("n").key) == Reserved("t", 2, "a" * 64)
    assert await store.drop_reservations(0) == 3
    assert await entries_of(store, "t") == [entry(0, 1), entry(1), entry(1, 1), entry(2)]


async def test_an_append_that_is_refused_as_stale_reserves_nothing(store: Store) -> None:
    await commit(store, creation("t"))
    stale = addition("t", entry(2), fence=7, reserve=reservation("m"))
    results = await store.commit([stale, creation("next", reserve=reservation("m"))])
    assert [type(result) for result in results] == [StaleFence, type(None)]
    assert await store.read_reserved(reservation("m").key) == Reserved("next", 1, "a" * 64)
    assert await store.drop_reservations(0) == 1


async def test_a_stale_append_does_not_replace_a_reservation_that_ran_out(store: Store) -> None:
    await commit(store, creation("t", reserve=reservation("m", ttl_s=0)))
    [refusal] = await store.commit([addition("t", entry(2), fence=7, reserve=reservation("m"))])
    assert isinstance(refusal, StaleFence)
    assert await store.read_reserved(reservation("m").key) is None
    assert await store.drop_reservations(100) == 1


async def test_a_reservation_that_ran_out_is_for_the_next(store: Store) -> None:
    await commit(store, creation("a", reserve=reservation("m", ttl_s=0)))
    assert await store.read_reserved(reservation("m").key) is None
    assert await refusals(store, creation("b", reserve=reservation("m"))) == [None]
    assert await store.read_reserved(reservation("m").key) == Reserved("b", 1, "a" * 64)
    assert await refusals(store, creation("c", reserve=reservation("m"))) == ["b"]


async def test_reservations_that_ran_out_are_dropped_and_then_the_oldest(store: Store) -> None:
    ttls = [60, 0, 60, 60, 0, 0, 60]
    for number, ttl_s in enumerate(ttls):
        await commit(store, creation(f"{number}", reserve=reservation(f"{number}", ttl_s)))
    assert await store.drop_reservations(100) == 3
    assert await store.drop_reservations(100) == 0
    assert await store.drop_reservations(3) == 1
    left = [await store.read_reserved(reservation(f"{number}").key) is not None for number in range(7)]
    assert left == [False, False, True, True, False, False, True]
    assert await refusals(store, creation("new", reserve=reservation("0"))) == [None]
    assert await refusals(store, creation("newer", reserve=reservation("2"))) == ["2"]


async def test_many_reservations_are_dropped(store: Store) -> None:
    await commit(store, *(creation(f"{n}", reserve=reservation(f"{n}", ttl_s=60 * (n % 2))) for n in range(1300)))
    assert await store.drop_reservations(10) == 1290
    kept = [n for n in range(1300) if await store.read_reserved(reservation(f"{n}").key) is not None]
    assert len(kept) == 10


# Webhooks


async def pushes_of(store: Store, task_id: str = "t") -> dict[str, Push]:
    return {push.config.id: push for push in await store.read_pushes(task_id)}


async def only(store: Store, task_id: str = "t") -> Push:
    [push] = await store.read_pushes(task_id)
    return push


async def held(store: Store, worker: str, limit: int = 100) -> list[tuple[str, str]]:
    found = await store.hold_pushes(worker, limit)
    assert {push.holder for push in found} <= {worker}
    return [(push.config.task_id, push.config.id) for push in found]


async def test_the_webhook_of_a_new_task_is_there_with_it(store: Store) -> None:
    await alive(store, WORKER)
    await commit(store, creation("t", push=config("t", cursor=0)), creation("none"))
    push = await only(store)
    assert push.due is not None
    assert push == Push(config("t"), "agent", push.created, WORKER, push.due, 0, 0, False, "")
    assert await store.read_pushes("none") == []
    assert await store.outbox() == (1, 0)


async def test_a_new_task_that_is_repeated_leaves_its_webhook_where_it_is(store: Store) -> None:
    await alive(store, WORKER)
    created = creation("t", push=config("t"))
    await commit(store, created)
    assert await store.move_pushes(WORKER, [move("t", cursor=1)]) == [True]
    moved = await only(store)
    await commit(store, created)
    assert await only(store) == moved
    assert await store.delete_push("t", "hook")
    await commit(store, created)
    assert await store.read_pushes("t") == []


async def test_webhooks_are_put_in_order_and_replaced_in_place(store: Store) -> None:
    await alive(store, WORKER, "me")
    await commit(store, creation("t"), creation("other"))
    for name in ("z", "a", "m"):
        assert await store.put_push(config("t", name), WORKER)
    assert await store.put_push(config("other", "z"), WORKER)
    assert not await store.put_push(config("nobody"), WORKER)
    before = await pushes_of(store)
    assert list(before) == ["z", "a", "m"]
    failing = move("t", "a", cursor=0, attempts=3, paused=True, error="no", keep=False)
    assert await store.move_pushes(WORKER, [failing]) == [True]
    assert await store.put_push(config("t", "a", cursor=1, sealed=b"new"), "me")
    after = await pushes_of(store)
    assert list(after) == ["z", "a", "m"]
    assert after["a"].due is not None
    assert after["a"] == before["a"]._replace(
        config=config("t", "a", cursor=1, sealed=b"new"), holder="me", due=after["a"].due
    )
    assert (after["z"], after["m"]) == (before["z"], before["m"])


async def test_a_webhook_is_deleted_once_and_with_its_dead_letters(store: Store) -> None:
    await alive(store, WORKER)
    await commit(store, creation("t"))
    for name in ("a", "b"):
        await store.put_push(config("t", name), WORKER)
    buried = [move("t", name, buried=1, dead=dead("t", name)) for name in ("a", "b")]
    assert await store.move_pushes(WORKER, buried) == [True, True]
    assert await store.delete_push("t", "a")
    assert not await store.delete_push("t", "a")
    assert not await store.delete_push("nobody", "a")
    assert list(await pushes_of(store)) == ["b"]
    assert [letter.config_id for letter in await store.list_dead(10)] == ["b"]
    assert await store.move_pushes(WORKER, [move("t", "a")]) == [False]


async def test_what_is_due_and_nobodys_is_held_by_who_asks_the_longest_due_first(store: Store) -> None:
    await alive(store, WORKER, "me")
    names = ["1", "2", "3", "later", "resting", "paused", "mine"]
    await commit(store, *(creation(name, push=config(name)) for name in names))
    await commit(store, creation("4", scope=SCOPE._replace(agent="other"), push=config("4")))
    delays = {"2": -30.0, "3": -20.0, "1": -10.0, "4": -5.0, "later": 600.0, "resting": None}
    for name, delay_s in delays.items():
        assert await store.move_pushes(WORKER, [move(name, delay_s=delay_s, keep=False)]) == [True]
    assert await store.move_pushes(WORKER, [move("paused", paused=True, keep=False)]) == [True]
    await store.put_push(config("mine"), "me")
    assert await held(store, "me", limit=2) == [("2", "hook"), ("3", "hook")]
    assert await held(store, "me") == [("1", "hook"), ("4", "hook")]
    assert await held(store, "me") == []


async def test_what_a_living_worker_holds_is_not_taken_and_what_a_dead_one_held_is(store: Store) -> None:
    await alive(store, "neighbour", "me")
    await commit(store, creation("t", worker="neighbour", push=config("t")))
    if store.shared:
        assert await held(store, "me") == []
    await store.leave("neighbour")
    assert await held(store, "me") == [("t", "hook")]
    assert await store.move_pushes("neighbour", [move("t")]) == [False]
    assert (await only(store)).config.cursor == 0
    assert await store.move_pushes("me", [move("t")]) == [True]
    assert (await only(store)).config.cursor == 1


async def test_of_many_that_ask_at_once_one_holds_a_webhook(store: Store) -> None:
    workers = [f"worker {number}" for number in range(5)] if store.shared else ["me"] * 5
    await alive(store, *workers)
    await commit(store, *(creation(f"{n}", worker="gone", push=config(f"{n}")) for n in range(20)))
    found = await asyncio.gather(*(held(store, worker, limit=7) for worker in workers))
    taken = [one for some in found for one in some]
    assert len(taken) == len(set(taken))
    assert len(taken) + len(await held(store, workers[0])) == 20


async def test_a_move_tells_what_became_of_a_delivery(store: Store) -> None:
    await alive(store, WORKER)
    await commit(store, creation("t", push=config("t")))
    before = await only(store)
    failed = move("t", cursor=0, attempts=2, error="it said 500", delay_s=600.0)
    assert await store.move_pushes(WORKER, [failed]) == [True]
    after = await only(store)
    assert after.due is not None
    assert before.due is not None
    assert after.due >= before.due + 600_000
    assert after == before._replace(due=after.due, attempts=2, error="it said 500")
    letter = dead("t")
    buried = move("t", cursor=1, buried=1, error="given up", keep=False, dead=letter)
    assert await store.move_pushes(WORKER, [buried]) == [True]
    assert await only(store) == before._replace(
        config=config("t", cursor=1), holder=None, due=None, buried=1, error="given up"
    )
    assert await store.list_dead(10) == [letter]
    assert await store.outbox() == (0, 1)


async def test_who_does_not_hold_a_webhook_does_not_move_it_and_the_others_move(store: Store) -> None:
    await alive(store, WORKER, "me")
    await commit(store, *(creation(name, push=config(name)) for name in ("replaced", "released", "kept", "deleted")))
    await store.put_push(config("replaced"), "me")
    assert await store.move_pushes(WORKER, [move("released", delay_s=0.0, keep=False)]) == [True]
    assert await store.delete_push("deleted", "hook")
    names = ["replaced", "nobody", "kept", "released", "deleted"]
    moves = [move(name, cursor=1, dead=dead(name)) for name in names]
    assert await store.move_pushes(WORKER, moves) == [False, False, True, False, False]
    assert [letter.task_id for letter in await store.list_dead(10)] == ["kept"]
    assert (await only(store, "replaced")).config.cursor == 0
    assert await store.move_pushes(WORKER, []) == []


async def test_a_webhook_does_not_come_to_rest_before_all_is_delivered(store: Store) -> None:
    """An entry that is committed during the last delivery is delivered too."""
    await alive(store, WORKER)
    await commit(store, creation("t", push=config("t")), creation("other", entry(0, 1), entry(1), entry(2)))
    await commit(store, addition("t", entry(2)), addition("t", entry(2, 1)))
    assert await store.move_pushes(WORKER, [move("t", cursor=1, keep=False)]) == [True]
    left = await only(store)
    assert (left.config.cursor, left.holder) == (1, None)
    assert await held(store, WORKER) == [("t", "hook")]
    assert await store.move_pushes(WORKER, [move("t", cursor=1, paused=True)]) == [True]
    assert (await only(store)).due is None
    assert await store.move_pushes(WORKER, [move("t", cursor=2)]) == [True]
    assert (await only(store)).due is None
    assert await store.outbox() == (0, 0)


async def test_a_task_that_goes_on_wakes_its_webhooks_that_rest(store: Store) -> None:
    await alive(store, WORKER, "me")
    await commit(store, creation("t", push=config("t", "resting")), creation("other", push=config("other")))
    for name in ("later", "paused"):
        await store.put_push(config("t", name), WORKER)
    moves = [
        move("t", "resting", keep=False),
        move("t", "later", delay_s=600.0),
        move("t", "paused", paused=True),
        move("other"),
    ]
    assert await store.move_pushes(WORKER, moves) == [True] * 4
    await commit(store, addition("t", entry(2), head=head(INPUT_REQUIRED, worker=None)))
    before = await pushes_of(store)
    answered = answer("t", entry(2, 1), entry(3), worker="me")
    await commit(store, answered)
    after = await pushes_of(store)
    assert after["resting"].due is not None
    assert after["resting"] == before["resting"]._replace(due=after["resting"].due, holder="me")
    assert (after["later"], after["paused"]) == (before["later"], before["paused"])
    assert (await only(store, "other")).due is None
    assert await store.move_pushes("me", [move("t", "resting", cursor=3)]) == [True]
    await commit(store, answered)
    assert (await pushes_of(store))["resting"].due is None


async def test_an_answer_that_is_refused_wakes_no_webhook(store: Store) -> None:
    await alive(store, WORKER)
    paused = creation("t", state=INPUT_REQUIRED, worker=None, push=config("t"), reserve=reservation("m"))
    await commit(store, paused, creation("first", reserve=reservation("n")))
    await store.put_push(config("t"), WORKER)
    assert await store.move_pushes(WORKER, [move("t")]) == [True]
    assert await refusals(store, answer("t", entry(2), reserve=reservation("n"))) == ["first"]
    [refusal] = await store.commit([answer("t", entry(2), fence=5)])
    assert isinstance(refusal, StaleFence)
    assert (await only(store)).due is None


async def test_the_operator_sees_webhooks_newest_first_and_those_that_fail_by_themselves(store: Store) -> None:
    await alive(store, WORKER)
    names = ["1", "2", "3", "4", "5"]
    for name in names:
        await commit(store, creation(name, push=config(name)))
    moves = [
        move("1", attempts=1, delay_s=600.0),
        move("2", buried=2, delay_s=0.0),
        move("3", paused=True),
        move("4"),
    ]
    assert await store.move_pushes(WORKER, moves) == [True] * 4
    assert [push.config.task_id for push in await store.list_pushes(failing=False, limit=100)] == names[::-1]
    assert [push.config.task_id for push in await store.list_pushes(failing=False, limit=2)] == ["5", "4"]
    assert [push.config.task_id for push in await store.list_pushes(failing=True, limit=100)] == ["3", "2", "1"]
    assert await store.outbox() == (3, 0)


async def test_dead_letters_are_listed_newest_first(store: Store) -> None:
    await alive(store, WORKER)
    await commit(store, creation("t", entry(0, 1), entry(1), entry(2), entry(3), push=config("t")))
    for seq in (1, 2, 3):
        letter = dead("t", seq=seq)._replace(time=1_700_000_000_000 + seq)
        assert await store.move_pushes(WORKER, [move("t", cursor=seq, buried=seq, dead=letter)]) == [True]
    assert [letter.seq for letter in await store.list_dead(10)] == [3, 2, 1]
    assert [letter.seq for letter in await store.list_dead(2)] == [3, 2]


async def failing_webhooks(store: Store) -> None:
    """`t` has configs with dead letters and paused, failing, and at rest; `other` has one with a dead letter."""
    await alive(store, WORKER)
    some = [entry(0, 1), *(entry(seq) for seq in range(1, 6))]
    await commit(store, creation("t", *some), creation("other", *some))
    for name in ("buried", "failing", "resting"):
        await store.put_push(config("t", name), WORKER)
    await store.put_push(config("other", "buried"), WORKER)
    moves = [
        move("t", "buried", cursor=3, buried=1, keep=True, delay_s=0.0, dead=dead("t", "buried", 3)),
        move("t", "buried", cursor=4, buried=2, paused=True, error="no", dead=dead("t", "buried", 4)),
        move("t", "failing", cursor=2, attempts=3, error="no", delay_s=600.0),
        move("t", "resting", cursor=5),
        move("other", "buried", cursor=1, buried=1, delay_s=0.0, dead=dead("other", "buried", 1)),
        move("other", "buried", cursor=5),
    ]
    assert await store.move_pushes(WORKER, moves) == [True] * 6


@pytest.mark.parametrize(
    ("asked", "woken"),
    [
        ((None, None), {"t buried": 2, "t failing": 2, "other buried": 0}),
        (("t", None), {"t buried": 2, "t failing": 2}),
        (("t", "failing"), {"t failing": 2}),
        (("t", "resting"), {}),
        ((None, "buried"), {"t buried": 2, "other buried": 0}),
        (("nobody", None), {}),
    ],
)
async def test_webhooks_that_fail_go_on_from_their_first_dead_letter(
    store: Store, asked: tuple[str | None, str | None], woken: dict[str, int]
) -> None:
    await failing_webhooks(store)
    before = {**await pushes_of(store), "other": await only(store, "other")}
    assert await store.retry_pushes(*asked) == len(woken)
    assert {f"{task_id} {name}" for task_id, name in await held(store, "me")} >= set(woken)
    for task_id in ("t", "other"):
        for name, push in (await pushes_of(store, task_id)).items():
            if (cursor := woken.get(f"{task_id} {name}")) is not None:
                assert (push.config.cursor, push.attempts, push.buried, push.paused, push.error) == (
                    (cursor, 0, 0, False, "")
                )
            elif task_id == "t":
                assert push == before[name]
    letters = {f"{letter.task_id} {letter.config_id}" for letter in await store.list_dead(100)}
    assert letters == {"t buried", "other buried"} - set(woken)
    assert await store.move_pushes(WORKER, [move(*name.split()) for name in woken]) == [False] * len(woken)


# Records


async def some_that_ended(store: Store) -> None:
    """Tasks `1` to `8` ended one after the other, in several scopes; the others must not be pruned."""
    scopes = [SCOPE, SCOPE._replace(owner="other"), SCOPE._replace(tenant="other")]
    states = sorted(TERMINAL, key=str)
    await commit(
        store,
        *(
            ended(f"{n}", status_time=n * 10, scope=scopes[n % 3], state=states[n % 4], hidden=n % 4 == 3)
            for n in range(1, 9)
        ),
        creation("active", status_time=1),
        creation("paused", status_time=1, state=INPUT_REQUIRED, worker=None),
        ended("another's", status_time=1, scope=SCOPE._replace(agent="another")),
    )


async def kept(store: Store) -> set[str]:
    return {
        name
        for name in ("active", "paused", "another's", *map(str, range(1, 9)))
        if await store.read_task(name) is not None
    }


ALWAYS = {"active", "paused", "another's"}


async def pruned(store: Store, before_ms: int | None, keep: int | None, limit: int) -> int:
    """Prune, and return how many tasks of the agent were deleted."""
    return sum(usage.tasks for usage in await store.prune("agent", before_ms, keep, limit))


@pytest.mark.parametrize(
    ("before_ms", "keep", "left"),
    [
        (None, None, "12345678"),
        (10, None, "12345678"),
        (50, None, "5678"),
        (None, 3, "678"),
        (None, 8, "12345678"),
        (None, 0, ""),
        (50, 6, "5678"),
        (50, 2, "78"),
        (1000, 5, ""),
    ],
)
async def test_what_is_too_old_or_too_many_is_pruned(
    store: Store, before_ms: int | None, keep: int | None, left: str
) -> None:
    await some_that_ended(store)
    assert await pruned(store, before_ms, keep, 100) == 8 - len(left)
    assert await kept(store) == ALWAYS | set(left)
    assert await pruned(store, before_ms, keep, 100) == 0
    assert await kept(store) == ALWAYS | set(left)


@pytest.mark.parametrize(("before_ms", "keep"), [(50, None), (None, 4), (30, 4)])
async def test_pruning_goes_in_steps(store: Store, before_ms: int | None, keep: int | None) -> None:
    await some_that_ended(store)
    assert [await pruned(store, before_ms, keep, 3) for _ in range(3)] == [3, 1, 0]
    assert await kept(store) == ALWAYS | set("5678")


async def test_more_are_pruned_than_go_in_one_step_of_the_store(store: Store) -> None:
    await commit(store, *(ended(f"{n:03}", status_time=n) for n in range(300)))
    assert await pruned(store, None, 10, 1000) == 290
    assert await listed(store) == [f"{n:03}" for n in range(299, 289, -1)]
    assert (await store.list_tasks(query())).total == 10


async def test_what_a_webhook_has_yet_to_hear_of_is_not_pruned(store: Store) -> None:
    await alive(store, WORKER)
    await commit(store, creation("t", push=config("t"), state=COMPLETED, status_time=1, worker=None))
    await commit(store, ended("u", status_time=2))
    assert await pruned(store, 100, None, 10) == 1
    assert await pruned(store, None, 0, 10) == 0
    assert await store.read_task("t") is not None
    [held] = await store.hold_pushes("worker-2", 10)
    holder = held.holder or ""
    assert await store.move_pushes(holder, [move("t", cursor=1, delay_s=None, keep=False)]) == [True]
    assert await pruned(store, 100, None, 10) == 1


async def test_one_task_that_is_over_is_pruned_whatever_its_age(store: Store) -> None:
    await some_that_ended(store)
    for task, agent in (("active", "agent"), ("paused", "agent"), ("another's", "agent"), ("nothing", "agent")):
        assert await store.prune_task(agent, task) == []
    assert await kept(store) == ALWAYS | set("12345678")
    assert [usage.tasks for usage in await store.prune_task("agent", "5")] == [1]
    assert await store.prune_task("agent", "5") == []
    assert await kept(store) == ALWAYS | set("1234678")
    assert await store.read_tombstone("5") is not None
    assert await entries_of(store, "5") == []


async def test_one_task_of_which_a_webhook_has_yet_to_hear_is_not_pruned(store: Store) -> None:
    await alive(store, WORKER)
    await commit(store, creation("t", push=config("t"), state=COMPLETED, status_time=1, worker=None))
    assert await store.prune_task("agent", "t") == []
    assert await store.read_task("t") is not None


async def test_of_what_is_pruned_a_tombstone_is_left(store: Store) -> None:
    await alive(store, WORKER)
    await commit(store, creation("t", push=config("t")), creation("other", push=config("other")))
    await commit(store, addition("t", entry(2), entry(2, 1)))
    last = entry(3, data=b"the last")
    await commit(store, addition("t", last, head=head(TaskState.FAILED, status_time=77, worker=None)))
    moves = [move(name, cursor=3, delay_s=None, dead=dead(name)) for name in ("t", "other")]
    assert await store.move_pushes(WORKER, moves) == [True, True]
    assert await store.read_tombstone("t") is None
    assert await pruned(store, 78, None, 10) == 1
    found = await store.read_tombstone("t")
    assert found is not None
    assert found == Tombstone("t", SCOPE, TaskState.FAILED, 77, 3, last.chain, found.pruned)
    assert found.pruned > 1_700_000_000_000
    assert await store.read_tombstone("other") is None
    assert await store.read_task("t") is None
    assert await entries_of(store, "t") == []
    assert await store.read_internal("t") == []
    assert await listed(store) == ["other"]
    assert await store.read_pushes("t") == []
    assert [letter.task_id for letter in await store.list_dead(10)] == ["other"]
    assert [push.config.task_id for push in await store.list_pushes(failing=False, limit=10)] == ["other"]
    [refusal] = await store.commit([addition("t", entry(4))])
    assert isinstance(refusal, StaleFence)


async def test_usage_is_the_sum_of_what_was_told(store: Store) -> None:
    assert await store.usage() == []
    await store.add_usage(
        [UsageDelta("t", "o", "b", 2, 300), UsageDelta("t", "p", "a", 1, 5), UsageDelta("u", "o", "b", 1, 1)]
    )
    await store.add_usage([])
    await store.add_usage(
        [UsageDelta("t", "o", "b", -1, -100), UsageDelta("u", "p", "c", 0, 2**40), UsageDelta("t", "o", "b", 1, 7)]
    )
    assert await store.usage() == [StoredUsage("a", 1, 5), StoredUsage("b", 3, 208), StoredUsage("c", 0, 2**40)]


async def test_stored_bytes_are_those_of_a_tenant_an_owner_or_an_agent(store: Store) -> None:
    long = "\0" + "n" * 10_000
    await store.add_usage(
        [UsageDelta("t", "o", "a", 1, 300), UsageDelta("t", "p", "a", 1, 5), UsageDelta("u", "o", long, 1, 70)]
    )
    asked: list[tuple[Party, str]] = [
        ("owner", "o"),
        ("agent", long),
        ("tenant", "t"),
        ("tenant", "o"),
        ("agent", "a"),
        ("owner", "o"),
        ("tenant", ""),
    ]
    assert await store.stored_bytes(asked) == [370, 70, 305, 0, 305, 370, 0]
    assert await store.stored_bytes([]) == []


async def test_hosts_that_tell_the_accounts_at_once_are_all_heard(store: Store) -> None:
    deltas = [UsageDelta(f"t{n % 2}", f"o{n % 3}", f"a{n % 5}", 1, n) for n in range(30)]
    await asyncio.gather(*(store.add_usage(deltas[n:] + deltas[:n]) for n in range(30)))
    assert await store.usage() == [StoredUsage(f"a{m}", 180, 30 * sum(range(m, 30, 5))) for m in range(5)]
    assert await store.stored_bytes([("tenant", "t0"), ("owner", "o2")]) == [
        30 * sum(range(0, 30, 2)),
        30 * sum(range(2, 30, 3)),
    ]


async def test_what_is_pruned_is_told_by_scope_with_all_that_was_kept_of_it_and_taken_from_the_accounts(
    store: Store,
) -> None:
    other = SCOPE._replace(owner="another", tenant="another")
    long = [entry(seq, data=b"x" * 100 * seq) for seq in range(2, 300)]
    over = head(TaskState.COMPLETED, worker=None, status_time=5)
    written = [
        creation("a"),
        creation("b", snapshot=snapshot("b")),
        addition("a", *long[:200], snapshot=snapshot("a", 201, artifacts=b"[%b]" % (b"1," * 5000))),
        addition("a", *long[200:], snapshot=snapshot("a", 299), head=over),
        addition("b", head=over, snapshot=snapshot("b")),  # a snapshot without entries is not stored
        ended("c", scope=other, status_time=5),
        ended("d", scope=other, status_time=6),
        ended("late", status_time=1000),
        ended("another's", scope=SCOPE._replace(agent="another")),
    ]
    for append in written:
        await commit(store, append)
        await commit(store, append)  # as if the reply was lost: it is stored once
    scopes = {append.task_id: append.create.scope for append in written if append.create is not None}
    await store.add_usage(
        [UsageDelta(*scopes[append.task_id], int(append.create is not None), size_of(append)) for append in written]
    )
    sizes = {name: sum(size_of(append) for append in written if append.task_id == name) for name in scopes}
    assert await store.prune("agent", 100, None, 10) == [
        UsageDelta(*other, 2, sizes["c"] + sizes["d"]),
        UsageDelta(*SCOPE, 2, sizes["a"] + sizes["b"]),
    ]
    assert await store.usage() == [
        StoredUsage("agent", 1, sizes["late"]),
        StoredUsage("another", 1, sizes["another's"]),
    ]
    assert await store.stored_bytes([("tenant", "another"), ("owner", "owner")]) == [
        0,
        sizes["late"] + sizes["another's"],
    ]
    assert await store.prune("agent", 100, None, 10) == []


async def test_of_two_that_prune_at_once_each_task_is_told_once(store: Store) -> None:
    tasks = [ended(f"{n:03}", status_time=n) for n in range(120)]
    await commit(store, *tasks)
    await store.add_usage([UsageDelta(*SCOPE, 1, size_of(task)) for task in tasks])
    went = await asyncio.gather(*(store.prune("agent", 1000, None, 1000) for _ in range(4)))
    assert sum(usage.tasks for some in went for usage in some) == 120
    assert await store.usage() == [StoredUsage("agent", 0, 0)]


async def test_the_oldest_task_is_the_one_that_was_made_first(store: Store) -> None:
    assert await store.oldest() is None
    times = [1_700_000_000_123_456 + number * 1_000_000 for number in range(3)]
    await commit(store, *(ended(f"{n}", created=time, status_time=n) for n, time in enumerate(times)))
    assert await store.oldest() == 1_700_000_000_123
    assert await pruned(store, None, 2, 10) == 1
    assert await store.oldest() == 1_700_000_001_123


async def test_space_is_told_where_it_is_known(store: Store) -> None:
    await commit(store, creation("t"))
    for found in (store.free_bytes(), store.wal_bytes()):
        assert found is None or found > 0


# Listing


async def test_a_listing_shows_one_scope_only(store: Store) -> None:
    scopes = [Scope(t, o, a) for t in ("x", "y") for o in ("x", "y") for a in ("x", "y")]
    await commit(store, *(creation(f"{scope}", scope=scope, state=COMPLETED) for scope in scopes))
    await commit(store, *(creation(f"{scope} active", scope=scope) for scope in scopes))
    for scope in scopes:
        found = await store.list_tasks(query(scope=scope))
        assert {stored.new.id for stored in found.tasks} == {f"{scope}", f"{scope} active"}
        assert {stored.new.scope for stored in found.tasks} == {scope}
        assert found.total == 2
    assert (await store.list_tasks(query(scope=Scope("x", "y", "z"))))[:2] == ([], 0)


async def test_the_newest_status_comes_first_and_then_the_lower_id(store: Store) -> None:
    times = {"a": 10, "e": 30, "c": 20, "b": 20, "d": 10}
    states = [COMPLETED, WORKING]
    await commit(
        store,
        *(
            creation(name, status_time=time, state=states[number % 2])
            for number, (name, time) in enumerate(times.items())
        ),
    )
    assert await listed(store) == ["e", "b", "c", "a", "d"]
    await commit(store, addition("d", head=head(COMPLETED, status_time=40)))
    assert await listed(store) == ["d", "e", "b", "c", "a"]


async def test_filters_by_context_and_state(store: Store) -> None:
    await commit(
        store,
        *(
            creation(f"{context} {state}", context_id=context, state=state, status_time=number)
            for context in ("c1", "c2")
            for number, state in enumerate(list(TaskState)[1:])
        ),
    )
    for state in list(TaskState)[1:]:
        assert await listed(store, state=state) == [f"c1 {state}", f"c2 {state}"]
        assert await listed(store, state=state, context_id="c2") == [f"c2 {state}"]
    assert len(await listed(store, context_id="c1")) == len(TaskState) - 1
    assert await listed(store, context_id="c3") == []


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("state", [WORKING, COMPLETED])
async def test_after_includes_the_very_millisecond_and_what_comes_later(store: Store, state: TaskState) -> None:
    times = [*range(1_700_000_000_000, 1_700_000_000_200), 1_700_000_001_001, 4_102_444_799_999]
    await commit(store, *(creation(str(time), status_time=time, state=state) for time in times))
    for index, time in enumerate(times):
        moment = EPOCH + timedelta(milliseconds=time)
        elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
        for after in (moment, elsewhere, moment - timedelta(microseconds=1)):
            assert (await store.list_tasks(query(after=after, limit=1))).total == len(times) - index
        later = moment + timedelta(microseconds=1)
        assert (await store.list_tasks(query(after=later, limit=1))).total == len(times) - index - 1


@pytest.mark.parametrize(
    "after", [datetime.min.replace(tzinfo=UTC), datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))]
)
async def test_after_may_be_as_early_as_a_datetime_can(store: Store, after: datetime) -> None:
    await commit(store, creation("t"))
    assert await listed(store, after=after) == ["t"]
    assert await listed(store, after=datetime.max.replace(tzinfo=UTC)) == []


async def test_what_is_hidden_is_not_listed(store: Store) -> None:
    for state in (WORKING, COMPLETED):
        await commit(
            store, creation(f"hidden {state}", hidden=True, state=state), creation(f"shown {state}", state=state)
        )
    found = await store.list_tasks(query())
    assert {stored.new.id for stored in found.tasks} == {f"shown {WORKING}", f"shown {COMPLETED}"}
    assert found.total == 2
    await commit(store, addition(f"hidden {WORKING}", head=head(WORKING)))
    assert f"hidden {WORKING}" in await listed(store)
    assert await store.read_task(f"hidden {COMPLETED}") is not None


async def test_artifacts_are_listed_only_where_they_are_asked_for(store: Store) -> None:
    whole = snapshot("t", artifacts=b'[{"artifactId":"a"}]')
    await commit(store, creation("t", state=COMPLETED, worker=None, snapshot=whole), creation("none", status_time=1))
    for artifacts, expected in ((True, whole), (False, whole._replace(artifacts=b"[]"))):
        tasks = (await store.list_tasks(query(artifacts=artifacts))).tasks
        assert [stored.snapshot for stored in tasks] == [expected, None]


def large(task_id: str, size: int) -> Snapshot:
    """A snapshot of this many bytes, some of them in its artifacts."""
    found = snapshot(task_id, artifacts=b'[{"artifactId":"a"}]')
    return found._replace(body=found.body + b" " * (size - len(found.body) - len(found.artifacts)))


async def test_a_page_ends_before_its_snapshots_are_too_large(store: Store) -> None:
    sizes = [40, 40, 300, 60, 60, 60, 0, 250, 40, 0]
    await commit(
        store,
        *(
            creation(f"{n}", status_time=100 - n, state=COMPLETED, snapshot=large(f"{n}", size) if size else None)
            for n, size in enumerate(sizes)
        ),
    )
    for artifacts in (True, False):
        less = 0 if artifacts else len(b'[{"artifactId":"a"}]')
        asked, found = query(artifacts=artifacts, most=200, limit=7), []
        while tasks := (page := await store.list_tasks(asked)).tasks:
            shown = [sizes[int(stored.new.id)] - (less if stored.snapshot else 0) for stored in tasks]
            assert page.total == len(sizes)
            assert page.size == sum(shown)
            assert page.size <= 200 or len(shown) == 1
            found += [stored.new.id for stored in tasks]
            assert page.cut or len(tasks) == asked.limit or len(found) == len(sizes)
            following = len(found)
            if page.cut:
                assert page.size + sizes[following] - less > 200
            asked = asked._replace(cursor=(tasks[-1].head.status_time, tasks[-1].new.id))
        assert found == [f"{n}" for n in range(len(sizes))]


async def test_a_large_page_can_be_measured_before_it_is_read(store: Store) -> None:
    await commit(
        store,
        *(creation(f"{n}", status_time=10 - n, state=COMPLETED, snapshot=large(f"{n}", 100 + n)) for n in range(4)),
    )
    measured = await store.list_tasks(query(artifacts=True, most=250, unread=200))
    assert measured == ([], 4, 201, True)
    whole = await store.list_tasks(query(artifacts=True, most=250, unread=201))
    assert [stored.snapshot for stored in whole.tasks] == [large("0", 100), large("1", 101)]
    assert whole[1:] == (4, 201, True)


async def test_a_large_snapshot_can_be_withheld(store: Store) -> None:
    await commit(store, creation("t", snapshot=large("t", 100)), creation("none"))
    whole = await store.read_task("t", most=100)
    assert whole is not None
    assert whole.snapshot == large("t", 100)
    assert whole.withheld is None
    for owner in (None, "owner"):
        withheld = await store.read_task("t", owner, 99)
        assert withheld == whole._replace(snapshot=None, withheld=(1, 0, 100))
    assert await store.read_task("t", "another", 99) is None
    without = await store.read_task("none", most=0)
    assert without is not None
    assert without[2:] == (None, None)


@pytest.mark.parametrize("wire", [True, False])
async def test_entries_are_read_within_a_number_of_bytes(store: Store, wire: bool) -> None:
    datas = [b"x" * size for size in (10, 500, 10, 10, 1000, 10, 400, 10)]
    await commit(store, creation("t"))
    for first in range(2, 10, 2):
        some = [entry(first, data=datas[first - 2]), entry(first, 1), entry(first + 1, data=datas[first - 1])]
        await commit(store, addition("t", *some))
    expected = [one for one in await entries_of(store, "t") if one.sub == 0 or not wire]
    for most in (1, 100, 600, 10_000):
        found: list[Entry] = []
        at = (-1, 0)
        while some := await store.read_entries("t", at[0], 100, wire=wire, sub=at[1], most=most):
            assert len(some) == 1 or sum(len(one.data) for one in some) <= most
            found += some
            at = (some[-1].seq, some[-1].sub)
        assert found == expected


async def pages(store: Store, first: ListQuery, between: Callable[[int], list[Append]] | None = None) -> list[str]:
    """List all ids page by page, with a commit between two pages."""
    found: list[str] = []
    asked = first
    while tasks := (await store.list_tasks(asked)).tasks:
        assert len(tasks) <= first.limit
        found += [stored.new.id for stored in tasks]
        asked = first._replace(cursor=(tasks[-1].head.status_time, tasks[-1].new.id))
        if between is not None:
            await commit(store, *between(len(found)))
    return found


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
@pytest.mark.parametrize("state", [TaskState.UNSPECIFIED, WORKING, COMPLETED])
async def test_the_pages_of_a_listing_have_no_gap_and_no_repeat(store: Store, limit: int, state: TaskState) -> None:
    states = [COMPLETED, WORKING, TaskState.FAILED]
    await commit(
        store, *(creation(f"{n:02}", status_time=n // 4, state=states[n % 3], context_id=str(n % 2)) for n in range(40))
    )
    for context in ("", "0"):
        first = query(limit=limit, state=state, context_id=context)
        expected = await listed(store, state=state, context_id=context)
        assert await pages(store, first) == expected


async def test_tasks_that_begin_while_a_listing_is_paged_neither_hide_nor_repeat_another(store: Store) -> None:
    await commit(
        store, *(creation(f"{n:02}", status_time=n // 3 * 10, state=[COMPLETED, WORKING][n % 2]) for n in range(30))
    )
    expected = await listed(store)

    def begin(number: int) -> list[Append]:
        times = (999, number // 3 * 10, 95, 0)
        return [creation(f"new {number} {time}", status_time=time, state=COMPLETED) for time in times]

    seen = await pages(store, query(limit=4), begin)
    assert len(seen) == len(set(seen))
    assert [name for name in seen if not name.startswith("new")] == expected


async def test_the_total_is_exact_up_to_the_cap_whatever_the_page(store: Store) -> None:
    await commit(store, *(creation(f"{n:05}", status_time=n, state=COMPLETED) for n in range(COUNT_CAP - 1)))
    assert (await store.list_tasks(query(limit=1))).total == COUNT_CAP - 1
    assert (await store.list_tasks(query(limit=1, cursor=(5, "x")))).total == COUNT_CAP - 1
    await commit(store, *(creation(f"more {n}", state=WORKING, status_time=n) for n in range(2)))
    assert (await store.list_tasks(query(limit=1))).total == COUNT_CAP
    assert (await store.list_tasks(query(limit=1, state=WORKING))).total == 2
    last = (await store.list_tasks(query(limit=5, cursor=(1, "more 0")))).tasks
    assert [stored.new.id for stored in last] == ["more 1", "00000", "more 0"]


# Health


async def test_a_store_that_can_write_passes_its_probe(store: Store) -> None:
    await store.probe()
    assert await store.read_task("t") is None


async def test_a_store_has_a_name_and_says_where_the_data_is(store: Store) -> None:
    assert store.name in ("memory", "sqlite", "postgresql")
    assert store.location
