"""Any input gives a canonical result or an EvidenceError, the same each time, and nothing is lost silently."""

from __future__ import annotations

import copy
import json
from typing import Any

import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.evidence.adapter import Mode
from roost.evidence.adapter_fields import content_hash
from roost.evidence.errors import EvidenceError
from roost.evidence.events import EvidenceEvent, json_string, run_id
from roost.evidence.wire import TrafficConverter
from roost.protocol.codec import encode
from tests.evidence.documents import (
    V03_ARTIFACT,
    V03_CARD,
    V03_MESSAGE,
    V03_STATUS,
    V03_TASK,
    V10_ARTIFACT,
    V10_CARD,
    V10_MESSAGE,
    V10_STATUS,
    V10_TASK,
    body,
    data,
    leaves,
    plain,
)
from tests.protocol.strategies import structs

SAMPLES: list[Any] = [
    *(V03_ARTIFACT, V03_CARD, V03_MESSAGE, V03_STATUS, V03_TASK),
    *(V10_ARTIFACT, V10_CARD, V10_MESSAGE, V10_STATUS, V10_TASK),
    {"message": V10_MESSAGE, "configuration": {"acceptedOutputModes": ["text/plain"], "returnImmediately": True}},
    {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": V03_MESSAGE}},
    {"jsonrpc": "2.0", "id": 1, "result": {"task": V10_TASK}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x", "data": [{"a": 1}]}},
]

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def nested_containers(value: Any) -> list[Any]:
    """Return every object and list in a value, the value included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [place for item in inner for place in nested_containers(item)]
    return [value, *found] if isinstance(value, dict | list) else found


@st.composite
def damaged_documents(draw: st.DrawFn) -> Any:
    """Generate a document with unknown members, and with other values in known members."""
    value = copy.deepcopy(draw(st.sampled_from(SAMPLES)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.sampled_from(nested_containers(value)))
        new = draw(values)
        if isinstance(place, list):
            place.insert(draw(st.integers(0, len(place))), new)
        else:
            place[draw(st.sampled_from(sorted(place) or ["x"]) | st.text(max_size=4))] = new
    return value


def outcome(payload: bytes, mode: Mode) -> EvidenceEvent | EvidenceError:
    try:
        return checked(TrafficConverter(mode=mode).convert(payload))
    except EvidenceError as error:
        return error


def checked(event: EvidenceEvent) -> EvidenceEvent:
    found = plain(event)
    assert rfc8785.dumps(found) == event.line()
    assert found["assaycontenthash"] == content_hash(found)
    assert found["id"] == f"{found['assayrunid']}:{found['assayseq']}"
    assert ":" not in found["assayrunid"]
    return event


@settings(deadline=None)
@given(damaged_documents(), st.sampled_from(Mode))
def test_any_document_gives_an_event_or_an_error_and_the_same_each_time(value, mode):
    found, again = outcome(body(value), mode), outcome(body(value), mode)
    if isinstance(found, EvidenceError):
        assert isinstance(again, EvidenceError)
        assert found.plain() == again.plain()
        assert mode is Mode.STRICT or found.kind == "unsupported_protocol_version"
    else:
        assert found == again


@settings(deadline=None)
@given(st.binary(max_size=60) | values.map(body), st.sampled_from(Mode))
def test_any_bytes_give_an_event_or_an_error(payload, mode):
    assert outcome(payload, mode)


def with_unique_leaves(value: Any, count: list[int]) -> Any:
    """Make every string and number unique, except those that determine the type of the document."""
    if isinstance(value, dict):
        return {key: item if key in TYPE_MEMBERS else with_unique_leaves(item, count) for key, item in value.items()}
    if isinstance(value, list):
        return [with_unique_leaves(item, count) for item in value]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        count[0] += 1
        return f"token-{count[0]}" if isinstance(value, str) else 1_000_000 + count[0]
    return value


TYPE_MEMBERS = ("kind", "role", "state", "jsonrpc", "method", "protocolVersion")


@settings(max_examples=300, deadline=None)
@given(damaged_documents())
def test_every_leaf_is_in_the_content_or_is_listed(value):
    """Each leaf has a unique value, so that it can be found in the event."""
    value = with_unique_leaves(value, [0])
    event = outcome(body(value), Mode.LENIENT)
    if isinstance(event, EvidenceError):
        assert event.kind == "unsupported_protocol_version"
        return
    found = data(event)
    assert found["unmapped"]["count"] == len(found["unmapped"]["pointers"])
    named = set(found["unmapped"]["pointers"])
    kept = {json.dumps(leaf) for _, leaf in leaves(found["content"])}
    for pointer, leaf in leaves(value):
        if pointer.rpartition("/")[2] in TYPE_MEMBERS:
            continue
        assert (json.dumps(leaf) in kept) or pointer in named, f"{pointer} is lost"
        if isinstance(leaf, str | int) and not isinstance(leaf, bool):
            assert (json.dumps(leaf) in kept) != (pointer in named), f"{pointer} is in both"
    assert named <= {pointer for pointer, _ in leaves(value)}


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["Message", "Task", "TaskStatusUpdateEvent", "TaskArtifactUpdateEvent", "AgentCard"]).flatmap(
        structs
    )
)
def test_all_of_1_0_is_mapped(value):
    """Every field of our own types is in the event: the number of leaves is the same."""
    payload = encode(value)
    found = data(checked(TrafficConverter(version="1.0", mode=Mode.LENIENT).convert(payload)))
    assert found["unmapped"]["count"] == 0
    given_ = [leaf for _, leaf in leaves(json.loads(payload))]
    (content,) = found["content"].values()
    assert len(list(leaves(content))) == len(given_)


@settings(deadline=None)
@given(st.text())
def test_run_ids_have_no_colon_and_differ_for_different_ids(value):
    found = run_id("task", value)
    assert ":" not in found
    assert found.isascii()
    assert found != run_id("task", value + "x")
    assert found != run_id("task", value.upper()) or value == value.upper()


@settings(deadline=None)
@given(st.text())
def test_strings_are_written_as_rfc_8785_demands(value):
    assert json_string(value) == rfc8785.dumps(value)
