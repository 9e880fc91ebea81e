"""The known faults of an unmodified server of a2a-sdk are found, and the report in the docs names them."""

from __future__ import annotations

import pytest
from tools.conform_sdk import REPORT, report

from roost.conform.outcome import ConformReport, Outcome
from tests.processes import ROOT

RAN_INTO = {
    "first.concurrent": "first concurrent requests race to create the table",
    "send.follow-up [HTTP+JSON]": "follow-up with only taskId gets a new contextId",
    "version.unknown [GRPC]": "gRPC never checks A2A-Version",
    "push.slow": "a slow webhook throttles the client's stream",
    "durability.crash": "after a crash a task stays WORKING and subscribe hangs",
}


RACES = {"resume.plain"}
"""Checks that fail only if the server loses a race."""


@pytest.fixture(scope="module")
def found() -> ConformReport:
    return report()


@pytest.mark.parametrize("name", RAN_INTO, ids=RAN_INTO.values())
def test_a_known_fault_is_found(found: ConformReport, name: str) -> None:
    assert name in [result.name for result in found.of(Outcome.FAILED)]


def test_most_of_it_conforms(found: ConformReport) -> None:
    assert found.count(Outcome.PASSED) > 150
    assert found.of(Outcome.ERROR) == []


def test_the_report_in_the_docs_has_the_same_failures(found: ConformReport) -> None:
    page = (ROOT / REPORT).read_text()
    written = [line[4:].partition(": ")[0].replace("\\", "") for line in page.splitlines() if line.startswith("### ")]
    failed = [result.name for result in found.of(Outcome.FAILED)]
    assert [name for name in written if name not in RACES] == [name for name in failed if name not in RACES]
