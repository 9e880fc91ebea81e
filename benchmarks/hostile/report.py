"""The page about a run."""

from __future__ import annotations

from msgspec import Struct

from benchmarks.hostile.judge import BACK_MB, GROWTH_MB, WAIT_MS, Found
from benchmarks.hostile.probe import Waits


class Baseline(Struct):
    """The waits of a host that nobody attacked."""

    host: str
    waits: dict[str, Waits]


class HostileReport(Struct):
    date: str
    store: str
    machine: dict[str, str]
    baselines: list[Baseline]
    found: list[Found]


def markdown(report: HostileReport) -> str:
    bad = [found for found in report.found if found.problems]
    quiet = _quiet(report.baselines)
    rows = [
        [
            found.case,
            found.door,
            found.outcome[:110].replace("|", "/"),
            f"{found.wait_ms:,.0f}",
            f"{found.wall_ms:,.0f}",
            f"{found.cpu_ms:,.0f}",
            found.waited,
            f"{found.peak_mb - found.before_mb:+,.0f}",
            f"{found.after_mb - found.before_mb:+,.0f}",
            "; ".join(found.problems),
        ]
        for found in sorted(report.found, key=lambda found: -found.wait_ms)
    ]
    head = ["case", "door", "outcome", "wait", "by the clock", "CPU", "who waited", "MB", "MB after", "problem"]
    floors = [
        [host, name, f"{waits.answers:,}", f"{waits.p99_ms:.1f}", f"{waits.own_ms:,.0f}", f"{waits.wall_ms:,.0f}"]
        for (host, name), waits in quiet.items()
    ]
    return f"""# Hostile requests

Written by `make hostile` on {report.date}. Each case is a request, or a few, that is made to cost a host much, beside
a normal load of about fifteen requests in a second and an open stream. It must cost nobody else anything: no other
request waits more than {WAIT_MS:.0f} ms, the memory of the host's processes grows by at most {GROWTH_MB:.0f} MB and is
back within {BACK_MB:.0f} MB, no request of others fails, and the outcome is the expected one.

{len(report.found)} cases on {report.store}, {len(bad)} with a problem. Without an attack the longest wait was
{max((waits.own_ms for waits in quiet.values()), default=0.0):,.0f} ms.

{_table(head, rows)}

*Wait* is the longest wait of another caller in ms, without the time in which the machine ran something else although
the host's event loop was ready to run (the run delay that Linux counts); *by the clock* is with it; *CPU* is the time
that the thread of the event loop computed meanwhile. A case in which others waited although the event loop did not
compute is repeated up to twice, and the best of its attempts counts: a wait that the machine caused does not repeat.
*MB* is the growth of resident memory of all processes of the host at its peak, *MB after* some time after the attack.

## Without an attack

{_table(["host", "probe", "answers", "p99 ms", "longest wait, ms", "by the clock, ms"], floors)}

The probes with *load* in their name are the normal load. The others ask every 4 to 50 ms from a process of their own.

## The machine

{_table(["", ""], [[name, value] for name, value in report.machine.items()])}

## How to run it

    make hostile                                            # all cases, about half an hour
    .venv/bin/python -m benchmarks.hostile --list
    .venv/bin/python -m benchmarks.hostile --only gRPC --json figures.json
    .venv/bin/python -m benchmarks.hostile --store postgres

The exit code is 1 if a case has a problem. A complete run on SQLite writes this page.
"""


def _quiet(baselines: list[Baseline]) -> dict[tuple[str, str], Waits]:
    """Return the longest waits of each probe of each host, which may have been started several times."""
    found: dict[tuple[str, str], Waits] = {}
    for each in baselines:
        for name, waits in each.waits.items():
            known = found.setdefault((each.host, name), Waits())
            known.answers += waits.answers
            known.p99_ms = max(known.p99_ms, waits.p99_ms)
            known.own_ms = max(known.own_ms, waits.own_ms)
            known.wall_ms = max(known.wall_ms, waits.wall_ms)
    return found


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])
