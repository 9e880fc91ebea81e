"""docs/conformance.md and the list of known contradictions in tests/tck.py say the same."""

from __future__ import annotations

import json
import re

import pytest

from tests.processes import ROOT
from tests.tck import KNOWN, Contradiction, Failure, read

PAGE = (ROOT / "docs" / "conformance.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry.test)
def test_every_known_contradiction_is_explained_with_its_section(entry: Contradiction) -> None:
    (row,) = [row for row in ROWS if row[1] == f"`{entry.test}`"]
    assert row[0] == entry.requirement
    assert f"section {entry.section}" in row[3]


def test_no_contradiction_is_explained_that_is_not_known() -> None:
    explained = [row[1].strip("`") for row in ROWS if re.fullmatch(r"[A-Z_]+(-[A-Z]+)+-\d+", row[0])]
    assert sorted(explained) == sorted(entry.test for entry in KNOWN)


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.a.TestA" name="test_good"/>
<testcase classname="tests.a.TestA" name="test_skipped"><skipped type="pytest.skip" message=""/></testcase>
<testcase classname="tests.a.TestA" name="test_hoped"><skipped type="pytest.xfail" message=""/></testcase>
<testcase classname="tests.a.{known[0]}" name="{known[1]}"><failure message="X: {requirement} [x]"/></testcase>
<testcase classname="tests.a.TestA" name="test_must"><failure message="X: {requirement} [x]"/></testcase>
<testcase classname="tests.a.TestA" name="test_should"><failure message="X: CARD-CACHE-001 [x]"/></testcase>
<testcase classname="tests.a.TestA" name="test_broken"><error message="no fixture"/></testcase>
</testsuite></testsuites>"""


def test_only_the_listed_test_of_a_requirement_may_fail() -> None:
    """Another test of the same requirement, or one that does not say what it is about, is not excused."""
    entry = KNOWN[0]
    results = RESULTS.format(known=entry.test.split("."), requirement=entry.requirement)
    levels = {entry.requirement: {"level": "MUST"}, "CARD-CACHE-001": {"level": "SHOULD"}}
    report = read(results, json.dumps({"per_requirement": levels}))
    assert (report.passed, report.skipped, report.expected, len(report.failures)) == ({"TestA.test_good"}, 1, 1, 4)
    assert report.failures[0].known == entry
    assert [failure.test for failure in report.broken] == ["TestA.test_must", "TestA.test_broken"]
    assert report.broken[0] == Failure(entry.requirement, "MUST", "TestA.test_must", f"X: {entry.requirement} [x]")
