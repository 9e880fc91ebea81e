"""Whatever is done to them, the SQLite store and the store in memory return the same results."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from roost.engine.ports import Store
from roost.engine.store_types import (
    Append,
    CursorMove,
    NewTask,
    Push,
    Scope,
    Snapshot,
    StaleFence,
    Taken,
    TaskHead,
    Tombstone,
)
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores.memory import MemoryStore
from roost.stores.sqlite import SQLiteStore

from .samples import config, dead, entry, query, reservation

T = TypeVar("T")

names = st.sampled_from(["a", "b", "c", "d"])
scopes = st.sampled_from([Scope("t", "o", "x"), Scope("t", "o", "y"), Scope("u", "o", "x")])
workers = st.sampled_from([None, "w1", "w2"])
states = st.sampled_from(list(TaskState)[1:])
times = st.integers(1, 3)
bodies = st.sampled_from([None, b"{}", b'{"id":1}'])
"""The body of the snapshot in an append; None for no snapshot."""
messages = st.none() | st.tuples(st.sampled_from(["m1", "m2", "m3"]), st.sampled_from([0, 600]))
"""The name and lifetime of the reservation in an append; None for no reservation."""
hooks = st.sampled_from(["h1", "h2"])
agents = st.lists(st.sampled_from(["x", "y"]), unique=True)


class Stores(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.memory: Store = MemoryStore()
        self.sqlite: Store = SQLiteStore(self.folder)
        self.last: dict[str, tuple[int, int]] = {}
        self.fences: dict[str, int] = {}
        self.before: Sequence[Append] = []
        """The last group that was committed; empty once another operation may have changed its tasks."""
        self.gone: set[str] = set()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.sqlite.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def both(self, operation: str, *args: Any, ordered: bool = True, **kwargs: Any) -> Any:
        ours = self.run(getattr(self.memory, operation)(*args, **kwargs))
        theirs = self.run(getattr(self.sqlite, operation)(*args, **kwargs))
        found, expected = _comparable(ours), _comparable(theirs)
        assert found == expected if ordered else sorted(found, key=str) == sorted(expected, key=str), operation
        return ours

    def commit(self, group: Sequence[Append]) -> None:
        results = self.both("commit", group)
        for append, refusal in zip(group, results, strict=True):
            if refusal is None:
                if append.entries:
                    self.last[append.task_id] = append.entries[-1][:2]
                if append.head is not None:
                    self.fences[append.task_id] = append.head.fence
        self.before = group

    def more(self, name: str, count: int, internal: int) -> list[Entry]:
        seq, sub = self.last[name]
        found = [entry(seq, sub + number + 1) for number in range(internal)]
        return found + [entry(seq + number + 1) for number in range(count)]

    @rule(
        wanted=st.dictionaries(
            names,
            st.tuples(scopes, workers, states, times, st.booleans(), bodies, messages, st.none() | hooks),
            min_size=1,
            max_size=3,
        )
    )
    def create(self, wanted: dict[str, Any]) -> None:
        group = []
        for name, (scope, worker, state, time, hidden, body, message, hook) in wanted.items():
            if name not in self.last and name not in self.gone:
                entries = [entry(0, 1), entry(1)]
                new = NewTask(name, scope, f"context {time % 2}", time)
                head = TaskHead(state, time, worker, 1, hidden)
                append = Append(name, 1, entries, new, head, _snapshot(entries, body))
                append.reserve = None if message is None else reservation(*message)
                append.push = None if hook is None else config(name, hook)
                group.append(append)
        self.commit(group)

    @rule(
        wanted=st.dictionaries(
            names,
            st.tuples(
                st.integers(0, 2),
                st.integers(0, 2),
                st.sampled_from([0, 0, 0, -1, 1]),
                st.none() | st.tuples(states, times, workers, st.integers(0, 1), st.booleans()),
                bodies,
                messages,
            ),
            min_size=1,
        )
    )
    def append(self, wanted: dict[str, Any]) -> None:
        group = []
        for name, (count, internal, wrong, moved, body, message) in wanted.items():
            if name not in self.last:
                continue
            fence = self.fences[name]
            head = None
            if moved is not None:
                state, time, worker, raised, hidden = moved
                head = TaskHead(state, time, worker, fence + raised, hidden)
            entries = self.more(name, count, internal)
            append = Append(name, fence + wrong, entries, None, head, _snapshot(entries, body))
            append.reserve = None if message is None or not entries else reservation(*message)
            append.goes_on = head is not None and head.fence > fence and bool(entries)
            group.append(append)
        self.commit(group)

    @rule()
    def repeat(self) -> None:
        """A group whose reply was lost gets the same reply when it is committed again."""
        self.both("commit", self.before)

    @rule(worker=st.sampled_from(["w1", "w2"]), agents=agents, limit=st.integers(1, 4))
    def adopt(self, worker: str, agents: list[str], limit: int) -> None:
        for adopted in self.both("adopt", worker, agents, limit):
            self.fences[adopted.task_id] = adopted.fence
            self.before = []

    @rule(most=st.integers(0, 3))
    def drop(self, most: int) -> None:
        self.both("drop_reservations", most)
        self.before = []

    @rule(name=names, hook=hooks, worker=st.sampled_from(["w1", "w2"]), cursor=st.integers(0, 2))
    def put(self, name: str, hook: str, worker: str, cursor: int) -> None:
        self.both("put_push", config(name, hook, cursor), worker)
        self.before = []

    @rule(name=names, hook=hooks)
    def delete(self, name: str, hook: str) -> None:
        self.both("delete_push", name, hook)

    @rule(worker=st.sampled_from(["w1", "w2"]))
    def hold(self, worker: str) -> None:
        self.both("hold_pushes", worker, 100, ordered=False)

    @rule(agents=agents)
    def serve(self, agents: list[str]) -> None:
        self.both("note_served", agents)

    @rule(
        worker=st.sampled_from(["w1", "w2"]),
        moves=st.lists(
            st.tuples(
                names,
                hooks,
                st.integers(0, 3),
                st.integers(0, 1),
                st.booleans(),
                st.sampled_from([None, -60, 600]),
                st.booleans(),
                st.booleans(),
            ),
            max_size=4,
            unique_by=lambda move: move[:2],
        ),
    )
    def move(self, worker: str, moves: list[Any]) -> None:
        self.both(
            "move_pushes",
            worker,
            [
                CursorMove(
                    name, hook, cursor, tries, buried, paused, "", delay_s, keep, dead(name, hook) if buried else None
                )
                for name, hook, cursor, tries, paused, delay_s, keep, buried in moves
            ],
        )
        self.before = []

    @rule(name=st.none() | names, hook=st.none() | hooks)
    def retry(self, name: str | None, hook: str | None) -> None:
        self.both("retry_pushes", name, hook)

    @rule(
        agent=st.sampled_from(["x", "y"]), before_ms=st.none() | st.integers(1, 4), keep=st.none() | st.integers(0, 2)
    )
    def prune(self, agent: str, before_ms: int | None, keep: int | None) -> None:
        self.both("prune", agent, before_ms, keep, 100)
        for name in list(self.last):
            if self.both("read_tombstone", name) is not None:
                del self.last[name], self.fences[name]
                self.gone.add(name)
        self.before = []

    @rule(
        scope=scopes,
        state=st.just(TaskState.UNSPECIFIED) | states,
        context=st.sampled_from(["", "context 0"]),
        cursor=st.none() | st.tuples(times, names),
        limit=st.integers(1, 4),
        artifacts=st.booleans(),
    )
    def list(self, **fields: Any) -> None:
        fields["context_id"] = fields.pop("context")
        self.both("list_tasks", query(**fields))

    @rule()
    def reopen(self) -> None:
        self.run(self.sqlite.close())
        self.sqlite = SQLiteStore(self.folder)

    @invariant()
    def same(self) -> None:
        if hasattr(self, "last"):
            for key in ("m1", "m2", "m3"):
                self.both("read_reserved", reservation(key).key)
            self.both("list_pushes", failing=True, limit=10)
            self.both("outbox")
            self.both("usage")
            self.both("agents")
            self.both("unserved", 2**50)
            for agent, limit in (("x", 100), ("x", 1), ("y", 2)):
                self.both("unfinished", agent, limit)
        for name in getattr(self, "last", ()):
            self.both("read_task", name)
            self.both("read_internal", name)
            self.both("read_pushes", name)
            for after, limit, wire in ((-1, 100, False), (-1, 100, True), (1, 2, False), (2, 1, True)):
                self.both("read_entries", name, after, limit, wire=wire)


def _snapshot(entries: Sequence[Entry], body: bytes | None) -> Snapshot | None:
    """Return a snapshot up to the last entry of its append, as the engine makes them."""
    return None if body is None or not entries else Snapshot(*entries[-1][:2], body, b"[%b]" % body)


def _comparable(value: Any) -> Any:
    """Remove the times, which come from clocks."""
    if isinstance(value, Tombstone):
        return value._replace(pruned=0)
    if isinstance(value, Push):
        return value._replace(created=0, due=None if value.due is None else 0)
    if isinstance(value, StaleFence):
        return "stale"
    if isinstance(value, Taken):
        return value.reserved
    return [_comparable(item) for item in value] if isinstance(value, list) else value


def test_sqlite_and_memory_are_the_same_store() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Stores, settings=settings(max_examples=30, stateful_step_count=25, deadline=None, database=None)
    )
