"""What the engine may rely on, of every store. A store joins by a line in STORES."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from roost.engine.ports import COUNT_CAP, Append, ListQuery, NewTask, Scope, Snapshot, StaleFence, Store, Stored
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores.memory import MemoryStore
from roost.stores.sqlite import SQLiteStore
from roost.stores.sqlite_process import ProcessCarrier

from .making import SCOPE, WORKER, addition, creation, entry, head, query, snapshot

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": SQLiteStore,
    "sqlite in a process": lambda folder: SQLiteStore(folder, ProcessCarrier),
}
WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    await made.close()


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


async def test_what_was_never_committed_is_not_there(store: Store) -> None:
    assert await store.read_task("t") is None
    assert await entries_of(store, "t") == []
    assert await store.read_internal("t") == []
    assert await store.list_tasks(query()) == ([], 0)


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
    """Over several commits, with internal ones at the ends of commits, in the middle, and alone."""
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


async def test_a_commit_that_is_repeated_is_a_success_and_changes_nothing(store: Store) -> None:
    """The answer to the first may have been lost."""
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
    await commit(store, *(creation(name) for name in "abc"))
    assert await store.claim("b", "worker-2", 1) == 2
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


async def test_a_claim_makes_its_worker_the_writer_and_outdates_the_one_before(store: Store) -> None:
    await commit(store, creation("t"))
    assert await store.claim("t", "worker-2", 1) == 2
    found = await store.read_task("t")
    assert found is not None
    assert found.head == head(worker="worker-2", fence=2)
    [refusal] = await store.commit([addition("t", entry(2), fence=1)])
    assert isinstance(refusal, StaleFence)
    await commit(store, addition("t", entry(2), fence=2))


async def test_of_two_that_claim_one_wins(store: Store) -> None:
    await commit(store, creation("t"))
    claims = await asyncio.gather(*(store.claim("t", f"worker-{number}", 1) for number in range(5)))
    assert sorted(claims, key=str) == [2, None, None, None, None]
    assert await store.claim("nobody", WORKER, 1) is None


async def test_an_append_may_raise_the_fence_itself(store: Store) -> None:
    """A task that was paused is taken over by the message that answers it."""
    await commit(store, creation("t", worker=None))
    await commit(store, addition("t", entry(2), fence=1, head=head(WORKING, worker="worker-2", fence=2)))
    [refusal] = await store.commit([addition("t", entry(3), fence=1)])
    assert isinstance(refusal, StaleFence)
    await commit(store, addition("t", entry(3), fence=2))


# Orphans


async def test_orphans_are_tasks_of_these_agents_that_others_should_be_running_oldest_first(store: Store) -> None:
    def of(agent: str) -> Scope:
        return SCOPE._replace(agent=agent)

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
        *(
            creation(str(state), scope=of("a"), worker="gone", state=state)
            for state in TaskState
            if state not in (TaskState.SUBMITTED, WORKING, TaskState.UNSPECIFIED)
        ),
    )
    everyone = ["1", "2", "3", "4a", "4b", "5"]
    assert await store.orphans("me", ["a", "b"], 100) == everyone
    assert await store.orphans("me", ["a", "b"], 3) == everyone[:3]
    assert await store.orphans("me", ["b"], 100) == ["1"]
    assert await store.orphans("me", [], 100) == []
    assert await store.claim("1", "me", 1) == 2
    assert await store.orphans("me", ["b"], 100) == []


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
    assert await store.list_tasks(query(scope=Scope("x", "y", "z"))) == ([], 0)


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


async def pages(store: Store, first: ListQuery, between: Callable[[int], list[Append]] | None = None) -> list[str]:
    """All ids of a listing, page by page, with something committed between two pages."""
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
    assert store.name in ("memory", "sqlite")
    assert store.location
