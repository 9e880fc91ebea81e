"""The fuzzer notices a request that keeps others waiting, and blames no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.doors.wire import sending
from tests.fuzz.attack import Attack, play
from tests.fuzz.blocking import watching
from tests.fuzz.target import Target
from tests.processes import running


@pytest.fixture(scope="module")
def hogged() -> Iterator[Target]:
    """A host whose agent blocks the event loop when it is asked to."""
    with (
        running(Path(__file__).with_name("hog.py")) as server,
        watching(server.port, server.process.pid) as loop,
    ):
        target = Target("hogged", server, {"user": {}}, loop)
        with target.http:
            yield target


def asking(target: Target, text: str) -> Attack:
    def send(_: None) -> None:
        target.http.post(f"{target.url}/agents/hello/message:send", json=sending(text)).raise_for_status()

    return Attack(text, st.none(), send)


def test_a_request_that_blocks_the_event_loop_is_a_finding(hogged: Target) -> None:
    finding = play(hogged, asking(hogged, "compute"), 1, None)
    assert finding is not None
    assert "this request blocked the event loop" in finding.text


def test_a_request_that_only_takes_long_is_no_finding(hogged: Target) -> None:
    assert play(hogged, asking(hogged, "sleep"), 1, None) is None


def test_a_request_that_blocks_after_its_answer_is_found_at_the_end_of_its_attack(hogged: Target) -> None:
    def send(_: None) -> None:
        body = sending("compute") | {"configuration": {"returnImmediately": True}}
        hogged.http.post(f"{hogged.url}/agents/hello/message:send", json=body).raise_for_status()

    finding = play(hogged, Attack("at once", st.none(), send), 1, None)
    assert finding is not None
    assert "blocked the event loop" in finding.text
