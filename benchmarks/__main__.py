"""Measures Roost beside other A2A servers and writes docs/benchmarks.*, or beside another checkout of Roost."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from tools.npm import NpmError
from tools.services import ServiceError

from benchmarks import beside, chart, machine, report
from benchmarks.bench import Bench, WrongAnswer
from benchmarks.cases import (
    access,
    cluster,
    cost,
    evidence,
    grpc,
    latency,
    listing,
    paused,
    replicas,
    restart,
    send,
    stream,
    subscribers,
)
from benchmarks.report import Report
from benchmarks.servers import ROOT, Checkout, ServerFailed

CASES = {
    "send": send.run,
    "access": access.run,
    "grpc": grpc.run,
    "stream": stream.run,
    "latency": latency.run,
    "cost": cost.run,
    "subscribers": subscribers.run,
    "listing": listing.run,
    "paused": paused.run,
    "restart": restart.run,
    "replicas": replicas.run,
    "cluster": cluster.run,
    "evidence": evidence.run,
}
ROUNDS, SECONDS = 7, 4.0
Found = TypeVar("Found")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    seconds = options.seconds or (1.0 if options.quick else SECONDS)
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as name:
        bench = Bench(Path(name), rounds, seconds, options.quick)
        if options.beside is None:
            return _measure(bench, options.only, options.out)
        return _compare(bench, options.only, options.beside)


def _measure(bench: Bench, only: list[str] | None, out: Path | None) -> int:
    """Measure all servers and write the report."""
    facts = machine.facts(bench.folder)
    outcomes, failures = _each(bench, only or list(CASES), lambda case: CASES[case](bench))
    complete = not only and bench.rounds >= ROUNDS and not bench.quick
    rows = [row for outcome in outcomes for row in outcome.rows]
    series = [each for outcome in outcomes for each in outcome.series]
    if bench.rounds < ROUNDS:
        for row in rows:
            row.verdict = _too_few(bench)
    settings = {
        "load generator": report.GENERATOR,
        "rounds": f"{bench.rounds}, with {bench.seconds:g} s for each measurement; the servers take turns",
        "connections": f"{bench.connections}, unless the measure says otherwise",
    }
    made = Report(report.today(), complete, facts, settings, rows, series, failures)
    text = report.markdown(made)
    print(text)
    out = out or (ROOT / "docs" if complete else None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "benchmarks.md").write_text(text)
        (out / "benchmarks.svg").write_text(chart.svg(made))
        (out / "benchmarks.json").write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    return 1 if failures else 0


def _compare(bench: Bench, only: list[str] | None, other: Checkout) -> int:
    """Measure Roost of this checkout and of the other one, and print the ratios."""
    found, failures = _each(bench, only or list(beside.CASES), lambda case: beside.compare(bench, case, other))
    doubt = _too_few(bench) if bench.rounds < ROUNDS else ""
    print(report.comparison([each for case in found for each in case], failures, doubt))
    return 1 if failures else 0


def _each(bench: Bench, cases: list[str], run: Callable[[str], Found]) -> tuple[list[Found], dict[str, str]]:
    """Run the cases; return what they found, and the reason for each that failed."""
    found: list[Found] = []
    failures: dict[str, str] = {}
    for case in cases:
        bench.say(case)
        try:
            found.append(run(case))
        except (WrongAnswer, ServerFailed, ServiceError, NpmError) as error:
            reason = str(error).strip().splitlines()[0][:300]
            failures[case] = reason.replace(str(bench.folder), "").replace(str(ROOT), "")
            bench.say(f"  failed: {error}")
    return found, failures


def _too_few(bench: Bench) -> str:
    return f"none: {bench.rounds} of {ROUNDS} rounds"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"how often each case is measured ({ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"how long each measurement takes ({SECONDS:g})")
    parser.add_argument("--only", action="append", metavar="CASE", help="measure only this case; may be repeated")
    parser.add_argument("--quick", action="store_true", help="one short round with fewer tasks, as a smoke test")
    places = parser.add_mutually_exclusive_group()
    places.add_argument("--out", type=Path, help="folder for the report (docs, if the run is complete)")
    places.add_argument("--beside", type=_checkout, metavar="PATH", help="compare with the checkout of Roost at PATH")
    options = parser.parse_args(arguments)
    cases = list(CASES if options.beside is None else beside.CASES)
    for case in options.only or ():
        if case not in cases:
            parser.error(f"there is no case {case!r}; choose from {', '.join(cases)}")
    return options


def _checkout(path: str) -> Checkout:
    root = Path(path).resolve()
    binaries = root / ".venv" / "bin"
    if not (binaries / "roost").exists():
        raise argparse.ArgumentTypeError(f"{path} has no .venv with Roost in it; run `make check` there first")
    source = subprocess.run(
        [binaries / "python", "-c", "import roost; print(roost.__file__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(source).is_relative_to(root):
        raise argparse.ArgumentTypeError(f"the .venv of {path} runs {source}; make it anew with `make clean check`")
    return Checkout(root, binaries / "roost")


if __name__ == "__main__":
    sys.exit(main())
