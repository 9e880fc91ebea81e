"""The types that leave the data of parts as JSON read and write the same bytes as the types that they stand for."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from roost.protocol.codec import decoder, encode
from roost.protocol.entries import Received
from roost.protocol.raw import data_of, has_raw_data, raw, raw_decoder
from roost.protocol.types import ListTasksRequest, Message, Part, Role, SendMessageRequest, StreamResponse, Task, Wire

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(st.builds(lambda data: Part(data=data), VALUES) | st.builds(lambda text: Part(text=text), st.text()))


@pytest.mark.parametrize("kind", [Part, Message, Task, StreamResponse, SendMessageRequest])
def test_a_raw_type_is_a_subclass_with_the_same_fields_in_the_same_order(kind: type[Wire]) -> None:
    made = raw(kind)
    assert issubclass(made, kind)
    assert [field.encode_name for field in msgspec.structs.fields(made)] == [
        field.encode_name for field in msgspec.structs.fields(kind)
    ]


def test_a_type_without_parts_stands_for_itself() -> None:
    assert raw(ListTasksRequest) is ListTasksRequest


@given(PARTS.filter(bool))
def test_the_bytes_are_the_same_and_the_data_is_what_it_was(parts: list[Part]) -> None:
    received = Received(Message(message_id="m", role=Role.USER, parts=parts))
    data = encode(received)
    found = raw_decoder(Received)(data)
    assert encode(found) == data
    assert has_raw_data(found.message) == any(part.data is not UNSET for part in parts)
    assert [data_of(part) for part in found.message.parts] == [part.data for part in parts]


def test_data_is_not_taken_apart() -> None:
    task = raw_decoder(Task)(
        b'{"id":"t","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"data":[1]}]}]}'
    )
    assert isinstance(task.artifacts[0].parts[0].data, Raw)


def test_what_is_wrong_is_refused_as_before() -> None:
    with pytest.raises(msgspec.ValidationError, match="exactly one of"):
        raw_decoder(Message)(b'{"messageId":"m","role":"ROLE_USER","parts":[{}]}')
    with pytest.raises(msgspec.ValidationError):
        decoder(Message)(b'{"messageId":"m","role":"ROLE_USER","parts":[]}')
