"""The parts of a followed stream that a real host shows only by chance: cut frames, and text that is taken back."""

from __future__ import annotations

import pytest

from roost.cli.client import HostClient, ReceivedEvent
from roost.cli.errors import CommandFailed
from roost.cli.follow import TRIES, Follow
from roost.cli.transcript import Transcript
from roost.cli.transport import ServerSentEvent, frames
from roost.protocol.types import (
    Artifact,
    Part,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
)

STREAM = b': keep-alive\nid: 7\ndata: {"a":1}\n\ndata: {"b":"\xe2\x80\xa8"}\r\n\r\nid: 8\ndata: {"cut'


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_do_not_depend_on_how_the_bytes_are_cut(size: int) -> None:
    chunks = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert list(frames(chunks)) == [ServerSentEvent(7, b'{"a":1}'), ServerSentEvent(None, b'{"b":"\xe2\x80\xa8"}')]


def test_waits_grow_to_a_bound_and_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    notes: list[str] = []
    monkeypatch.setattr("time.sleep", waits.append)
    follow = Follow(HostClient("http://127.0.0.1:9", ""), "job", "t", notes.append)
    follow.last = 3
    with pytest.raises(CommandFailed, match="`roost watch t --agent job"):
        list(follow.watch())
    assert waits[:6] == [0.25, 0.5, 1, 2, 4, 5]
    assert set(waits[6:]) == {5}
    assert len(notes) == len(waits) == TRIES


def piece(text: str, *, append: bool = True, artifact: str = "output") -> ReceivedEvent:
    update = TaskArtifactUpdateEvent(
        task_id="t",
        context_id="c",
        artifact=Artifact(artifact_id=artifact, parts=[Part(text=text)]),
        append=append,
    )
    return ReceivedEvent(1, b"", StreamResponse(artifact_update=update))


def shown(capsys: pytest.CaptureFixture[str], *events: ReceivedEvent, known: bool = False) -> str:
    transcript = Transcript(known=known)
    for event in events:
        transcript.show(event)
    transcript.end()
    return capsys.readouterr().out


def test_restart_that_says_the_same_again_is_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    begin = (piece("one ", append=False), piece("two "), piece("three "))
    assert shown(capsys, *begin, piece("one two ", append=False), piece("three "), piece("four")) == (
        "one two three four\n"
    )
    assert shown(capsys, *begin, piece("one two thr", append=False), piece("ee four")) == "one two three four\n"
    assert shown(capsys, *begin, piece("one two three four", append=False)) == "one two three four\n"


def test_restart_that_says_something_else_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    begin = (piece("one ", append=False), piece("two "))
    assert shown(capsys, *begin, piece("one 2 ", append=False), piece("3")) == "one two \none 2 3\n"
    assert shown(capsys, *begin, piece("one ", append=False), piece("2"), piece("3")) == "one two \none 23\n"


def test_restart_that_says_less_is_printed_whole_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, piece("one two", append=False), piece("one", append=False)) == "one two\none\n"


def test_artifacts_are_kept_apart_by_lines(capsys: pytest.CaptureFixture[str]) -> None:
    events = (piece("a", artifact="x"), piece("b", artifact="x"), piece("c", artifact="y"), piece("d", artifact="x"))
    assert shown(capsys, *events) == "ab\nc\nd\n"


def test_what_was_known_before_is_not_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    task = Task(
        id="t",
        status=TaskStatus(state=TaskState.WORKING),
        artifacts=[Artifact(artifact_id="output", parts=[Part(text="known ")])],
    )
    opening = ReceivedEvent(3, b"", StreamResponse(task=task))
    assert shown(capsys, opening, piece("new"), known=True) == "new\n"
    assert shown(capsys, opening, piece("new"), known=False) == "known new\n"
