"""The cost of a JSON document is judged from its bytes, and agrees with its values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.protocol.cost import (
    DEFAULT,
    FEW_BYTES,
    LIGHT_BYTES,
    LIGHT_VALUES,
    JSONLimits,
    check,
    has_few_values,
    is_light,
)
from roost.protocol.errors import InvalidParams

TEXTS = st.text(st.sampled_from('a,"[]{}\\:1\n\u00e9'), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=6),
    max_leaves=40,
)


def values(document: Any) -> int:
    """Count the values in all lists and objects; an empty one counts as if it had one."""
    if isinstance(document, dict):
        document = list(document.values())
    if not isinstance(document, list):
        return 0
    return max(1, len(document)) + sum(map(values, document))


def depth(document: Any) -> int:
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def digits(document: Any) -> int:
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        return max(map(digits, document), default=0)
    return len(str(abs(document))) if type(document) is int else 0


def refusal(body: bytes, limits: JSONLimits) -> str:
    try:
        check(body, limits)
    except InvalidParams as error:
        return f"{error.field}: {error.message}"
    return ""


@given(JSON, st.booleans())
def test_each_limit_is_exact(document: Any, ascii_only: bool) -> None:
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    most = JSONLimits(values(document), depth(document), max(1, digits(document)))
    assert refusal(body, most) == ""
    if most.values:
        assert "max_values" in refusal(body, most._replace(values=most.values - 1))
    if most.depth:
        assert "max_depth" in refusal(body, most._replace(depth=most.depth - 1))
    if most.digits > 1:
        assert "max_digits" in refusal(body, most._replace(digits=most.digits - 1))


@given(st.integers(0, 300), st.integers(1, 400), st.integers(1, 200))
def test_a_long_number_is_found_wherever_it_stands(before: int, length: int, most: int) -> None:
    body = b'{"' + b"x" * before + b'":' + b"7" * length + b"}"
    assert bool(refusal(body, DEFAULT._replace(digits=most))) == (length > most)


def test_a_number_of_5000_digits_is_refused_and_a_text_of_them_is_not() -> None:
    assert "max_digits" in refusal(b'{"a":%b}' % (b"9" * 5000), DEFAULT)
    assert refusal(b'{"a":"%b"}' % (b"9" * 5000), DEFAULT) == ""


@pytest.mark.parametrize("piece", [b'""', b'"a"', b'"\\""', b"{}", b"[]", b"0", b'{"":0}'])
def test_too_many_values_of_any_kind_are_refused(piece: bytes) -> None:
    assert "max_values" in refusal(b"[" + b",".join([piece] * 300_000) + b"]", DEFAULT)


def test_a_small_document_and_a_long_text_are_light() -> None:
    assert is_light(b"[" * FEW_BYTES)
    assert is_light(b'{"text":"%b"}' % (b"7 a" * (LIGHT_BYTES // 4)))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'"%b"' % (b"a" * LIGHT_BYTES), id="bytes"),
        pytest.param(b"[" + b"0," * (LIGHT_VALUES * 2) + b"0]", id="values"),
        pytest.param(b"[%b,%b]" % (b"1" * 500, b" " * FEW_BYTES), id="digits"),
    ],
)
def test_what_takes_longer_is_not_light(body: bytes) -> None:
    assert not is_light(body)


def test_few_values_may_be_long() -> None:
    assert has_few_values(b'"%b"' % (b"a" * LIGHT_BYTES))
    assert not has_few_values(b"[" + b"0," * (LIGHT_VALUES * 2) + b"0]")
