"""LiveTask: what is written, when a snapshot is made of it, and what readers see of it."""

from __future__ import annotations

import pytest

from roost import Agent
from roost.engine.live import IllegalTransition, LiveTask
from roost.engine.store_types import NewTask, Scope
from roost.engine.task_fold import SNAPSHOT_FLOOR
from roost.protocol.codec import decoder, encode
from roost.protocol.entries import NO_CHAIN, Entry, Received, link
from roost.protocol.fold import fold, new_task
from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
)
from tests.agents.talk import emitting, send, serving, text_of
from tests.engine.gates import GateStore

NEW = NewTask("task", Scope("tenant", "owner", "agent"), "context", 1_000_000)


def begun() -> LiveTask:
    live = LiveTask.begin(
        NEW, "worker", lambda live: None, hidden=False, stamp=None, reserve=None, push=None, turn=False
    )
    message = Message(message_id="m", role=Role.USER, parts=[Part(text="go")])
    live.write_message(1_000_000, Received(message))
    live.write_status(1_000_000, TaskState.SUBMITTED)
    return live


def say(live: LiveTask, text: str, *, append: bool = True) -> None:
    artifact = Artifact(artifact_id="output", parts=[Part(text=text)])
    event = TaskArtifactUpdateEvent(task_id="task", context_id="context", artifact=artifact, append=append)
    live.write_artifact(2_000_000, event, 1)


def taken(live: LiveTask):
    append = live.take()
    live.committed()
    return append


async def test_wire_entries_have_a_seq_without_gaps_and_internal_ones_hang_off_the_seq_before():
    live = begun()
    say(live, "a", append=False)
    live.write_record(1, "p", {"name": "step"})
    live.write_record(1, "p", {"name": "step"})
    say(live, "b")
    live.write_status(1, TaskState.COMPLETED)
    places = [(entry.seq, entry.sub, entry.kind) for entry in taken(live).entries]
    assert places == [(0, 1, "m"), (1, 0, "s"), (2, 0, "a"), (2, 1, "p"), (2, 2, "p"), (3, 0, "a"), (4, 0, "s")]


async def test_each_entry_is_chained_to_the_one_before():
    live = begun()
    for text in "abc":
        say(live, text)
    chain = NO_CHAIN
    for entry in taken(live).entries:
        chain = link(chain, *entry[:4], entry.time, entry.ordinal)
        assert entry.chain == chain


async def test_a_piece_is_the_same_bytes_and_the_same_fold_as_the_artifact_event_that_it_stands_for():
    pieces, events = begun(), begun()
    for live in (pieces, events):
        say(live, "first", append=False)
    for text in ("plain", 'quo"ted', "line\nbreak", "\u2028 ünïcode 🦉", "\x00"):
        pieces.write_piece(2_000_000, text, 1)
        say(events, text)
    assert [entry.data for entry in pieces.entries] == [entry.data for entry in events.entries]
    taken(pieces)
    taken(events)
    assert encode(pieces.task) == encode(events.task)


async def test_the_fold_in_memory_is_the_fold_of_the_entries():
    live = begun()
    say(live, "a", append=False)
    live.write_piece(1, "b", 1)
    live.write_status(1, TaskState.INPUT_REQUIRED, Message(message_id="q", role=Role.AGENT, parts=[Part(text="?")]))
    live.write_message(1, Received(Message(message_id="n", role=Role.USER, parts=[Part(text="!")]), {"k": 1}))
    live.write_status(1, TaskState.WORKING, metadata={"l": 2})
    entries = taken(live).entries
    assert encode(fold(new_task("task", "context"), entries)) == encode(live.task)


@pytest.mark.parametrize("end", sorted(TERMINAL))
async def test_nothing_follows_a_terminal_state(end):
    live = begun()
    live.write_status(1, end)
    for state in TaskState:
        with pytest.raises(IllegalTransition):
            live.write_status(1, state)
    with pytest.raises(IllegalTransition):
        say(live, "late")
    assert live.state is end


async def test_nothing_returns_to_submitted():
    live = begun()
    live.write_status(1, TaskState.WORKING)
    with pytest.raises(IllegalTransition):
        live.write_status(1, TaskState.SUBMITTED)


@pytest.mark.parametrize("state", sorted(TERMINAL | PAUSED))
async def test_a_task_that_ends_or_pauses_is_snapshot_with_all_that_it_has(state):
    live = begun()
    say(live, "a", append=False)
    live.write_status(1, state)
    append = taken(live)
    assert append.snapshot is not None
    assert (append.snapshot.seq, append.snapshot.sub) == (3, 0)
    assert decoder(Task)(append.snapshot.body).status.state is state
    assert decoder(list[Artifact])(append.snapshot.artifacts) == live.task.artifacts
    assert (append.head.state, append.head.worker) == (state, None)


async def test_a_small_task_is_not_snapshot_while_it_runs():
    live = begun()
    say(live, "a", append=False)
    assert taken(live).snapshot is None


def snapshot_bytes(events: int, size: int) -> tuple[int, int]:
    """(bytes of all snapshots, bytes of all entries) of a task that says so many pieces, each committed alone."""
    live = begun()
    say(live, "x" * size, append=False)
    snapshots = entries = 0
    for _ in range(events):
        append = taken(live)
        entries += sum(len(entry.data) for entry in append.entries)
        if append.snapshot is not None:
            snapshots += len(append.snapshot.body) + len(append.snapshot.artifacts)
        live.write_piece(1, "x" * size, 1)
    return snapshots, entries


@pytest.mark.parametrize("size", [1, 100, 5000])
async def test_the_snapshots_of_a_long_task_are_linear_in_its_length(size):
    """Each is made when more was appended than the last one has, so that all together are at most twice the entries."""
    for events in (100, 1000, 4000):
        snapshots, entries = snapshot_bytes(events, size)
        assert snapshots <= 2 * entries + SNAPSHOT_FLOOR
    assert snapshots > 0, "a long task is snapshot while it runs"


async def test_a_snapshot_and_the_entries_after_it_are_the_whole_task():
    store = GateStore()
    pieces = [f"{number} " + "x" * 500 for number in range(600)]
    async with serving(emitting("async generator", pieces), store=store) as (host, _):
        task = await send(host, "go")
        row = store.rows[task.id]
        running = [a.snapshot for group in store.groups for a in group if a.snapshot and a.entries[-1].kind == "a"]
        assert running, "the task was snapshot while it ran"
        for snapshot in running:
            folded = decoder(Task)(snapshot.body)
            folded.artifacts = decoder(list[Artifact])(snapshot.artifacts)
            fold(folded, [entry for entry in row.entries if entry[:2] > (snapshot.seq, snapshot.sub)])
            assert encode(folded) == encode(task)
    assert text_of(task) == "".join(pieces)


async def test_the_bytes_that_are_stored_are_the_bytes_that_are_streamed():
    store, agent = GateStore(), Agent("saying")

    @agent.on_message
    async def say_things(task):
        yield "first "
        task.status("between")
        yield 'sec"ond 🦉'
        yield {"n": 1}

    async with serving(agent, store=store) as (host, _):
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}}
        response = await host.http.post("/agents/saying/message:stream", json=body)
        frames = [line[6:] for line in response.content.split(b"\n") if line.startswith(b"data: ")]
        (row,) = store.rows.values()
    stored = [entry.data for entry in row.entries if entry.sub == 0]
    assert frames[1:] == stored[1:], "after the opening Task, which stands for the first"
    assert all(isinstance(decoder(StreamResponse)(data), StreamResponse) for data in stored)
    assert isinstance(row.entries[0], Entry)
