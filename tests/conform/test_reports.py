"""The content of reports, and the secrets that they must not show."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from roost.conform.hints import profile_of, read_hints
from roost.conform.outcome import LONGEST, ConformReport, NotJudged, Outcome, Result, shown
from roost.conform.reports import as_html, as_json, as_junit, as_markdown

EVIL = "</pre><script>alert(1)</script>\x00 | # `x` ]]> & \x1b[31m"


def result(outcome: Outcome, **more: str) -> Result:
    return Result("get.task", "get", "JSONRPC", "GetTask gives", "3.1.3", "MUST", outcome, **more)


@pytest.fixture
def report() -> ConformReport:
    results = [
        result(Outcome.PASSED),
        result(Outcome.FAILED, observed=EVIL, expected=EVIL),
        result(Outcome.SKIPPED, reason=EVIL),
        result(Outcome.ERROR, reason="nobody knows"),
    ]
    return ConformReport("http://127.0.0.1/", EVIL, ["JSONRPC"], "plain", results, [EVIL])


def test_html_escapes_all_that_came_from_the_host(report: ConformReport) -> None:
    page = as_html(report)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 6
    assert "default-src 'none'" in page


def test_junit_is_xml_whatever_the_host_said(report: ConformReport) -> None:
    suite = ElementTree.fromstring(as_junit(report))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.text is not None
    assert "section: 3.1.3" in failure.text
    assert "<script>alert(1)</script>" in failure.text


def test_json_has_everything(report: ConformReport) -> None:
    found = json.loads(as_json(report))
    assert found["exitCode"] == 1
    assert found["counts"] == {"failed": 1, "error": 1, "passed": 1, "skipped": 1}
    assert found["results"][1]["observed"] == EVIL


def test_markdown_makes_nothing_of_what_the_host_said(report: ConformReport) -> None:
    text = as_markdown(report)
    outside = "".join(text.split("````")[::2])
    assert "<script>" not in outside.replace("\\<script\\>", "")
    assert all(line.count("|") - line.count("\\|") == 6 for line in outside.splitlines() if line.startswith("| get"))


def test_the_exit_code() -> None:
    def code(*outcomes: Outcome) -> int:
        return ConformReport("", "", [], "plain", [result(outcome) for outcome in outcomes]).code

    assert code(Outcome.PASSED, Outcome.SKIPPED) == 0
    assert code(Outcome.PASSED, Outcome.ERROR, Outcome.FAILED) == 1
    assert code(Outcome.PASSED, Outcome.ERROR) == 2
    assert code(Outcome.SKIPPED) == 2


def test_what_is_shown_is_bounded_and_without_secrets() -> None:
    assert shown({"token": "hunter2"}, ["hunter2", ""]) == '{"token": "***"}'
    assert len(shown("x" * 10_000_000)) < LONGEST + 10
    assert "\x1b" not in shown("\x1b[31m")


def test_the_kit_is_known_by_its_card() -> None:
    assert profile_of({"name": "tck"}) == "tck"
    assert profile_of({"name": "x", "skills": [{"id": "y", "tags": ["TCK"]}]}) == "tck"
    assert profile_of({"name": None, "skills": [None, {"tags": 7}]}) == "plain"


def test_hints_that_are_none(tmp_path: Path) -> None:
    assert read_hints('{"pause": {"text": "ask me"}}').pause is not None
    for text in ("[]", "{", '{"pauze": {}}', '{"pause": 7}'):
        with pytest.raises(NotJudged):
            read_hints(text)
