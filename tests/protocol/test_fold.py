"""A Task is a fold over its entries: the same however they are split, and the same in every later release."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.protocol import entries as kinds
from roost.protocol.codec import decode, decoder, encode
from roost.protocol.entries import NO_CHAIN, Entry, Received, link
from roost.protocol.fold import apply_artifact, apply_message, apply_part, apply_status, fold, new_task
from roost.protocol.states import PAUSED
from roost.protocol.types import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

GOLDEN = Path(__file__).parent / "golden"
Event = TaskStatusUpdateEvent | TaskArtifactUpdateEvent | Received

WORKING, INPUT_REQUIRED = TaskState.WORKING, TaskState.INPUT_REQUIRED


def says(text: str, role: Role = Role.AGENT) -> Message:
    return Message(message_id=f"id of {text}", role=role, parts=[Part(text=text)])


def status(state: TaskState, message: str | None = None, **metadata: Any) -> TaskStatusUpdateEvent:
    found = TaskStatus(state=state, message=None if message is None else says(message))
    return TaskStatusUpdateEvent(task_id="t", context_id="c", status=found, metadata=metadata or None)


def piece(text: str, artifact_id: str = "output", *, append: bool = True, **fields: Any) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=artifact_id, parts=[Part(text=text)], **fields)
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=append)


def received(text: str, **metadata: Any) -> Received:
    return Received(says(text, Role.USER), metadata or None)


def journal(*events: Event) -> list[Entry]:
    """Return the entries of these events."""
    entries: list[Entry] = []
    seq = sub = 0
    for event in events:
        if isinstance(event, Received):
            sub += 1
            kind, data = kinds.MESSAGE, encode(event)
        elif isinstance(event, TaskStatusUpdateEvent):
            seq, sub = seq + 1, 0
            kind, data = kinds.STATUS, encode(StreamResponse(status_update=event))
        else:
            seq, sub = seq + 1, 0
            kind, data = kinds.ARTIFACT, encode(StreamResponse(artifact_update=event))
        entries.append(Entry(seq, sub, kind, data, 0, 0, NO_CHAIN))
    return entries


def folded(*events: Event) -> Task:
    return fold(new_task("t", "c"), journal(*events))


def texts(artifact: Artifact) -> list[Any]:
    return [part.text for part in artifact.parts]


def history(task: Task) -> list[str]:
    """The texts of the history as clients see it."""
    return [message.text for message in decoder(Task)(encode(task)).history]


def test_append_adds_parts_to_the_artifact() -> None:
    task = folded(piece("a", append=False), piece("b"), piece("c"))
    assert [texts(artifact) for artifact in task.artifacts] == [["a", "b", "c"]]


def test_without_append_the_artifact_is_replaced_where_it_stands() -> None:
    task = folded(piece("a"), piece("x", "other"), piece("b", append=False, name="new"))
    assert [(artifact.artifact_id, texts(artifact)) for artifact in task.artifacts] == [
        ("output", ["b"]),
        ("other", ["x"]),
    ]
    assert task.artifacts[0].name == "new"


def test_append_to_an_artifact_that_is_not_there_makes_it() -> None:
    assert [texts(artifact) for artifact in folded(piece("a")).artifacts] == [["a"]]


def test_a_part_is_appended_as_the_event_that_says_so_would() -> None:
    task = folded(piece("x", "other"), piece("a"))
    apply_part(task, "output", Part(text="b"))
    assert encode(task) == encode(folded(piece("x", "other"), piece("a"), piece("b")))


def test_an_absent_append_is_false() -> None:
    event = decode(TaskArtifactUpdateEvent, encode(piece("b")).replace(b',"append":true', b""))
    assert texts(folded(piece("a"), event).artifacts[0]) == ["b"]


def test_an_appended_piece_adds_to_what_the_artifact_says_of_itself() -> None:
    first = piece("a", name="one", description="first", metadata={"a": 1, "b": 1}, extensions=["urn:x"])
    second = piece("b", name="two", metadata={"b": 2}, extensions=["urn:y", "urn:x"])
    artifact = folded(first, second, piece("c")).artifacts[0]
    assert (artifact.name, artifact.description) == ("two", "first")
    assert artifact.metadata == {"a": 1, "b": 2}
    assert artifact.extensions == ["urn:x", "urn:y"]


def test_messages_go_into_the_history_in_order() -> None:
    assert history(folded(received("one"), status(TaskState.SUBMITTED), received("two"))) == ["one", "two"]


@pytest.mark.parametrize("state", sorted(PAUSED))
def test_a_question_moves_into_the_history_when_the_task_goes_on(state: TaskState) -> None:
    asked = [received("go"), status(TaskState.SUBMITTED), status(state, "which city?")]
    paused = folded(*asked)
    assert history(paused) == ["go"]
    assert paused.status.message is not None
    answered = folded(*asked, received("Rome"), status(WORKING))
    assert history(answered) == ["go", "which city?", "Rome"]
    assert answered.status.message is None
    assert history(folded(*asked, status(TaskState.CANCELED))) == ["go", "which city?"]
    assert history(folded(*asked, status(state, "or which country?"))) == ["go", "which city?"]


def test_progress_messages_do_not_fill_the_history() -> None:
    task = folded(received("go"), status(WORKING, "10 %"), status(WORKING, "20 %"), status(TaskState.COMPLETED, "done"))
    assert history(task) == ["go"]
    assert task.status.message is not None
    assert task.status.message.text == "done"


def test_metadata_of_messages_and_statuses_is_merged_the_later_wins() -> None:
    task = folded(received("go", a=1, b=1), status(WORKING, b=2, c=2), status(TaskState.COMPLETED))
    assert task.metadata == {"a": 1, "b": 2, "c": 2}


@pytest.mark.parametrize("kind", [kinds.STEP, kinds.ATTEMPT, kinds.REPLY, "?"])
def test_records_that_are_nobodys_business_change_nothing(kind: str) -> None:
    before = [received("go"), status(WORKING), piece("a")]
    record = Entry(2, 1, kind, b'{"name":"x","occurrence":0,"result":1}', 0, 0, NO_CHAIN)
    assert fold(new_task("t", "c"), [*journal(*before), record]) == folded(*before)


def test_fields_of_a_newer_release_are_ignored() -> None:
    [entry] = journal(status(WORKING))
    newer = entry._replace(data=entry.data.replace(b'{"statusUpdate":{', b'{"later":1,"statusUpdate":{"sooner":[2],'))
    assert fold(new_task("t", "c"), [newer]).status.state is WORKING


metadata = st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), max_size=2)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        lambda state, message, data: status(state, message, **(data or {})),
        st.sampled_from(list(TaskState)[1:]),
        st.none() | st.sampled_from(["p", "q"]),
        metadata,
    ),
    st.builds(
        lambda text, where, append, name, data: piece(text, where, append=append, name=name, metadata=data),
        st.text(max_size=3),
        st.sampled_from(["output", "other"]),
        st.booleans(),
        st.sampled_from(["", "n"]),
        metadata,
    ),
    st.builds(lambda text, data: received(text, **(data or {})), st.sampled_from(["x", "y"]), metadata),
)
histories = st.lists(events, max_size=12)


@settings(deadline=None, database=None)
@given(history=histories, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_folding_in_pieces_with_snapshots_between_is_folding_at_once(history: list[Event], cuts: list[int]) -> None:
    entries = journal(*history)
    task = new_task("t", "c")
    bounds = [0, *sorted(cuts), len(entries)]
    for start, end in pairwise(bounds):
        task = decode(Task, encode(fold(task, entries[start:end])))
    assert encode(task) == encode(fold(new_task("t", "c"), entries))


@settings(deadline=None, database=None)
@given(history=histories)
def test_events_applied_as_they_are_made_give_the_fold_and_are_not_changed_by_it(history: list[Event]) -> None:
    task, before = new_task("t", "c"), [encode(event) for event in history]
    for event in history:
        if isinstance(event, TaskStatusUpdateEvent):
            apply_status(task, event)
        elif isinstance(event, TaskArtifactUpdateEvent):
            apply_artifact(task, event)
        else:
            apply_message(task, event)
    assert encode(task) == encode(folded(*history))
    assert [encode(event) for event in history] == before


@settings(deadline=None, database=None)
@given(history=histories)
def test_a_client_that_applies_the_stream_has_the_text_that_the_task_has(history: list[Event]) -> None:
    shown: dict[str, str] = {}
    for event in history:
        if isinstance(event, TaskArtifactUpdateEvent):
            key, text = event.artifact.artifact_id, str(event.artifact.parts[0].text)
            shown[key] = shown.get(key, "") + text if event.append is True else text
    task = folded(*history)
    assert {artifact.artifact_id: "".join(texts(artifact)) for artifact in task.artifacts} == shown


@pytest.mark.parametrize("recorded", sorted(GOLDEN.glob("*.ndjson")), ids=lambda path: path.stem)
def test_a_journal_recorded_by_an_older_release_still_folds(recorded: Path) -> None:
    """The files have entries as the store wrote them. Never edit one: add another."""
    entries = [_entry(line) for line in recorded.read_text().splitlines()]
    expected = json.loads(recorded.with_suffix(".task.json").read_text())
    task = fold(new_task(expected["id"], expected["contextId"]), entries)
    assert json.loads(encode(task)) == expected
    chain = NO_CHAIN
    for entry in entries:
        chain = link(chain, *entry[:6])
        assert chain == entry.chain


def test_there_is_a_recorded_journal() -> None:
    assert list(GOLDEN.glob("*.ndjson"))


def _entry(line: str) -> Entry:
    found = json.loads(line)
    return Entry(**{**found, "data": found["data"].encode(), "chain": bytes.fromhex(found["chain"])})
