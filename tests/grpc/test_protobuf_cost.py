"""The cost of a protobuf message is counted from its bytes, as the parser would see it."""

from __future__ import annotations

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from roost.doors.protobuf_cost import LIGHT_FIELDS, count_fields, is_light, text_field
from roost.protocol.cost import FEW_BYTES
from roost.protocol.errors import ParseError

MANY = 10**9
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def request(*parts: object, **more: object) -> pb.SendMessageRequest:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": list(parts)}
    return ParseDict({"message": message, **more}, pb.SendMessageRequest())


def fields(message: object) -> int:
    """Count the fields as the parsed message has them."""
    found = 0
    for field, value in message.ListFields():  # type: ignore[attr-defined]  # a protobuf message
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        if entry:
            items = [value[key] for key in value]
            found += sum(1 + 1 + 1 + fields(item) for item in items)  # the entry, its name and its value
        else:
            for item in value if field.is_repeated else [value]:
                found += 1 + (fields(item) if field.message_type is not None else 0)
    return found


@given(st.lists(JSON, min_size=1, max_size=3), st.text(max_size=10))
def test_the_count_is_that_of_the_parsed_message(values: list[object], tenant: str) -> None:
    made = request(*({"data": value} for value in values), tenant=tenant)
    data = made.SerializeToString()
    assert count_fields(pb.SendMessageRequest, data, MANY) == fields(made)
    assert text_field(pb.SendMessageRequest, data, pb.SendMessageRequest.TENANT_FIELD_NUMBER) == tenant


def test_counting_ends_at_the_limit() -> None:
    data = b"\x12\x00" * 1_000_000
    assert count_fields(pb.Message, data, 50) == 50


def test_a_long_text_is_light_and_many_values_are_not() -> None:
    assert is_light(pb.SendMessageRequest, request({"text": "a" * 1_000_000}).SerializeToString())
    many = request({"data": [0] * LIGHT_FIELDS}).SerializeToString()
    assert len(many) > FEW_BYTES
    assert not is_light(pb.SendMessageRequest, many)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff" * 100, id="a number without an end"),
        pytest.param(b"\x0b" * 100, id="groups"),
        pytest.param(b"\x0a", id="a length that is missing"),
    ],
)
def test_what_is_no_message_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ParseError, match="Invalid SendMessageRequest"):
        count_fields(pb.SendMessageRequest, data, MANY)
    with pytest.raises(ParseError, match="Invalid SendMessageRequest"):
        text_field(pb.SendMessageRequest, data, 1)
