"""`python -m benchmarks`: measures Roost beside a2a-sdk and writes docs/benchmarks.*."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec
from tools.services import ServiceError

from benchmarks import chart, machine, report
from benchmarks.bench import Bench, Row, Series, WrongAnswer
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
from benchmarks.servers import ROOT, ServerFailed

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


def main() -> int:
    options = _options()
    rounds, seconds = (1, 1.0) if options.quick else (options.rounds, options.seconds)
    chosen = options.only or list(CASES)
    rows: list[Row] = []
    series: list[Series] = []
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as name:
        folder = Path(name)
        facts = machine.facts(folder)
        bench = Bench(folder, rounds, seconds, options.quick)
        for case in chosen:
            bench.say(case)
            try:
                outcome = CASES[case](bench)
            except (WrongAnswer, ServerFailed, ServiceError) as error:
                failures[case] = str(error).strip().splitlines()[0][:300].replace(name, "").replace(str(ROOT), "")
                bench.say(f"  failed: {error}")
            else:
                rows += outcome.rows
                series += outcome.series
    settings = {
        "load generator": report.GENERATOR,
        "rounds": f"{rounds}, {seconds:g} s for each measurement, the servers in turns",
        "connections": "16, unless the measure says otherwise",
    }
    if rounds < ROUNDS:
        for row in rows:
            row.verdict = f"none: {rounds} of {ROUNDS} rounds"
    complete = not options.only and rounds >= ROUNDS
    made = Report(report.today(), complete, facts, settings, rows, series, failures)
    text = report.markdown(made)
    print(text)
    out = options.out or (ROOT / "docs" if complete else None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "benchmarks.md").write_text(text)
        (out / "benchmarks.svg").write_text(chart.svg(made))
        (out / "benchmarks.json").write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of every case (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each measurement (%(default)s)")
    parser.add_argument("--only", action="append", choices=CASES, help="this case only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="one short round with fewer tasks: does all work?")
    parser.add_argument("--out", type=Path, help="folder for the report (docs, if the run is complete)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
