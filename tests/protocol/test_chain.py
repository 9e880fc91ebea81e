"""The hash chain reveals an entry that was changed, dropped, added or moved."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.protocol.entries import NO_CHAIN, link

PARTS: dict[str, Any] = {
    "chain": NO_CHAIN,
    "seq": 12,
    "sub": 3,
    "kind": "s",
    "data": b'{"a":1}',
    "time": 1_700_000_000_000_000,
    "ordinal": 4,
}
OTHERS: dict[str, Any] = {
    "chain": bytes(31) + b"\1",
    "seq": 13,
    "sub": 2,
    "kind": "a",
    "data": b'{"a":2}',
    "time": 1_700_000_000_000_001,
    "ordinal": 5,
}
entries = st.tuples(
    st.integers(0, 99),
    st.integers(0, 99),
    st.sampled_from("sampnr"),
    st.binary(max_size=6),
    st.integers(0, 99),
    st.integers(0, 99),
)


def chain_of(history: list[tuple[Any, ...]]) -> bytes:
    chain = NO_CHAIN
    for entry in history:
        chain = link(chain, *entry)
    return chain


def test_the_same_entry_after_the_same_chain_gives_the_same_link() -> None:
    assert link(**PARTS) == link(**dict(PARTS))
    assert len(link(**PARTS)) == 32


def test_a_link_is_the_one_that_earlier_releases_wrote() -> None:
    assert link(**PARTS).hex() == "c0e993a58339efa32ea658ba181315309b669649d7c61be578893df09dfd551c"


@pytest.mark.parametrize("part", PARTS)
def test_the_link_changes_when_any_part_changes(part: str) -> None:
    assert link(**{**PARTS, part: OTHERS[part]}) != link(**PARTS)


@given(one=entries, other=entries)
def test_different_entries_have_different_links(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert (link(NO_CHAIN, *one) == link(NO_CHAIN, *other)) is (one == other)


@given(history=st.lists(entries, min_size=2, max_size=5, unique=True), data=st.data())
def test_an_entry_that_is_dropped_or_moved_changes_the_end_of_the_chain(
    history: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(history) - 2))
    dropped = history[:at] + history[at + 1 :]
    moved = [*history[:at], history[at + 1], history[at], *history[at + 2 :]]
    assert chain_of(dropped) != chain_of(history)
    assert chain_of(moved) != chain_of(history)
