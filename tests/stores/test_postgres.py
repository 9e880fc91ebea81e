"""The cases that only PostgreSQL has to handle: several hosts on one database, and a server that restarts."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.services import new_database
from tools.services import postgres as postgres_service

from roost.engine.stats import size_of
from roost.engine.store_types import (
    Append,
    NewTask,
    OutcomeUnknown,
    Reserved,
    StaleFence,
    StoredUsage,
    StoreUnavailable,
    Taken,
)
from roost.identity.ports import now_ms
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores import postgres, postgres_identities, postgres_leases, postgres_pool, postgres_schema
from roost.stores.postgres import PostgresStore
from roost.stores.postgres_pool import DriverMissing
from roost.stores.postgres_pushes import HOLD
from roost.stores.postgres_reads import READ_OWNED
from roost.stores.postgres_records import UNFINISHED
from roost.stores.postgres_rows import from_text, to_text
from roost.stores.postgres_schema import VERSION
from roost.stores.sqlite_schema import NewerSchema
from tests.waiting import until

from .conftest import Open
from .samples import (
    SCOPE,
    Cache,
    addition,
    answer,
    config,
    creation,
    ended,
    entry,
    head,
    key,
    move,
    query,
    reservation,
    snapshot,
    token,
)

WORKING, COMPLETED, INPUT_REQUIRED = TaskState.WORKING, TaskState.COMPLETED, TaskState.INPUT_REQUIRED
AGENTS = [SCOPE.agent]
FOR_LONG = 600.0


@pytest.fixture
async def store(open_store: Open) -> PostgresStore:
    return await open_store()


@pytest.fixture
async def other(open_store: Open) -> PostgresStore:
    """The store of another host."""
    return await open_store()


@asynccontextmanager
async def session(url: str) -> AsyncIterator[Any]:
    """A connection to the database that is not the store's."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "roost"})
    try:
        yield connection
    finally:
        await connection.close()


async def commit(store: PostgresStore, *group: Append) -> None:
    assert await store.commit(group) == [None] * len(group)


async def entries_of(store: PostgresStore, task_id: str) -> list[Entry]:
    return await store.read_entries(task_id, -1, 10_000, wire=False)


def with_turn(append: Append) -> Append:
    append.turn = True
    return append


# The schema


