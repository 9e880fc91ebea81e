"""Our JSON is protobuf's JSON: what either writes the other reads, and nothing is lost on the way.

Out of scope, because one of the two cannot say it:
- lone surrogates: neither UTF-8 nor protobuf can carry them (test_codec.py: refused);
- NaN and the infinities: they have no JSON (test_codec.py);
- integers beyond 2**53 in `data` and metadata: protobuf's Value is a double, ours keeps them exact;
- nanoseconds in `statusTimestampAfter`: rounded to microseconds, tasks are listed by the millisecond;
- `append: false`: written by us, never by protobuf, and the same to both.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from roost.protocol.codec import decode, encode
from roost.protocol.types import GetTaskRequest, ListTasksRequest, Part, TaskArtifactUpdateEvent

from .strategies import protos, structs
from .test_descriptors import STRUCTS

relaxed = settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

SPELLINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "snake_case names": {"preserving_proto_field_name": True},
    "defaults written out": {"always_print_fields_with_no_presence": True},
    "enums as numbers": {"use_integers_for_enums": True},
    "escaped, on many lines": {"indent": 1, "ensure_ascii": True},
}


def proto_json(message: ProtoMessage, **options: Any) -> bytes:
    return json_format.MessageToJson(message, **{"indent": None, "ensure_ascii": False, **options}).encode()


def parse(name: str, body: bytes) -> ProtoMessage:
    return json_format.Parse(body, getattr(a2a_pb2, name)())


@pytest.mark.parametrize("name", STRUCTS)
@relaxed
@given(data=st.data())
def test_what_protobuf_writes_comes_back_to_it_unchanged(name: str, data: st.DataObject) -> None:
    message = data.draw(protos(name))
    for how, options in SPELLINGS.items():
        ours = decode(STRUCTS[name], proto_json(message, **options))
        assert parse(name, encode(ours)) == message, how


@pytest.mark.parametrize("name", STRUCTS)
@relaxed
@given(data=st.data())
def test_what_we_write_comes_back_from_protobuf_unchanged(name: str, data: st.DataObject) -> None:
    ours: Struct = data.draw(structs(name))
    body = encode(ours)
    assert decode(STRUCTS[name], proto_json(parse(name, body))) == ours
    assert decode(STRUCTS[name], body) == ours


@settings(relaxed, max_examples=60)
@given(raw=st.binary(max_size=40))
def test_bytes_are_read_in_every_base64_that_protobuf_reads(raw: bytes) -> None:
    for spelled in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
        for text in (spelled, spelled.rstrip(b"=")):
            body = b'{"raw":"%b"}' % text
            assert decode(Part, body) == Part(raw=raw)
            assert parse("Part", body).raw == raw


@pytest.mark.parametrize("spelled", ["3", "3.0", '"3"', "30e-1", "0.3e1"])
def test_an_integer_may_be_spelled_as_protobuf_allows(spelled: str) -> None:
    body = b'{"id":"t","historyLength":%b}' % spelled.encode()
    assert decode(GetTaskRequest, body).history_length == 3
    assert parse("GetTaskRequest", body).history_length == 3


@pytest.mark.parametrize("name", ["configuration", "metadata", "tenant"])
def test_null_is_the_same_as_absence(name: str) -> None:
    message = '{"messageId":"m","role":"ROLE_USER","parts":[{"text":null,"url":"u","metadata":null}]}'
    body = f'{{"message":{message},"{name}":null}}'.encode()
    assert parse("SendMessageRequest", encode(decode(STRUCTS["SendMessageRequest"], body))) == parse(
        "SendMessageRequest", body
    )


def test_null_data_is_data() -> None:
    body = b'{"data":null}'
    assert encode(decode(Part, body)) == body
    assert parse("Part", body).WhichOneof("content") == "data"


@pytest.mark.parametrize(
    "spelled", ["2024-05-01T10:00:00Z", "2024-05-01T12:00:00+02:00", "2024-05-01T10:00:00.000000Z"]
)
def test_a_moment_is_the_same_in_every_spelling(spelled: str) -> None:
    body = b'{"statusTimestampAfter":"%b"}' % spelled.encode()
    found = decode(ListTasksRequest, body).status_timestamp_after
    assert found is not None
    assert found.timestamp() == parse("ListTasksRequest", body).status_timestamp_after.ToSeconds()


def test_append_false_is_written_and_is_what_absence_means_to_protobuf() -> None:
    without = b'{"taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"text":"x"}]}'
    event = decode(TaskArtifactUpdateEvent, without + b',"append":false}')
    assert b'"append":false' in encode(event)
    assert parse("TaskArtifactUpdateEvent", encode(event)) == parse("TaskArtifactUpdateEvent", without + b"}")
