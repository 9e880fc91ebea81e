"""Strategies for bodies that are nearly right, and some that are not at all."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.fuzz.target import MAX_BODY

JSON = Any
T = TypeVar("T")

HUGE = [2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**400, -(10**19), 1e308, -0.0, 5e-324]
WORDS = [
    "",
    "\0",
    "null",
    "NaN",
    "1",
    "-1",
    "true",
    "../..",
    "%00",
    "\ud800",
    "\u2028",
    "💥" * 30,
    "x" * 3000,
    "a:b/c?d#e",
]
ODD: list[JSON] = [
    *HUGE,
    *WORDS,
    float("nan"),
    float("inf"),
    -float("inf"),
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": None},
]
LITERALS = [b"1e999", b"-", b"01", b"1.", b"0x1", b"NaN", b"'a'", b'"\\u12"', b'"\\ud800"', b'"\xff"', b"{", b"tru"]
CODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-32-be", "latin-1", "utf-7", "cp037"]

leaves = st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def mostly(usual: st.SearchStrategy[T], odd: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """`a | b` would be one as often as the other."""
    return st.integers(0, 4).flatmap(lambda chance: odd if chance == 2 else usual)


@st.composite
def nearly(draw: st.DrawFn, right: JSON) -> bytes:
    """The right value with up to three places changed, then written as JSON, more or less."""
    tree = copy.deepcopy(right)
    for _ in range(draw(st.integers(0, 3))):
        tree = draw(_changed(tree))
    text = json.dumps(tree, ensure_ascii=draw(st.booleans()))
    text = draw(mostly(st.just(text), _doubled(text, tree)))
    coding = draw(mostly(st.just("utf-8"), st.sampled_from(CODINGS)))
    body = text.encode(coding, "surrogatepass" if coding.startswith("utf") and coding != "utf-7" else "replace")
    return draw(mostly(st.just(body), broken(body)))


def rubbish() -> st.SearchStrategy[bytes]:
    """Nothing of it is meant."""
    return st.one_of(
        st.binary(max_size=300),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        values.map(lambda value: json.dumps(value).encode()),
        st.sampled_from(
            [b"", b" ", b"\0", b"[]", b"{}", b"null", b'""', b"\xef\xbb\xbf{}", b"\x1f\x8b\x08\0", *LITERALS]
        ),
        st.integers(1, 5000).map(lambda depth: b"[" * depth + b"]" * depth),
        st.integers(1, 5000).map(lambda depth: b'{"a":' * depth),
        st.integers(MAX_BODY - 2, MAX_BODY + 2).map(lambda size: b'"' + b"x" * (size - 2) + b'"'),
    )


def _changed(tree: JSON) -> st.SearchStrategy[JSON]:
    """One place of it is another value, gone, under another name, or has something beside it."""
    places = _places(tree)
    return st.builds(
        _change, st.just(tree), st.sampled_from(places), st.sampled_from(CHANGES), values.map(copy.deepcopy)
    )


def _change(tree: JSON, place: tuple[Any, ...], how: str, value: JSON) -> JSON:
    if not place:
        return {"swap": value, "wrap": [tree], "beside": tree}.get(how, tree)
    *above, last = place
    parent = tree
    for step in above:
        parent = parent[step]
    if how == "swap":
        parent[last] = value
    elif how == "drop":
        del parent[last]
    elif how == "wrap":
        parent[last] = [parent[last]]
    elif how == "deepen":
        for _ in range(150):
            parent[last] = {"a": parent[last]}
    elif isinstance(parent, dict):
        if how == "rename":
            parent[re.sub("([A-Z])", lambda found: "_" + found[0].lower(), last)] = parent.pop(last)
        else:
            parent["extra" if value is None else str(value)[:50]] = value
    else:
        parent.append(value)
    return tree


CHANGES = ("swap", "swap", "swap", "drop", "wrap", "deepen", "rename", "beside")


def _places(tree: JSON, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [at, *(place for key, value in list(inner)[:20] for place in _places(value, (*at, key)) if len(at) < 8)]


@st.composite
def _doubled(draw: st.DrawFn, text: str, tree: JSON) -> str:
    """The same name twice in one object."""
    name = draw(st.sampled_from(list(tree) if isinstance(tree, dict) and tree else ["a"]))
    return text.replace("{", f"{{{json.dumps(name)}: {json.dumps(draw(values))}, ", 1)


@st.composite
def broken(draw: st.DrawFn, body: bytes) -> bytes:
    at = draw(st.integers(0, len(body)))
    how = draw(st.sampled_from(["cut", "flip", "insert", "literal", "batch", "batches", "twice", "pad"]))
    if how == "cut":
        return body[:at]
    if how == "flip" and at < len(body):
        return body[:at] + bytes([body[at] ^ draw(st.integers(1, 255))]) + body[at + 1 :]
    if how == "insert":
        return body[:at] + draw(st.binary(max_size=4)) + body[at:]
    if how == "literal":
        return re.sub(rb"\d+|\"[^\"]*\"", lambda _: draw(st.sampled_from(LITERALS)), body, count=1)
    return {
        "batch": b"[" + body + b"]",
        "batches": b"[" + b",".join([body] * 3) + b"]",
        "twice": body + body,
        "pad": b" " * at + body + b"\n" * at,
    }.get(how, body)