async def test_hosts_that_start_together_on_an_empty_database_all_start(database: str) -> None:
    stores = [PostgresStore(database) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    for number, store in enumerate(stores):
        await commit(store, creation(f"t{number}"))
    for store in stores:
        assert len((await store.list_tasks(query())).tasks) == 4
        await store.close()


async def test_a_database_of_a_release_that_leaves_this_one_behind_is_refused(
    store: PostgresStore, database: str
) -> None:
    async with session(database) as look:
        await look.execute("UPDATE meta SET value = $1 WHERE key IN ('schema', 'readable')", VERSION + 2)
    with pytest.raises(
        NewerSchema, match=f"schema {VERSION + 2}, this release of Roost knows {VERSION}: upgrade Roost"
    ):
        await PostgresStore(database).open()


async def test_a_database_of_a_newer_release_that_lets_this_one_go_on_is_used_and_not_changed(
    store: PostgresStore, open_store: Open, database: str
) -> None:
    async with session(database) as look:
        await look.execute("UPDATE meta SET value = $1 WHERE key = 'schema'", VERSION + 2)
        await commit(await open_store(), creation("t"))
        assert await look.fetchval("SELECT value FROM meta WHERE key = 'schema'") == VERSION + 2


async def test_a_database_that_cannot_keep_every_text_is_refused(database: str) -> None:
    async with session(database) as look:
        await look.execute("CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")
        with pytest.raises(StoreUnavailable, match="has the encoding LATIN1"):
            await PostgresStore(urlsplit(database)._replace(path="/latin").geturl()).open()
        await look.execute("DROP DATABASE latin WITH (FORCE)")


async def test_a_user_who_may_not_create_anything_can_use_what_is_there(store: PostgresStore, database: str) -> None:
    async with session(database) as look:
        await look.execute(
            """DROP ROLE IF EXISTS clerk;
            CREATE ROLE clerk LOGIN;
            GRANT USAGE ON SCHEMA roost TO clerk;
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA roost TO clerk"""
        )
        clerk = PostgresStore(database.replace("//roost@", "//clerk@"))
        await clerk.open()
        await commit(clerk, creation("t"))
        assert await clerk.read_task("t") is not None
        await clerk.close()
        await look.execute("DROP OWNED BY clerk; DROP ROLE clerk")


async def test_a_database_of_schema_1_gets_accounts_of_what_is_in_it_and_its_hosts_can_go_on(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS[:1])
        older.setattr(postgres_schema, "VERSION", 1)
        old = PostgresStore(database)
        await old.open()
    other = SCOPE._replace(owner="another", agent="another")
    tasks = [creation("a", snapshot=snapshot("a")), ended("b"), ended("c", scope=other)]
    await commit(old, *tasks)
    await commit(old, addition("a", entry(2, data=b"x" * 100_000)))
    sizes = [size_of(task) for task in tasks]
    new = PostgresStore(database)
    await new.open()
    in_a = sizes[0] + size_of(addition("a", entry(2, data=b"x" * 100_000)))
    assert await new.usage() == [StoredUsage("agent", 2, in_a + sizes[1]), StoredUsage("another", 1, sizes[2])]
    assert await new.stored_bytes([("tenant", "tenant"), ("owner", "another")]) == [in_a + sum(sizes[1:]), sizes[2]]
    assert await new.add_token(token("a"))
    async with session(database) as look:
        meta = dict(await look.fetch("SELECT key, value FROM meta"))
        assert (meta["schema"], meta["readable"], meta["identities"]) == (VERSION, 1, 1)
        assert await look.fetch("SELECT * FROM usage") == []
    await commit(old, addition("a", entry(3)))
    await commit(new, addition("a", entry(4)))
    assert len(await entries_of(old, "a")) == 5
    await old.close()
    await new.close()


async def test_the_agents_of_a_database_of_schema_3_count_as_served_now_and_its_hosts_can_go_on(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS[:3])
        older.setattr(postgres_schema, "VERSION", 3)
        old = PostgresStore(database)
        await old.open()
    await commit(old, creation("left", worker=None), creation("asked", state=INPUT_REQUIRED, worker=None), ended("o"))
    before = now_ms()
    new = PostgresStore(database)
    await new.open()
    assert await new.unserved(2**50) == []
    await new.note_served(["new"])
    assert await new.unserved(before) == []
    assert await new.unserved(2**50) == ["agent", "new"]
    assert await new.unfinished("agent", 10) == ["asked", "left"]
    await commit(old, creation("asked too", state=INPUT_REQUIRED, worker=None), addition("asked", entry(2)))
    assert await new.unfinished("agent", 10) == ["asked", "asked too", "left"]
    async with session(database) as look:
        meta = dict(await look.fetch("SELECT key, value FROM meta"))
        assert (meta["schema"], meta["readable"]) == (VERSION, 1)
    await old.close()
    await new.close()


# Several writers


async def test_hosts_of_schema_4_go_on_beside_those_that_record_who_lived_on(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(postgres_schema, "MIGRATIONS", postgres_schema.MIGRATIONS[:4])
        older.setattr(postgres_schema, "VERSION", 4)
        old = PostgresStore(database)
        await old.open()
    await commit(old, creation("t", worker="gone"))
    new = PostgresStore(database)
    await new.open()
    await new.survive("gone")
    assert await new.survivors(["gone", "other"]) == ["gone"]
    [adopted] = await old.adopt("w2", AGENTS, 10)
    await commit(old, addition("t", entry(2), fence=adopted.fence))
    async with session(database) as look:
        meta = dict(await look.fetch("SELECT key, value FROM meta"))
        assert (meta["schema"], meta["readable"]) == (VERSION, 1)
    await old.close()
    await new.close()


async def test_that_a_worker_lived_on_is_forgotten_after_30_days(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_leases, "FORGET_EVERY", 1)
    store = PostgresStore(database)
    await store.open()
    await store.survive("old")
    async with session(database) as look:
        await look.execute("UPDATE survivors SET time_ms = time_ms - 31::bigint * 24 * 3600000")
    await store.survive("new")
    assert await store.renew("w", 60.0)
    assert await store.survivors(["old", "new"]) == ["new"]
    await store.close()


async def test_after_an_adoption_the_writer_before_is_refused_wherever_it_writes(
    store: PostgresStore, other: PostgresStore
) -> None:
    await commit(store, creation("t", worker="gone"), creation("mine"))
    [adopted] = [task for task in await other.adopt("w2", AGENTS, 10) if task.task_id == "t"]
    assert adopted.fence == 2
    stale, fine = await store.commit([addition("t", entry(2)), creation("new")])
    assert isinstance(stale, StaleFence)
    assert fine is None
    await commit(other, addition("t", entry(2), fence=2))
    assert [one.seq for one in await entries_of(store, "t")] == [0, 1, 2]


async def test_an_append_and_an_adoption_at_once_are_one_after_the_other(
    store: PostgresStore, other: PostgresStore
) -> None:
    """Either the append is first, and the adopter reads it, or it is refused: never both and never neither."""
    for number in range(40):
        task_id = f"t{number}"
        await commit(store, creation(task_id, worker="gone"))
        [refusal], adopted = await asyncio.gather(
            store.commit([addition(task_id, entry(2), head=head(WORKING, worker="gone"))]),
            other.adopt("w2", AGENTS, 10),
        )
        seqs = [one.seq for one in await entries_of(other, task_id)]
        assert seqs == ([0, 1] if refusal else [0, 1, 2])
        if refusal:
            assert [task.task_id for task in adopted] == [task_id]
        elif not adopted:  # the row was locked by the append: the next call adopts it
            assert [task.task_id for task in await other.adopt("w2", AGENTS, 10)] == [task_id]
        found = await other.read_task(task_id)
        assert found is not None
        assert (found.head.worker, found.head.fence) == ("w2", 2)


async def test_groups_of_two_hosts_that_overlap_never_wait_in_a_circle(
    store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_deadlock(attempt: int) -> None:
        raise AssertionError("a transaction was ended for the sake of another one")

    monkeypatch.setattr(postgres, "back_off", no_deadlock)
    names = [f"t{number:02}" for number in range(24)]
    await commit(store, *(creation(name, worker=None) for name in names))
    rng, seqs = random.Random(7), count(2)

    def group(chosen: list[str]) -> list[Append]:
        rng.shuffle(chosen)
        return [
            addition(name, entry(next(seqs)), head=head(WORKING, worker=None), reserve=reservation(f"r{name}", ttl_s=0))
            for name in chosen
        ] + [creation(f"new {next(seqs)}", reserve=reservation(f"n{rng.randrange(6)}", ttl_s=0))]

    async def write(writer: PostgresStore, mine: list[str]) -> None:
        for _ in range(40):
            await writer.commit(group(rng.sample(mine, 8)))

    # Two groups of one host never share a task; groups of two hosts may.
    await asyncio.gather(
        write(store, names[:12]), write(store, names[12:]), write(other, names[:12]), write(other, names[12:])
    )


async def test_a_group_that_loses_a_deadlock_is_tried_again(store: PostgresStore, database: str) -> None:
    await commit(store, creation("a"), creation("b"))
    async with session(database) as intruder:
        await intruder.execute(
            "BEGIN; SET LOCAL deadlock_timeout = '20s'; SELECT 1 FROM tasks WHERE id = 'b' FOR UPDATE"
        )
        committing = asyncio.create_task(store.commit([addition("a", entry(2)), addition("b", entry(2))]))
        await until(lambda: _waiting(database))
        await intruder.execute("SELECT 1 FROM tasks WHERE id = 'a' FOR UPDATE")  # continues when the store gives way
        await intruder.execute("COMMIT")
        assert await committing == [None, None]


async def _waiting(database: str) -> bool:
    """Whether some session waits for a lock."""
    async with session(database) as look:
        return bool(
            await look.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        )


# Leases


async def test_hosts_that_adopt_at_once_get_each_task_once(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    names = {f"t{number:02}" for number in range(60)}
    await commit(stores[0], *(creation(name, worker="gone") for name in names))
    taken: list[str] = []

    async def adopt(host: PostgresStore, worker: str) -> None:
        assert await host.renew(worker, FOR_LONG)
        while len(taken) < len(names):
            for task in await host.adopt(worker, AGENTS, 7):
                assert task.fence == 2
                assert not task.handed_over
                taken.append(task.task_id)

    await asyncio.gather(*(adopt(host, f"w{number}") for number, host in enumerate(stores * 2)))
    assert sorted(taken) == sorted(names)


async def test_a_worker_that_lives_keeps_its_tasks(store: PostgresStore, other: PostgresStore) -> None:
    assert await store.renew("w1", FOR_LONG)
    await commit(store, creation("t", worker="w1"), creation("left", worker=None))
    assert [(task.task_id, task.handed_over) for task in await other.adopt("w2", AGENTS, 10)] == [("left", True)]


async def test_a_lease_that_ran_out_is_gone_for_good(store: PostgresStore, other: PostgresStore) -> None:
    assert await store.renew("w1", 0.1)
    await commit(store, creation("t", worker="w1"))

    async def adopted() -> bool:
        return [task.task_id for task in await other.adopt("w2", AGENTS, 10)] == ["t"]

    await until(adopted)
    for host in (store, other, store):
        assert not await host.renew("w1", FOR_LONG)
    assert await store.renew("w1+1", FOR_LONG)


async def test_a_worker_that_leaves_leaves_its_tasks_and_does_not_come_back(
    store: PostgresStore, other: PostgresStore
) -> None:
    assert await store.renew("w1", FOR_LONG)
    await commit(store, creation("t", worker="w1"))
    await store.leave("w1")
    assert [task.task_id for task in await other.adopt("w2", AGENTS, 10)] == ["t"]
    assert not await store.renew("w1", FOR_LONG)


async def test_only_the_tasks_of_gone_workers_are_found_among_many(store: PostgresStore) -> None:
    for number in range(5):
        assert await store.renew(f"alive{number}", FOR_LONG)
    await commit(
        store,
        *(creation(f"fine {number}", worker=f"alive{number % 5}") for number in range(50)),
        *(creation(f"lost {number}", worker=f"gone{number}", created=9 - number) for number in range(3)),
        creation("left", worker=None, created=100),
    )
    adopted = await store.adopt("alive0", AGENTS, 100)
    assert [task.task_id for task in adopted] == ["lost 2", "lost 1", "lost 0", "left"]
    assert await store.adopt("alive0", AGENTS, 100) == []


async def test_tasks_of_workers_whose_lease_ran_out_are_unfinished(store: PostgresStore, other: PostgresStore) -> None:
    assert await store.renew("alive", FOR_LONG)
    assert await store.renew("brief", 0.05)
    await commit(store, *(creation(worker, worker=worker) for worker in ("alive", "brief", "gone")))

    async def ran_out() -> bool:
        return await other.unfinished(SCOPE.agent, 10) == ["brief", "gone"]

    await until(ran_out)
    assert await store.adopt("alive", AGENTS, 1) != []
    assert len(await store.unfinished(SCOPE.agent, 10)) == 1


async def test_unfinished_tasks_and_webhooks_that_are_due_are_found_by_walking_indexes(
    store: PostgresStore, database: str
) -> None:
    async with session(database) as look:
        for name, value in postgres_pool.SETTINGS.items():
            await look.execute(f"SET {name} = '{value}'")
        unfinished = [line for (line,) in await look.fetch(f"EXPLAIN {UNFINISHED}", SCOPE.agent, 10)]
        due = [line for (line,) in await look.fetch(f"EXPLAIN {HOLD}", "me", 10)]
    assert any("tasks_paused on tasks" in line for line in unfinished)
    assert any("tasks_by_worker on tasks" in line for line in unfinished)
    assert any("pushes_due on pushes" in line or "pushes_by_holder on pushes" in line for line in due)
    assert not any("Seq Scan" in line for line in unfinished + due)


# Turns


async def test_of_many_that_ask_at_once_one_has_the_turn_and_they_come_in_their_order(
    store: PostgresStore, other: PostgresStore
) -> None:
    names = [f"t{number}" for number in range(6)]
    await commit(store, *(creation(name, created=number) for number, name in enumerate(names)))
    for number, name in enumerate(names):
        asked = {waiting: [store, other][place % 2] for place, waiting in enumerate(names[number:])}
        answers = await asyncio.gather(*(host.take_turn(waiting) for waiting, host in asked.items()))
        assert [waiting for waiting, before in zip(asked, answers, strict=True) if before is None] == [name]
        assert set(answers) - {None} <= set(names[number:])
        assert await other.take_turn(name) is None
        await commit(other, addition(name, entry(2), head=head(COMPLETED, worker=None)))


async def test_a_turn_is_kept_from_one_that_was_made_earlier(store: PostgresStore, other: PostgresStore) -> None:
    """The clocks of hosts differ."""
    await commit(store, with_turn(creation("late", created=5)))
    await commit(other, creation("early", created=1))
    assert await other.take_turn("early") == "late"
    assert await store.take_turn("late") is None
    await commit(store, addition("late", entry(2), head=head(COMPLETED, worker=None)))
    assert await other.take_turn("early") is None


async def test_a_paused_task_holds_no_turn_and_asks_again_when_it_goes_on(store: PostgresStore) -> None:
    await commit(store, with_turn(creation("first", created=1)), creation("second", created=2))
    assert await store.take_turn("second") == "first"
    await commit(store, addition("first", entry(2), head=head(INPUT_REQUIRED, worker=None)))
    assert await store.take_turn("second") is None
    await commit(store, answer("first", entry(2, 1)))
    assert await store.take_turn("first") == "second"


async def test_contexts_and_scopes_do_not_wait_for_each_other(store: PostgresStore) -> None:
    await commit(
        store,
        with_turn(creation("one", created=1)),
        creation("elsewhere", created=2, context_id="another"),
        creation("theirs", created=2, scope=SCOPE._replace(owner="somebody")),
    )
    assert await store.take_turn("elsewhere") is None
    assert await store.take_turn("theirs") is None
    assert await store.take_turn("nobody") is None


# Reservations


async def test_of_two_hosts_that_take_one_message_at_once_one_has_it(
    store: PostgresStore, other: PostgresStore
) -> None:
    for number in range(20):
        hosts = {f"a{number}": store, f"b{number}": other}
        key = reservation(f"m{number}")
        results = await asyncio.gather(*(host.commit([creation(name, reserve=key)]) for name, host in hosts.items()))
        refused = {name: refusal for name, [refusal] in zip(hosts, results, strict=True)}
        [loser] = [name for name, refusal in refused.items() if refusal is not None]
        [winner] = set(hosts) - {loser}
        taken = refused[loser]
        assert isinstance(taken, Taken)
        assert taken.reserved == Reserved(winner, 1, key.fingerprint) == await other.read_reserved(key.key)
        assert await store.read_task(loser) is None
        assert await store.read_task(winner) is not None


# Webhooks


async def test_hosts_that_look_for_webhooks_at_once_get_each_once(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    names = {f"t{number:02}" for number in range(40)}
    await commit(stores[0], *(ended(name, push=config(name)) for name in names))
    held: list[str] = []

    async def hold(host: PostgresStore, worker: str) -> None:
        assert await host.renew(worker, FOR_LONG)
        while len(held) < len(names):
            held.extend(push.config.task_id for push in await host.hold_pushes(worker, 6))

    await asyncio.gather(*(hold(host, f"w{number}") for number, host in enumerate(stores)))
    assert sorted(held) == sorted(names)


async def test_a_webhook_is_not_laid_to_rest_while_its_task_goes_on(store: PostgresStore, other: PostgresStore) -> None:
    """Whichever comes first, the next entry of the task is delivered."""
    for number in range(30):
        name = f"t{number}"
        await commit(store, creation(name, state=INPUT_REQUIRED, worker="w1", push=config(name)))
        [moved], _ = await asyncio.gather(
            store.move_pushes("w1", [move(name)]), other.commit([answer(name, entry(1, 1), entry(2), worker="w2")])
        )
        [push] = await store.read_pushes(name)
        assert moved
        assert push.due is not None


# A server that stops and restarts


# Tokens, keys and figures


async def test_of_two_hosts_that_make_the_first_key_at_once_one_does(
    store: PostgresStore, other: PostgresStore
) -> None:
    for number in range(20):
        agent = f"agent {number}"
        made = [key("mine", agent), key("theirs", agent)]
        won = await asyncio.gather(store.add_key(made[0], None, 9000), other.add_key(made[1], None, 9000))
        assert sorted(won) == [False, True]
        changes = await store.read_identities(number)
        assert changes.keys == [made[won.index(True)]]
        assert changes == await other.read_identities(number)


async def test_who_follows_the_changes_of_several_hosts_misses_none(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]

    async def write(store: PostgresStore, name: str) -> None:
        for number in range(25):
            assert await store.add_token(token(f"{name}.{number}"))
            await store.revoke_token(f"0.{number}", 2000)

    writing = asyncio.gather(*(write(store, f"{number}") for number, store in enumerate(stores)))
    mirrors = [Cache(store) for store in stores]
    await asyncio.gather(writing, *(mirror.follow_until(writing) for mirror in mirrors))
    for mirror in mirrors:
        assert await mirror.misses_nothing()
        assert len(mirror.tokens) == 75


async def test_a_change_that_is_committed_late_has_no_version_that_anyone_has_read(
    store: PostgresStore, database: str
) -> None:
    await store.add_token(token("first"))
    async with session(database) as late, session(database) as look:
        begun = late.transaction()
        await begun.start()
        version = await late.fetchval(postgres_identities.NEXT_VERSION)
        await late.execute("UPDATE tokens SET revoked = 1, version = $1 WHERE id = 'first'", version)
        await late.execute(postgres_identities.RAISE_VERSION, version)
        adding = asyncio.ensure_future(store.add_token(token("second")))
        await until(lambda: look.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))
        mirror = Cache(store)
        await mirror.refresh()
        assert (mirror.version, set(mirror.tokens)) == (1, {"first"})
        await begun.commit()
        assert await adding
        await mirror.refresh()
    assert (mirror.version, set(mirror.tokens)) == (3, {"first", "second"})
    assert mirror.tokens["first"].revoked == 1


async def test_hosts_hear_what_others_told_in_the_last_seconds(open_store: Open, database: str) -> None:
    a, b, c = [await open_store() for _ in range(3)]
    assert await a.share("a", b"1") == {}
    assert await b.share("b", b"\0\xff") == {"a": b"1"}
    assert await a.share("a", b"2") == {"b": b"\0\xff"}
    assert await c.share("c", b"") == {"a": b"2", "b": b"\0\xff"}
    async with session(database) as look:
        await look.execute("UPDATE figures SET told = told - 6000 WHERE worker = 'b'")
        assert await a.share("a", b"3") == {"c": b""}
        assert await b.share("b", b"4") == {"a": b"3", "c": b""}
        await look.execute("UPDATE figures SET told = told - 61000")
        await asyncio.gather(a.share("a", b"5"), b.share("b", b"5"))
        await a.share("a", b"6")
        assert [row[0] for row in await look.fetch("SELECT worker FROM figures ORDER BY worker")] == ["a", "b"]


async def test_for_a_task_of_someone_else_no_more_is_read_than_for_none(store: PostgresStore, database: str) -> None:
    await commit(store, creation("t", snapshot=snapshot("t")))
    async with session(database) as look:
        for name, value in postgres_pool.SETTINGS.items():
            await look.execute(f"SET {name} = '{value}'")
        for owner, times in (("another", "never executed"), ("owner", "actual time")):
            plan = await look.fetch(f"EXPLAIN (ANALYZE, COSTS OFF) {READ_OWNED}", "t", 1000, owner)
            [read] = [line for (line,) in plan if "segments" in line]
            assert times in read


class Proxy:
    """A proxy between a store and the server; it can lose the server's replies, or drop everything."""

    def __init__(self, url: str) -> None:
        self.parts = urlsplit(url)
        self.losing_answers = self.swallowing = False
        self.writers: list[asyncio.StreamWriter] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Proxy:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = self.parts._replace(netloc=f"roost@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.server.close()
        self.cut()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in self.writers:
            writer.close()
        self.writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.parts.hostname is not None
        there, back = await asyncio.open_connection(self.parts.hostname, self.parts.port)
        self.writers += [writer, back]
        self.tasks += [
            asyncio.create_task(self._carry(reader, back)),
            asyncio.create_task(self._carry(there, writer, True)),
        ]

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool = False) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if answers and self.losing_answers:
                    self.cut()
                elif not self.swallowing:
                    writer.write(data)
                    await writer.drain()
            writer.close()


@pytest.fixture
async def proxy(database: str) -> AsyncIterator[Proxy]:
    async with Proxy(database) as between:
        yield between


@pytest.fixture
async def far(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A store behind the proxy."""
    store = PostgresStore(proxy.url)
    await store.open()
    yield store
    await store.close()


async def test_a_commit_whose_answer_is_lost_is_unknown_and_counts_when_it_is_tried_again(
    far: PostgresStore, proxy: Proxy
) -> None:
    await commit(far, creation("paused", state=INPUT_REQUIRED, worker=None), creation("works", state=WORKING))
    group = [
        creation("new", reserve=reservation("m1"), push=config("new")),
        answer("paused", entry(2), reserve=reservation("m2")),
        addition("works", entry(2), head=head(WORKING)),
    ]
    proxy.losing_answers = True
    with pytest.raises(OutcomeUnknown):
        await far.commit(group)
    proxy.losing_answers = False
    before = [await far.read_task(append.task_id) for append in group]
    assert all(before)
    await far.delete_push("new", "hook")
    await commit(far, *group)
    assert [await far.read_task(append.task_id) for append in group] == before
    assert [one.seq for one in await entries_of(far, "paused")] == [0, 1, 2]
    assert await far.read_pushes("new") == []


async def test_a_commit_that_is_cut_off_before_it_is_done_is_unknown_and_can_be_tried_again(
    store: PostgresStore, database: str
) -> None:
    await commit(store, creation("t"))
    append = addition("t", entry(2))
    async with session(database) as look:
        await look.execute("BEGIN; SELECT 1 FROM tasks WHERE id = 't' FOR UPDATE")
        committing = asyncio.create_task(store.commit([append]))
        await until(lambda: _waiting(database))
        await look.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        with pytest.raises(OutcomeUnknown, match="administrator command"):
            await committing
        await look.execute("COMMIT")
    await commit(store, append)
    assert [one.seq for one in await entries_of(store, "t")] == [0, 1, 2]


async def test_a_network_that_swallows_everything_ends_calls_and_is_got_over(
    far: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(far, creation("t"))
    assert await far.renew("w", FOR_LONG)
    proxy.swallowing = True
    with monkeypatch.context() as patch:
        for module in (postgres, postgres_pool):
            patch.setattr(module, "CALL_S", 0.2)
        with pytest.raises(StoreUnavailable, match="did not respond in time"):
            await far.read_task("t")
        with pytest.raises(StoreUnavailable, match="did not respond in time"):
            await far.renew("w", FOR_LONG)
        with pytest.raises(OutcomeUnknown, match="did not respond in time"):
            await far.commit([addition("t", entry(2))])
        with pytest.raises(StoreUnavailable) as failure:  # no connection can be made
            await far.commit([addition("t", entry(2))])
        assert not isinstance(failure.value, OutcomeUnknown)
    proxy.swallowing = False
    proxy.cut()
    await commit(far, addition("t", entry(2)))
    assert await far.renew("w", FOR_LONG)
    assert await far.read_task("t") is not None


async def test_calls_that_are_given_up_leave_the_store_usable(store: PostgresStore, database: str) -> None:
    await commit(store, creation("t"))
    async with session(database) as look:
        await look.execute("BEGIN; LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
        calls = [asyncio.create_task(store.read_task("t")) for _ in range(10)]
        calls += [asyncio.create_task(store.commit([addition("t", entry(2))])) for _ in range(5)]
        await until(lambda: _waiting(database))
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await look.execute("COMMIT")
    assert await store.read_task("t") is not None
    await commit(store, addition("t", entry(3)))


async def test_while_the_server_is_away_calls_fail_and_then_they_work_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOST_TEST_POSTGRES", raising=False)  # it is stopped
    with postgres_service(fsync=False) as server:
        store = PostgresStore(new_database(server.url))
        await store.open()
        await commit(store, creation("t"))
        assert await store.renew("w", FOR_LONG)
        for mode in ("immediate", "fast"):
            server.stop(mode)
            for call in (
                store.read_task("t"),
                store.probe(),
                store.renew("w", FOR_LONG),
                store.list_tasks(query()),
                store.adopt("w", AGENTS, 10),
            ):
                with pytest.raises(StoreUnavailable):
                    await call
            with pytest.raises(StoreUnavailable):
                await store.commit([addition("t", entry(2))])
            server.start()
            await store.probe()
            assert await store.renew("w", FOR_LONG)
            assert [one.seq for one in await entries_of(store, "t")] == [0, 1]
        await commit(store, addition("t", entry(2)))
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.probe()
        server.start()
        assert [one.seq for one in await entries_of(store, "t")] == [0, 1, 2]
        await store.close()


async def test_a_database_that_takes_no_writes_says_so(store: PostgresStore, open_store: Open, database: str) -> None:
    await commit(store, creation("t"))
    async with session(database) as look:
        await look.execute(f"ALTER DATABASE {urlsplit(database).path[1:]} SET default_transaction_read_only = on")
    late = await open_store()
    with pytest.raises(StoreUnavailable, match="read-only"):
        await late.probe()
    with pytest.raises(StoreUnavailable, match="read-only") as failure:
        await late.commit([addition("t", entry(2))])
    assert not isinstance(failure.value, OutcomeUnknown)
    assert await late.read_task("t") is not None


# Messages


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://roost:s3cret@127.0.0.1:1/db",
        "postgresql://roost:s3cret@nowhere.invalid/db",
        "postgresql://roost:s3cret@{server}/there_is_none",
        "postgresql://nobody:s3cret@{server}/postgres",
        "postgresql://roost:s3cret#@127.0.0.1/db",
        "postgresql://roost:s3cret/@127.0.0.1/db",
        "postgresql://127.0.0.1:1/db?password=s3cret",
        "postgresql://127.0.0.1:1/db?password=s3cret&port=x",
        "http://roost:s3cret@127.0.0.1/db",
    ],
)
async def test_no_error_tells_the_password(database: str, url: str) -> None:
    with pytest.raises(StoreUnavailable) as failure:
        await PostgresStore(url.format(server=urlsplit(database).netloc.rpartition("@")[2])).open()
    error: BaseException | None = failure.value
    assert "postgresql://" in str(error)
    while error is not None:
        assert "s3cret" not in f"{error} {error!r}"
        error = error.__cause__


async def test_a_server_that_is_not_there_is_named() -> None:
    store = PostgresStore("postgresql://roost:s3cret@127.0.0.1:1/db")
    assert store.location == "postgresql://127.0.0.1:1/db"
    with pytest.raises(StoreUnavailable, match=r"cannot connect to postgresql://127\.0\.0\.1:1/db: .*"):
        await store.open()


async def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(DriverMissing, match=r"pip install 'roost\[postgres\]'"):
        PostgresStore("postgresql://127.0.0.1/db")


# Texts


@given(st.lists(st.text(st.characters(max_codepoint=3) | st.characters(exclude_categories=["Cs"])), min_size=2))
def test_texts_are_kept_and_keep_their_order(texts: list[str]) -> None:
    kept = [to_text(text) for text in texts]
    assert [from_text(text) for text in kept] == texts
    assert sorted(kept) == [to_text(text) for text in sorted(texts)]
    assert not any("\0" in text for text in kept)


async def test_a_context_as_long_as_one_may_be_is_found(store: PostgresStore) -> None:
    """The size of an index row is limited."""
    context = "".join(random.Random(1).choices([chr(code) for code in range(0x4E00, 0x9000)], k=256))
    made = creation("t")
    made.create = NewTask("t", SCOPE._replace(owner=context * 12), context, 1)
    await commit(store, made)
    found = await store.list_tasks(query(scope=made.create.scope, context_id=context))
    assert [stored.new for stored in found.tasks] == [made.create]
