"""`python -m benchmarks.hostile`: attacks a host, and writes docs/benchmarks-hostile.md after a complete run.

The exit code is 1 if a case cost others more than it may, or had another outcome than expected.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from tools.services import new_database, postgres

from benchmarks import machine
from benchmarks.hostile import connections, fetched, messages, reads
from benchmarks.hostile.case import Case, Stage
from benchmarks.hostile.hosts import Hosts
from benchmarks.hostile.judge import ATTEMPTS, Found, judge, longest
from benchmarks.hostile.probe import Waits
from benchmarks.hostile.report import Baseline, HostileReport, markdown
from benchmarks.report import today
from benchmarks.servers import ROOT

BASELINE_S = 10.0
PAGE = ROOT / "docs" / "benchmarks-hostile.md"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    cases = [case for case in all_cases() if not options.only or any(each in _name(case) for each in options.only)]
    if options.list:
        print("\n".join(_name(case) for case in cases))
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-hostile-")))
        store: tuple[str, ...] = ()
        if options.store == "postgres":
            store = ("--store", new_database(stack.enter_context(postgres()).url))
        hosts = Hosts(folder, store)
        stack.callback(hosts.close)
        report = HostileReport(today(), options.store, machine.facts(folder), [], [])
        try:
            _run(hosts, cases, options, report)
        except KeyboardInterrupt:
            say("interrupted")
    text = markdown(report)
    print(text)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if len(report.found) == len(all_cases()) and options.store == "sqlite":
        PAGE.write_text(text)
    return 1 if any(found.problems for found in report.found) else 0


def all_cases() -> list[Case]:
    return [*messages.cases(), *reads.cases(), *connections.cases(), *fetched.cases()]


def _run(hosts: Hosts, cases: list[Case], options: argparse.Namespace, report: HostileReport) -> None:
    """Run the cases and add what they did to the report."""
    for number, case in enumerate(cases, 1):
        if case.host not in hosts.running:
            report.baselines.append(_baseline(case.host, hosts.stage(case.host), options.baseline))
        found = judge(case, hosts.stage(case.host), options.attempts)
        report.found.append(found)
        say(f"{number:3} of {len(cases)}  {_line(case, found)}")
        if found.after_mb - found.before_mb > 200 or not hosts.stage(case.host).arena.alive:
            hosts.stop(case.host)  # the next case begins with a host that nothing has happened to


def _line(case: Case, found: Found) -> str:
    problems = f"  BAD: {'; '.join(found.problems)} {found.failure:.100}" if found.problems else ""
    return (
        f"{_name(case):60.60} wait {found.wait_ms:7,.0f} ms (clock {found.wall_ms:7,.0f}, CPU {found.cpu_ms:7,.0f};"
        f" {found.waited}) in {found.seconds:5.1f} s, {found.peak_mb - found.before_mb:+6,.0f} MB,"
        f" after {found.after_mb - found.before_mb:+6,.0f}  {found.outcome:.100}{problems}"
    )


def _baseline(host: str, stage: Stage, seconds: float) -> Baseline:
    """Measure the waits without an attack."""
    stage.arena.waits()
    time.sleep(seconds)
    waits = stage.arena.waits()
    name, worst = longest(waits)
    say(f"baseline of the {host} host: {worst.own_ms:.0f} ms ({name}), wall {worst.wall_ms:.0f} ms")
    return Baseline(host, {each: _short(found) for each, found in waits.items()})


def _short(waits: Waits) -> Waits:
    waits.long = []
    return waits


def _name(case: Case) -> str:
    return f"{case.door}: {case.name}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="cases with this in their name; may be repeated"
    )
    parser.add_argument("--list", action="store_true", help="list the cases and attack nothing")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite", help="the store of the host")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="attacks of a case after which others waited")
    parser.add_argument("--baseline", type=float, default=BASELINE_S, help="seconds to measure without an attack")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON as well")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
