"""Whatever is done to them, the SQLite store and the one in memory say the same."""

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

from roost.engine.ports import Append, Head, NewTask, Scope, Snapshot, StaleFence, Store
from roost.protocol.entries import Entry
from roost.protocol.types import TaskState
from roost.stores.memory import MemoryStore
from roost.stores.sqlite import SQLiteStore

from .making import entry, query

T = TypeVar("T")

names = st.sampled_from(["a", "b", "c", "d"])
scopes = st.sampled_from([Scope("t", "o", "x"), Scope("t", "o", "y"), Scope("u", "o", "x")])
workers = st.sampled_from([None, "w1", "w2"])
states = st.sampled_from(list(TaskState)[1:])
times = st.integers(1, 3)
bodies = st.sampled_from([None, b"{}", b'{"id":1}'])
"""Of the snapshot that an append brings; None for none."""


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

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.sqlite.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def both(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        ours = self.run(getattr(self.memory, operation)(*args, **kwargs))
        theirs = self.run(getattr(self.sqlite, operation)(*args, **kwargs))
        assert _comparable(ours) == _comparable(theirs), operation
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
            names, st.tuples(scopes, workers, states, times, st.booleans(), bodies), min_size=1, max_size=3
        )
    )
    def create(self, wanted: dict[str, Any]) -> None:
        group = []
        for name, (scope, worker, state, time, hidden, body) in wanted.items():
            if name not in self.last:
                entries = [entry(0, 1), entry(1)]
                new = NewTask(name, scope, f"context {time % 2}", time)
                head = Head(state, time, worker, 1, hidden)
                group.append(Append(name, 1, entries, new, head, _snapshot(entries, body)))
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
            ),
            min_size=1,
        )
    )
    def append(self, wanted: dict[str, Any]) -> None:
        group = []
        for name, (count, internal, wrong, moved, body) in wanted.items():
            if name not in self.last:
                continue
            fence = self.fences[name]
            head = None
            if moved is not None:
                state, time, worker, raised, hidden = moved
                head = Head(state, time, worker, fence + raised, hidden)
            entries = self.more(name, count, internal)
            group.append(Append(name, fence + wrong, entries, None, head, _snapshot(entries, body)))
        self.commit(group)

    @rule()
    def repeat(self) -> None:
        """Only what did not raise the fence: an answer that was lost is the same answer again."""
        if all(append.head is None or append.head.fence == append.fence for append in self.before):
            self.both("commit", self.before)

    @rule(name=names, worker=st.sampled_from(["w1", "w2"]), wrong=st.sampled_from([0, 0, 1]))
    def claim(self, name: str, worker: str, wrong: int) -> None:
        fence = self.both("claim", name, worker, self.fences.get(name, 1) + wrong)
        if fence is not None:
            self.fences[name] = fence
            self.before = []

    @rule(
        scope=scopes,
        state=st.just(TaskState.UNSPECIFIED) | states,
        context=st.sampled_from(["", "context 0"]),
        cursor=st.none() | st.tuples(times, names),
        limit=st.integers(1, 4),
        artifacts=st.booleans(),
    )
    def list(self, **asked: Any) -> None:
        asked["context_id"] = asked.pop("context")
        self.both("list_tasks", query(**asked))

    @rule(worker=st.sampled_from(["w1", "w2"]), agents=st.lists(st.sampled_from(["x", "y"]), unique=True))
    def orphans(self, worker: str, agents: list[str]) -> None:
        self.both("orphans", worker, agents, 2)

    @rule()
    def reopen(self) -> None:
        self.run(self.sqlite.close())
        self.sqlite = SQLiteStore(self.folder)

    @invariant()
    def same(self) -> None:
        for name in getattr(self, "last", ()):
            self.both("read_task", name)
            self.both("read_internal", name)
            for after, limit, wire in ((-1, 100, False), (-1, 100, True), (1, 2, False), (2, 1, True)):
                self.both("read_entries", name, after, limit, wire=wire)


def _snapshot(entries: Sequence[Entry], body: bytes | None) -> Snapshot | None:
    """The fold up to the last entry of its append, as the engine makes them."""
    return None if body is None or not entries else Snapshot(*entries[-1][:2], body, b"[%b]" % body)


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return [isinstance(item, StaleFence) or item for item in value]
    return value


def test_sqlite_and_memory_are_the_same_store() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Stores, settings=settings(max_examples=30, stateful_step_count=25, deadline=None, database=None)
    )
