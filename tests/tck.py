"""`python -m tests.tck TCK_DIR TCK_PYTHON`: the A2A Technology Compatibility Kit against a real host.

The kit (a2aproject/a2a-tck, branch 1.0-dev) is installed elsewhere and only run here. Exit code 0 if every MUST
holds, but for the known contradictions between the kit and specification 1.0.1; docs/conformance.md explains each.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

from tests.processes import FLEET, running

REPORTS = Path("reports")
WEBHOOKS = ("--push-allow-hosts", "example.com,localhost")
"""The hosts of the kit's webhooks: the first need not exist, the second is this machine."""
GRPC = ("--grpc", "127.0.0.1:0", "--root")
"""The kit's gRPC client names no tenant, so its agent is the one at the root."""
AGENTS = Path(__file__).parent / "clients" / "tck_agents.py"
REQUIREMENT = re.compile(r"\b[A-Z][A-Z_]+(?:-[A-Z]+)+-\d+[a-z]?\b")


class Contradiction(NamedTuple):
    """A test of the kit that a host cannot pass and follow the specification."""

    requirement: str
    test: str
    section: str
    """The section of the specification, 1.0.1."""
    why: str


KNOWN = (
    Contradiction(
        "HTTP_JSON-ERR-001",
        "TestRestErrorStructure.test_error_uses_aip193_format",
        "11.6",
        "wants application/json for an error; the specification's example is application/a2a+json",
    ),
    Contradiction(
        "HTTP_JSON-ERR-001",
        "TestAIP193ErrorFormat.test_error_content_type",
        "11.6",
        "wants application/json for an error; the specification's example is application/a2a+json",
    ),
    Contradiction(
        "HTTP_JSON-SVC-001",
        "TestRestFormat.test_response_content_type",
        "11.1",
        "wants application/json for a response; the specification says application/a2a+json",
    ),
    Contradiction(
        "HTTP_JSON-STATUS-001",
        "TestHttpJsonStatusCodes.test_content_type_not_supported_returns_415",
        "5.4",
        "wants 415 for ContentTypeNotSupportedError; the specification says 400",
    ),
    Contradiction(
        "GRPC-ERR-002",
        "TestGrpcStatusCodes.test_version_not_supported_returns_unimplemented",
        "5.4",
        "wants UNIMPLEMENTED for VersionNotSupportedError; the specification says FAILED_PRECONDITION",
    ),
    Contradiction(
        "GRPC-ERR-002",
        "TestGrpcStatusCodes.test_push_not_supported_returns_unimplemented",
        "5.4",
        "wants UNIMPLEMENTED for PushNotificationNotSupportedError; the specification says FAILED_PRECONDITION",
    ),
    Contradiction(
        "GRPC-ERR-002",
        "TestGrpcStatusCodes.test_unsupported_operation_returns_unimplemented",
        "5.4",
        "wants UNIMPLEMENTED for UnsupportedOperationError; the specification says FAILED_PRECONDITION",
    ),
)


class Run(NamedTuple):
    """The kit passes over what a card does not declare, so it is run again for agents whose cards declare it."""

    agent: str
    chosen: str = ""
    """The tests to run, as for pytest's -k; empty for all."""
    args: tuple[str, ...] = ()
    """The flags of the host."""


RUNS = (
    Run("tck"),
    Run("tck-plain", "streaming_not_supported or unsupported_operation"),
    Run("tck-strict", "missing_required_extension"),
    Run("tck", "push_not_supported or push_notification_not_supported", ("--no-push",)),
)


class Failure(NamedTuple):
    requirement: str
    level: str
    test: str
    message: str

    @property
    def known(self) -> Contradiction | None:
        found = [entry for entry in KNOWN if (entry.requirement, entry.test) == (self.requirement, self.test)]
        return found[0] if found else None


class Report(NamedTuple):
    passed: frozenset[str]
    skipped: int
    expected: int
    """Tests that the kit itself expects to fail."""
    failures: list[Failure]

    @property
    def broken(self) -> list[Failure]:
        """MUSTs that do not hold, and tests that failed without saying what they are about."""
        return [failure for failure in self.failures if failure.level in ("MUST", "") and failure.known is None]


def run(kit: Path, python: str, asked: Run) -> Report | None:
    """None if the kit did not get as far as a report."""
    results, levels = kit / REPORTS / "junitreport.xml", kit / REPORTS / "compatibility.json"
    for report in (results, levels):
        report.unlink(missing_ok=True)
    args = ("--strict", *WEBHOOKS, *asked.args, *GRPC, asked.agent)
    with tempfile.TemporaryDirectory() as data, running(FLEET, AGENTS, data=Path(data), args=args) as host:
        command = [python, "run_tck.py", "--sut-host", f"{host.url}/agents/{asked.agent}"]
        chosen = ["--", "-k", asked.chosen] if asked.chosen else []
        subprocess.run([*command, "--transport", "jsonrpc,http_json,grpc", *chosen], cwd=kit, check=False)
    if not results.exists() or not levels.exists():
        return None
    return read(results.read_text(), levels.read_text())


def read(results: str, levels: str) -> Report:
    """Read the results from JUnit's XML and the kit's own report, which has the level of each requirement."""
    by_requirement = {name: entry["level"] for name, entry in json.loads(levels)["per_requirement"].items()}
    skipped = expected = 0
    passed, failures = set(), []
    for case in ElementTree.fromstring(results).iter("testcase"):
        failed = case.find("failure") if case.find("failure") is not None else case.find("error")
        ignored = case.find("skipped")
        test = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        if failed is not None:
            message = failed.get("message", "")
            found = REQUIREMENT.search(message)
            requirement = found.group() if found else ""
            failures.append(Failure(requirement, by_requirement.get(requirement, ""), test, message.split("\n")[0]))
        elif ignored is None:
            passed.add(test)
        elif ignored.get("type") == "pytest.xfail":
            expected += 1
        else:
            skipped += 1
    return Report(frozenset(passed), skipped, expected, failures)


def show(asked: Run, report: Report) -> None:
    print(
        f"\n{' '.join((asked.agent, *asked.args))}: {len(report.passed)} passed, {len(report.failures)} failed,"
        f" {report.skipped} skipped,"
        f" {report.expected} expected failures"
    )
    for failure in report.failures:
        known = failure.known
        verdict = f"known: {known.why} (section {known.section})" if known else f"NOT KNOWN: {failure.message}"
        print(f"  {failure.level or '?'} {failure.requirement} {failure.test}\n    {verdict}")


def conclude(reports: list[Report]) -> int:
    """The number of MUSTs that failed and may not."""
    failed = {(failure.requirement, failure.test) for report in reports for failure in report.failures}
    for entry in KNOWN:
        if (entry.requirement, entry.test) not in failed:
            print(f"  {entry.requirement} {entry.test} is listed as a contradiction, and did not fail")
    broken = sum(len(report.broken) for report in reports)
    passed = frozenset[str]().union(*(report.passed for report in reports))
    print(f"\n{len(passed)} tests passed in one run or another")
    print(f"{broken} MUST failed beyond the known contradictions")
    return broken


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tests.tck TCK_DIR TCK_PYTHON")
    reports = []
    for asked in RUNS:
        report = run(Path(sys.argv[1]), sys.argv[2], asked)
        if report is None or not report.passed:
            sys.exit("the kit did not run: see above")
        reports.append(report)
    for asked, report in zip(RUNS, reports, strict=True):
        show(asked, report)
    sys.exit(1 if conclude(reports) else 0)


if __name__ == "__main__":
    main()
