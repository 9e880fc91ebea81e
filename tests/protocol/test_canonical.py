"""The quick way to RFC 8785's form writes what the package rfc8785 writes, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from roost.protocol.canonical import (
    NotCanonical,
    encode_sorted,
    is_canonical,
    is_surely_canonical,
    jcs,
    quick_jcs,
)

NUMBERS = [0, -0.0, 1.0, 1.5, 1e21, 1e-7, 1e300, 10**15, 2**53 - 1, -(2**53) + 1, 2**53, 10**16, 10**17, 10**400]
AROUND: list[Callable[[Any], Any]] = [
    lambda value: value,
    lambda value: [value],
    lambda value: {"a": value},
    lambda value: [1, value],
    lambda value: {"a": [value], "b": "text"},
]

# Surrogates are written out: st.text() has none by default.
texts = (
    st.text() | st.text(st.characters(categories=("Cs", "Cc", "Lo", "So"))) | st.sampled_from(["null", ",1.5", "[9"])
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(NUMBERS) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def expected(value: Any) -> bytes | None:
    """The form that the package writes; None where it refuses the value."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        return None


def written(value: Any) -> bytes | None:
    try:
        return jcs(value)
    except NotCanonical:
        return None


@given(values)
def test_jcs_writes_what_rfc8785_writes_and_refuses_what_it_refuses(value: Any) -> None:
    assert written(value) == expected(value)


@given(values)
def test_the_quick_way_writes_the_same_or_nothing(value: Any) -> None:
    assert quick_jcs(value) in (None, expected(value))


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("number", [*NUMBERS, float("inf"), float("nan")])
def test_numbers_are_those_of_javascript_or_have_no_form(number: float, around: Callable[[Any], Any]) -> None:
    assert written(around(number)) == expected(around(number))


@given(st.dictionaries(st.characters() | st.sampled_from(["\ue000", "\U00010000", "\uffff", "a", "\x7f"]), st.none()))
def test_names_are_in_the_order_of_utf_16(value: dict[str, None]) -> None:
    assert written(value) == expected(value)


@given(values)
def test_sorted_json_that_is_surely_canonical_is_the_form_of_what_it_says(value: Any) -> None:
    try:
        encoded = encode_sorted(value)
    except UnicodeEncodeError:
        return
    if is_surely_canonical(encoded):
        assert encoded == rfc8785.dumps(msgspec.json.decode(encoded))


@pytest.mark.parametrize("value", [{"name": "a", "parts": [{"text": "b"}]}, {"n": 999_999_999_999_999, "ä": True}, [1]])
def test_what_most_requests_hold_goes_the_quick_way(value: Any) -> None:
    assert quick_jcs(value) == rfc8785.dumps(value)


@given(values)
def test_only_the_form_itself_is_canonical(value: Any) -> None:
    form = expected(value)
    if form is not None:
        assert is_canonical(value, form)
        assert not is_canonical(value, form + b" ")


@pytest.mark.parametrize(
    "encoded", [b'{"a":1.0}', b'{"a":-0.0}', b'{"a":1e16}', b'{"a":9007199254740993}', b'{"b":1,"a":2}']
)
def test_what_msgspec_or_another_encoder_writes_otherwise_is_not_canonical(encoded: bytes) -> None:
    assert not is_canonical(json.loads(encoded), encoded)
