"""Our tables do what protobuf's own JSON does, for every message of A2A; and say what they cannot do."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roost.doors.protobuf import read, write
from roost.protocol.codec import decode, encode
from roost.protocol.errors import UnsupportedOperation
from tests.protocol.strategies import protos, structs
from tests.protocol.test_descriptors import STRUCTS

REQUESTS = [name for name in STRUCTS if name.endswith("Request")] + ["TaskPushNotificationConfig"]

relaxed = settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("name", STRUCTS)
@relaxed
@given(data=st.data())
def test_what_the_engine_writes_becomes_the_message_that_protobuf_reads(name: str, data: st.DataObject) -> None:
    body = encode(data.draw(structs(name)))
    assert write(getattr(pb, name)(), body) == json_format.Parse(body, getattr(pb, name)())


@pytest.mark.parametrize("name", REQUESTS)
@relaxed
@given(data=st.data())
def test_a_request_becomes_the_struct_that_its_json_does(name: str, data: st.DataObject) -> None:
    message = data.draw(protos(name))
    assert read(STRUCTS[name], message) == decode(STRUCTS[name], json_format.MessageToJson(message).encode())


def test_what_a_message_has_no_field_for_is_left_out() -> None:
    assert write(pb.Part(), b'{"text":"x","x-extra":{"a":1}}') == pb.Part(text="x")


def _part(data: Any) -> bytes:
    return encode({"artifacts": [{"artifactId": "a", "parts": [{"data": data}]}], "id": "x"})


def _nested(levels: int, wrap: Any) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}], ids=["lists", "objects"])
def test_what_is_written_can_be_read_by_every_parser(wrap: Any) -> None:
    """Protobuf's own follow a hundred messages."""
    refused = 0
    for levels in range(1, 100):
        try:
            made = pb.ListTasksResponse(tasks=[write(pb.Task(), _part(_nested(levels, wrap)))])
        except UnsupportedOperation:
            refused += 1
            continue
        assert not refused
        assert pb.ListTasksResponse.FromString(made.SerializeToString()) == made
    assert 0 < refused < 80


def test_a_number_that_no_double_holds() -> None:
    with pytest.raises(UnsupportedOperation):
        write(pb.Task(), _part(0).replace(b'"data":0', b'"data":1' + b"0" * 400))


def test_a_time_that_is_none() -> None:
    with pytest.raises(UnsupportedOperation):
        write(pb.TaskStatus(), b'{"state":"TASK_STATE_WORKING","timestamp":"yesterday"}')
