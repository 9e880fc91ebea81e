"""Bad input is refused with an error that names the field; unusual but valid input is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.protocol.codec import convert, decode, decoder, encode
from roost.protocol.cost import DEFAULT, MAX_SLOW_NUMBERS
from roost.protocol.errors import A2AError, InvalidParams, ParseError
from roost.protocol.types import (
    AgentCard,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)


def request(**changes: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}], **changes}}


def body_of(value: Any) -> bytes:
    return json.dumps(value).encode()


def refused(kind: type[Any], body: bytes) -> A2AError:
    with pytest.raises(A2AError) as caught:
        decode(kind, body)
    return caught.value


@pytest.mark.parametrize(
    ("message", "field", "says"),
    [
        ({"messageId": None}, "message.messageId", "missing"),
        ({"messageId": ""}, "message.messageId", "length >= 1"),
        ({"messageId": 7}, "message.messageId", "got `int`"),
        ({"role": None}, "message.role", "missing"),
        ({"parts": None}, "message.parts", "missing"),
        ({"parts": []}, "message.parts", "length >= 1"),
        ({"parts": {}}, "message.parts", "got `object`"),
        ({"parts": [None]}, "message.parts[0]", "got `null`"),
        ({"parts": [{"text": "a"}, {"text": 7}]}, "message.parts[1].text", "got `int`"),
        ({"parts": [{"raw": "*"}]}, "message.parts[0].raw", "base64"),
        ({"parts": [{"text": "a", "metadata": []}]}, "message.parts[0].metadata", "got `array`"),
        ({"metadata": "a"}, "message.metadata", "got `str`"),
        ({"extensions": ["a", 7]}, "message.extensions[1]", "got `int`"),
        ({"role": "ROLE_UNSPECIFIED"}, "message", "role must be"),
    ],
)
def test_the_error_names_the_field(message: dict[str, Any], field: str, says: str) -> None:
    error = refused(SendMessageRequest, body_of(request(**message)))
    assert isinstance(error, InvalidParams)
    assert error.field == field
    assert error.message.startswith(f"{field}: ")
    assert says in error.message
    assert error.details()[1]["fieldViolations"][0]["field"] == field


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b"7"])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    error = refused(SendMessageRequest, body)
    assert isinstance(error, InvalidParams)
    assert error.field == "body"


def test_a_snake_case_field_is_named_as_it_should_be_spelled() -> None:
    assert refused(GetTaskRequest, b'{"id":"t","history_length":-1}').field == "historyLength"


def test_a_field_inside_a_map_is_named() -> None:
    card = b'{"securitySchemes":{"k":{"apiKeySecurityScheme":{"location":"header","name":7}}}}'
    assert refused(AgentCard, card).field == "securitySchemes[].apiKeySecurityScheme.name"


@pytest.mark.parametrize("content", [{}, {"text": "a", "url": "b"}, {"text": "", "data": None}, {"filename": "f"}])
def test_a_part_has_exactly_one_content(content: dict[str, Any]) -> None:
    error = refused(SendMessageRequest, body_of(request(parts=[{"text": "a"}, content])))
    assert error.field == "message.parts[1]"
    assert "exactly one of text, raw, url and data" in error.message


@pytest.mark.parametrize("content", ["text", "url"])
def test_an_empty_content_is_a_content(content: str) -> None:
    assert encode(decode(Part, body_of({content: ""}))) == b'{"%b":""}' % content.encode()


@pytest.mark.parametrize("value", ["USER", "role_user", 9, -1, 1.5, True])
def test_a_wrong_enum_is_answered_with_those_that_are_right(value: Any) -> None:
    error = refused(SendMessageRequest, body_of(request(role=value)))
    assert error.field == "message.role"
    assert error.message == f"message.role: {value!r} is not one of {', '.join(Role)}"


def test_a_wrong_state_in_a_query_is_answered_with_those_that_are_right() -> None:
    with pytest.raises(InvalidParams, match=r"status: 'done' is not one of TASK_STATE_UNSPECIFIED, .*AUTH_REQUIRED"):
        convert(ListTasksRequest, {"status": "done"}, strict=False)


def test_a_long_wrong_value_is_not_repeated_at_length() -> None:
    assert len(refused(SendMessageRequest, body_of(request(role="x" * 100_000))).message) < 300


@pytest.mark.parametrize("value", [1, "ROLE_USER"])
def test_an_enum_may_be_its_number(value: Any) -> None:
    assert decode(SendMessageRequest, body_of(request(role=value))).message.role is Role.USER


@pytest.mark.parametrize("value", [True, "x", "", "1.5", 1.5, -1, 2**31, "9" * 5000, [], {}])
def test_what_is_no_count_is_refused(value: Any) -> None:
    error = refused(GetTaskRequest, body_of({"id": "t", "historyLength": value}))
    assert isinstance(error, InvalidParams)
    assert error.field == "historyLength"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"message":', id="truncated"),
        pytest.param(b'{"message":{"messageId":"m', id="truncated in a string"),
        pytest.param(b"{message:1}", id="no JSON"),
        pytest.param(b"{} {}", id="two values"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param('{"a":1}'.encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"message":{"messageId":"\xff"}}', id="invalid UTF-8"),
        pytest.param(b'{"message":{"messageId":"\xed\xa0\x80"}}', id="a surrogate in UTF-8"),
        pytest.param(rb'{"message":{"messageId":"\ud800 and more text"}}', id="a lone surrogate"),
        pytest.param(b'{"message":{"messageId":"\n"}}', id="a control character"),
        pytest.param(b'{"metadata":{"a":NaN}}', id="NaN"),
        pytest.param(b'{"metadata":{"a":-Infinity}}', id="an infinity"),
        pytest.param(b'{"metadata":{"a":1e999}}', id="a number that no double can hold"),
    ],
)
def test_what_is_no_json_is_a_parse_error(body: bytes) -> None:
    assert isinstance(refused(SendMessageRequest, body), ParseError)


@settings(deadline=None, database=None)
@given(cut=st.integers(0, 10_000))
def test_a_truncated_body_is_a_parse_error_wherever_it_is_cut(cut: int) -> None:
    whole = body_of({**request(metadata={"a": [1, {"b": None}]}), "configuration": {"historyLength": 2}})
    assert isinstance(refused(SendMessageRequest, whole[: cut % len(whole)]), ParseError)


@settings(deadline=None, database=None)
@given(body=st.binary(max_size=60) | st.text(alphabet='{}[]":,\\ _a1n', max_size=60).map(str.encode))
def test_any_bytes_are_answered_and_nothing_else_is_raised(body: bytes) -> None:
    assert isinstance(refused(SendMessageRequest, body), (ParseError, InvalidParams))


def nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    """Return a request whose deepest value is at `depth`."""
    levels = depth - 4  # the request, its message, the list of parts, the part
    return encode(request(parts=["?"])).replace(b'"?"', b'{"data":%b1%b}' % (opening * levels, closing * levels))


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_allowed_to_the_limit_and_refused_beyond(opening: bytes, closing: bytes) -> None:
    decode(SendMessageRequest, nested(opening, closing, DEFAULT.depth))
    error = refused(SendMessageRequest, nested(opening, closing, DEFAULT.depth + 1))
    assert isinstance(error, InvalidParams)
    assert "nested deeper than 100" in error.message


def test_nesting_of_a_million_levels_is_refused() -> None:
    assert isinstance(refused(SendMessageRequest, b"[" * 1_000_000), InvalidParams)


def test_numbers_that_are_hard_to_parse_are_few() -> None:
    """A megabyte of them once blocked a worker for seconds."""
    many = b",".join([b"1e308"] * (MAX_SLOW_NUMBERS + 1))
    hard = body_of(request(parts=[{"data": []}])).replace(b"[]", b"[%b]" % many)
    assert "exponents of 3 digits" in refused(SendMessageRequest, hard).message
    few = body_of(request(parts=[{"data": []}])).replace(b"[]", b"[%b]" % b",".join([b"1e308"] * 100))
    decode(SendMessageRequest, few)


def test_what_looks_like_a_hard_number_in_a_text_is_none() -> None:
    text = '1e308 \\" 2E+300 ' * (MAX_SLOW_NUMBERS + 1)
    assert decode(SendMessageRequest, body_of(request(parts=[{"text": text}]))).message.text == text


@pytest.mark.parametrize("text", ["[" * 500, '"[' * 500, "\\" * 501 + "[" * 500, '\\"[{' * 500, '["]' * 500])
def test_brackets_in_text_are_no_nesting(text: str) -> None:
    assert decode(SendMessageRequest, body_of(request(parts=[{"text": text}]))).message.text == text


def test_a_body_made_to_be_slow_to_check_is_not() -> None:
    """This once took quadratic time: 4 MB of it would have blocked a worker for days."""
    body = b"[%b" % (b"[]," * 200) + b'"' + b'\\"' * 2_000_000
    assert isinstance(refused(SendMessageRequest, body), ParseError)


@pytest.mark.parametrize("name", ["unknown", "un_known", "Message"])
def test_unknown_fields_are_ignored(name: str) -> None:
    plain = decode(SendMessageRequest, body_of(request()))
    for value in (None, 1, {"messageId": 1}, ["x"]):
        assert decode(SendMessageRequest, body_of({**request(**{name: value}), name: value})) == plain


def test_snake_case_is_only_read_where_the_schema_has_fields() -> None:
    message = decode(SendMessageRequest, body_of({"message": {
        "message_id": "m", "role": "ROLE_USER", "context_id": "c", "parts": [{"data": {"message_id": 1}}],
        "metadata": {"context_id": None, "contextId": 2},
    }})).message  # fmt: skip
    assert (message.message_id, message.context_id) == ("m", "c")
    assert message.parts[0].data == {"message_id": 1}
    assert message.metadata == {"context_id": None, "contextId": 2}


@pytest.mark.parametrize("value", [2**53 + 1, -(2**70), 10**300, 0.1, 1e-300])
def test_numbers_in_data_are_kept_exactly(value: Any) -> None:
    found = decode(Part, body_of({"data": value}))
    assert decode(Part, encode(found)).data == value


def test_text_with_every_kind_of_character_is_kept() -> None:
    text = "".join(map(chr, [0, 1, 9, 10, 13, 34, 92, 127, 128, 0x2028, 0xFEFF, 0xFFFF, 0x1F600, 0x10FFFF]))
    assert decode(Part, encode(Part(text=text))).text == text
    assert decode(Part, body_of({"text": text})).text == text


def test_text_that_cannot_be_written_raises_before_anything_is_written() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode(Part(text="\ud800"))


def test_query_values_are_text_and_are_read_as_what_the_field_is() -> None:
    found = convert(
        ListTasksRequest,
        {"pageSize": "7", "include_artifacts": "true", "status": "TASK_STATE_WORKING", "contextId": "7"},
        strict=False,
    )
    assert (found.page_size, found.include_artifacts) == (7, True)
    assert (found.status, found.context_id) == (TaskState.WORKING, "7")


@pytest.mark.parametrize("size", [0, 101, -1])
def test_the_page_size_is_1_to_100(size: int) -> None:
    assert refused(ListTasksRequest, body_of({"pageSize": size})).field == "pageSize"


@pytest.mark.parametrize("moment", ["2024-05-01", "2024-05-01T10:00:00", "yesterday", 1700000000])
def test_a_moment_needs_a_time_and_a_zone(moment: Any) -> None:
    assert refused(ListTasksRequest, body_of({"statusTimestampAfter": moment})).field == "statusTimestampAfter"


def test_a_decoder_is_made_once() -> None:
    assert decoder(Message) is decoder(Message)
