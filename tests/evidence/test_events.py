"""Events of the profile v2 from the journal: one for each entry, in order, canonical, in constant memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.engine.store_types import NewTask, Scope
from roost.evidence.adapter_fields import content_hash
from roost.evidence.errors import EvidenceError
from roost.evidence.events import EvidenceEvent, journal_events
from roost.protocol import entries as kinds
from roost.protocol.codec import encode
from roost.protocol.entries import NO_CHAIN, AttemptRecord, Entry, Received, StepRecord, link
from roost.protocol.types import Artifact, Message, Part, Role, StreamResponse, TaskArtifactUpdateEvent
from tests.protocol.strategies import structs

TASK = NewTask("0190:1", Scope("acme", "ada", "hello"), "ctx", 0)
NOON = 1_772_186_400_000_001
STATUS = b'{"statusUpdate":{"taskId":"0190:1","contextId":"ctx","status":{"state":"TASK_STATE_WORKING"}}}'


def entry(kind: str, data: bytes, *, seq: int = 1, sub: int = 0, time: int = NOON) -> Entry:
    return Entry(seq, sub, kind, data, time, 0, link(NO_CHAIN, seq, sub, kind, data, time, 0))


def events_of(*entries: Entry, first: int = 0) -> list[dict[str, Any]]:
    return [checked(event) for event in journal_events(TASK, entries, first)]


def checked(event: EvidenceEvent) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event.line())
    assert rfc8785.dumps(found) == event.line()
    assert found["assaycontenthash"] == event.content_hash == content_hash(found)
    assert found["id"] == f"task-0190%3A1:{found['assayseq']}"
    assert {"assaypii", "assaysecrets"}.isdisjoint(found)
    return found


def refusal(one: Entry) -> str:
    with pytest.raises(EvidenceError) as caught:
        list(journal_events(TASK, [one]))
    assert caught.value.kind == "measurement"
    assert caught.value.message.startswith(f"task 0190:1, entry {one.seq}.{one.sub}: ")
    return caught.value.message


def artifact(text: str) -> bytes:
    update = TaskArtifactUpdateEvent(
        task_id=TASK.id, context_id="ctx", artifact=Artifact(artifact_id="output", parts=[Part(text=text)])
    )
    return encode(StreamResponse(artifact_update=update))


def test_each_entry_becomes_an_event_with_its_whole_content():
    message = Message(message_id="m", role=Role.USER, parts=[Part(text="hi")], reference_task_ids=["0180"])
    records = [
        entry(kinds.MESSAGE, encode(Received(message, {"k": 1}, ["text/plain"])), seq=0, sub=1),
        entry(kinds.STATUS, STATUS),
        entry(kinds.ATTEMPT, encode(AttemptRecord(1, "w")), sub=1),
        entry(kinds.STEP, encode(StepRecord("sights", 0, {"a": [1]})), sub=2),
        entry(kinds.ARTIFACT, artifact("é\u2028"), seq=2),
        entry(kinds.REPLY, encode(message), seq=2, sub=1),
    ]
    found = events_of(*records)
    names = ["message", "status", "attempt", "step", "artifact", "reply"]
    assert [event["type"] for event in found] == [f"roost.a2a.v2.{name}" for name in names]
    assert [event["assayseq"] for event in found] == list(range(6))
    assert {event["subject"] for event in found} == {"0190:1"}
    assert {event["time"] for event in found} == {"2026-02-27T10:00:00.000001Z"}
    for event, record in zip(found, records, strict=True):
        data = event["data"]
        assert data["raw"] == {
            "sha256": sha256(record.data).hexdigest(),
            "size_bytes": len(record.data),
            "media_type": "application/json",
        }
        assert data["entry"] == {
            "seq": record.seq,
            "sub": record.sub,
            "kind": record.kind,
            "time": NOON,
            "ordinal": 0,
            "chain": record.chain.hex(),
        }
        assert data["unmapped"] == data["synthetic"] == {"count": 0, "pointers": []}
        assert data["refs"]["task"] == {"id": "0190:1", "visible": True, "synthetic": False}
        (content,) = [data["content"]] if record.kind in "sa" else data["content"].values()
        assert content == json.loads(record.data)
    assert found[0]["data"]["handoff"]["source_kind"] == "reference_task_ids"
    assert found[4]["data"]["refs"]["artifact"]["id"] == "output"
    assert found[4]["data"]["handoff"]["visible"] is False


def test_an_event_does_not_name_tenant_or_owner():
    (found,) = events_of(entry(kinds.STATUS, STATUS))
    assert set(found["data"]["refs"]) == {"agent", "task", "context"}
    assert "ada" not in json.dumps(found)


def test_a_journal_may_be_converted_in_pages():
    records = [entry(kinds.STATUS, STATUS, seq=number) for number in range(1, 8)]
    assert events_of(*records) == events_of(*records[:3]) + events_of(*records[3:5], first=3) + events_of(
        *records[5:], first=5
    )


def test_numbers_without_a_canonical_form_become_text_and_are_listed():
    received = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":[1e16,9007199254740993]}]}}'
    (found,) = events_of(entry(kinds.MESSAGE, received))
    assert found["data"]["content"]["received"]["message"]["parts"][0]["data"] == ["1e+16", "9007199254740993"]
    pointers = [f"/data/content/received/message/parts/0/data/{index}" for index in (0, 1)]
    assert found["data"]["synthetic"] == {"count": 2, "pointers": pointers}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (kinds.STATUS, b"{"),
        (kinds.STATUS, b"\xff"),
        (kinds.STATUS, b"[]"),
        (kinds.STATUS, b'{"artifactUpdate":{}}'),
        (kinds.STATUS, STATUS.replace(b'"taskId"', b'"taskId":"other","taskId"')),
        (kinds.ARTIFACT, STATUS),
        (kinds.MESSAGE, b'{"message":7}'),
        (kinds.REPLY, b'{"messageId":null}'),
        (kinds.STEP, b'"x"'),
        (kinds.STEP, b"[" * 5000 + b"]" * 5000),
        (kinds.STEP, b'{"name":"\\ud800"}'),
        ("z", STATUS),
    ],
)
def test_an_entry_that_no_host_writes_is_refused_and_located(kind, data):
    refusal(entry(kind, data, seq=3, sub=2))


def test_an_entry_with_an_invalid_time_is_refused():
    assert "is not a valid time" in refusal(entry(kinds.STATUS, STATUS, time=2**62))


@settings(deadline=None)
@given(
    structs("Message"),
    st.none() | st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False, allow_infinity=False)),
)
def test_any_message_is_converted_completely(message, metadata):
    data = encode(Received(message, metadata))
    (found,) = events_of(entry(kinds.MESSAGE, data))
    if not found["data"]["synthetic"]["count"]:
        assert found["data"]["content"] == {"received": json.loads(data)}


def test_a_long_journal_needs_no_more_memory_than_a_short_one():
    def journal(length: int) -> Iterator[Entry]:
        return (entry(kinds.ARTIFACT, artifact(f"{number:0200d}"), seq=number) for number in range(1, length))

    def peak(length: int) -> int:
        tracemalloc.start()
        for event in journal_events(TASK, journal(length)):
            event.line()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(200)
    assert peak(5000) < 2 * peak(500) + 100_000
