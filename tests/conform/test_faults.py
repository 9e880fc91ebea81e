"""Each fault is found by the check that is meant to find it, and by no other."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import uvloop

from roost.conform.check import every
from roost.conform.hints import Hint, Hints
from roost.conform.outcome import ConformReport, Outcome
from roost.conform.runner import judge
from roost.conform.target import ConformOptions
from tests.conform.broken_card import QUIRKS, SECOND
from tests.conform.faults import FAULTS, Fault

AT_ONCE = 16
TIMEOUT_S = 15.0
"""Seconds for each request: many times what one takes on a busy machine."""
HANGS = (
    "stream-endless",
    "subscribe-hangs",
    "push-never",
    "push-no-end",
    "push-slow",
    "answer-lost",
    "cancel-ignored",
    "paused-open",
)
"""Faults that show only when the time limit is over. They are judged first, while the others are judged too."""
SOUND = (
    Fault("none", (), "both"),
    Fault("none", (), "rest"),
    Fault("none", (), "rpc"),
    Fault("required-enforced", ()),
    Fault(QUIRKS, (), "both"),
)
OPEN_STREAMS = (Fault("paused-open", ("stream.end",), "rest"), Fault("paused-open", (), "rpc"))

UNSEEDED = {"version.current", "signatures.notice"}
"""Checks without a fault: what breaks the first breaks all others, and only our own verifier can break the second."""


WAITS = Hints(plain=Hint("tck-input-required"))
"""An agent that waits for input, whatever it is asked."""


@pytest.fixture(scope="module")
def reports(broken: str) -> dict[Fault, ConformReport]:
    """Judge every fault, several at a time."""

    async def judged() -> dict[Fault, ConformReport]:
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(fault: Fault) -> ConformReport:
            url = f"{broken}/{fault.name}/{fault.bindings}"
            options = ConformOptions(url, token="token-a", token_b="token-b", timeout=TIMEOUT_S)
            if fault in OPEN_STREAMS:
                options = msgspec.structs.replace(options, hints=WAITS, only=["stream.end"])
            async with turn:
                return await judge(options)

        every_fault = sorted((*SOUND, *FAULTS, *OPEN_STREAMS), key=lambda fault: fault.name not in HANGS)
        return dict(zip(every_fault, await asyncio.gather(*map(one, every_fault)), strict=True))

    return uvloop.run(judged())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.name}-{fault.bindings}")
def test_a_fault_is_found_by_its_check_and_no_other(reports: dict[Fault, ConformReport], fault: Fault) -> None:
    failed = reports[fault].of(Outcome.FAILED)
    assert {result.id for result in failed} == set(fault.found_by), [(one.name, one.observed) for one in failed]
    assert reports[fault].code == 1
    for result in failed:
        assert result.surface
        assert result.section
        assert result.observed
        assert result.expected


@pytest.mark.parametrize("sound", SOUND, ids=lambda fault: f"{fault.name}-{fault.bindings}")
def test_a_sound_host_passes(reports: dict[Fault, ConformReport], sound: Fault) -> None:
    report = reports[sound]
    bad = [*report.of(Outcome.FAILED), *report.of(Outcome.ERROR)]
    assert [(one.name, one.expected, one.observed, one.reason) for one in bad] == []
    assert report.code == 0
    assert report.count(Outcome.PASSED) > 60


@pytest.mark.parametrize("fault", OPEN_STREAMS, ids=lambda fault: fault.bindings)
def test_a_stream_may_stay_open_where_a_task_waits_but_on_http(
    reports: dict[Fault, ConformReport], fault: Fault
) -> None:
    assert [result.id for result in reports[fault].of(Outcome.FAILED)] == [*fault.found_by]
    assert reports[fault].code == (1 if fault.found_by else 0)


def test_what_is_skipped_says_why(reports: dict[Fault, ConformReport]) -> None:
    for report in reports.values():
        assert all(result.reason for result in report.of(Outcome.SKIPPED))
        assert all(result.reason for result in report.of(Outcome.ERROR))


def test_an_interface_that_is_not_judged_is_told(reports: dict[Fault, ConformReport]) -> None:
    report = reports[Fault(QUIRKS, (), "both")]
    assert len([note for note in report.notes if SECOND in note]) == 1
    (second,) = [one for one in report.of(Outcome.SKIPPED) if SECOND in one.reason]
    assert second.binding == "HTTP+JSON"


def test_every_check_that_a_sound_host_passes_has_a_fault_that_it_finds(reports: dict[Fault, ConformReport]) -> None:
    passed = {result.id for result in reports[SOUND[0]].of(Outcome.PASSED)}
    found = {name for fault in FAULTS for name in fault.found_by}
    assert passed - found == UNSEEDED


def test_every_check_has_an_id_of_its_own() -> None:
    ids = [check.id for check in every()]
    assert len(ids) == len(set(ids))
