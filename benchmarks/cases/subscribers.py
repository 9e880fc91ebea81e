"""Many subscribers on one task: all of them get every event, and the host answers other requests meanwhile.

How long the event loop was blocked is measured from outside. From the first subscriber to the last event, another
process asks every 2 ms for the agent card, which needs nothing but the event loop.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Row, Series, row
from benchmarks.load import Result, Subscribe
from benchmarks.servers import Server
from benchmarks.stats import AtMost

CARD = "/.well-known/agent-card.json"
DELAY_S = 4
"""The seconds before the first chunk, in which all subscribers connect."""


class Load(NamedTuple):
    name: str
    chunks: int
    rate: int


class Measured(NamedTuple):
    followed: Result
    polled: Result
    missing: int


LOADS = (Load("50 chunks at 10/s", 50, 10), Load("500 chunks at once", 500, 0))


def run(bench: Bench) -> Outcome:
    subscribers = 200 if bench.quick else 1000
    measured: dict[Load, list[Measured]] = {load: [] for load in LOADS}
    with servers.roost(bench.sub_folder("subscribers")) as server:
        bench.warm(server, "/message:stream", "1")
        for _ in bench.each_round():
            for load in LOADS:
                measured[load].append(_measure(bench, server, subscribers, load))
    rows: list[Row] = []
    series: list[Series] = []
    for load, rounds in measured.items():
        what = f"{subscribers:,} subscribers, {load.name}"
        late = max(each.polled.late_ms for each in rounds)
        rows += [
            row(f"{what}: events missing or too many", AtMost(0), [each.missing for each in rounds]),
            row(
                f"{what}: longest answer of another route",
                AtMost(50, "ms"),
                [each.polled.max_ms for each in rounds],
                unit="ms",
                note=f"the process that asks was itself up to {late:.0f} ms late",
            ),
        ]
        series += [
            Series(f"{what}: another route, p99", "Roost", "ms", [each.polled.p99_ms for each in rounds]),
            Series(f"{what}: emission to subscriber, p99", "Roost", "ms", [each.followed.p99_ms for each in rounds]),
        ]
    return Outcome(rows, series)


def _measure(bench: Bench, server: Server, subscribers: int, load: Load) -> Measured:
    poller = bench.poll(server, server.base + CARD)
    try:
        text = f"{load.chunks} {load.rate} {DELAY_S}"
        followed = bench.load(Subscribe(server.port, server.base, text, subscribers))
    finally:
        polled = poller.stop()
    wanted = load.chunks + 2
    streams = sum(followed.counts.values())
    wrong = sum(abs(size - wanted) * number for size, number in followed.counts.items())
    missing = wrong + wanted * (subscribers - streams)
    bench.say(
        f"    {load.name}: events {followed.counts}, wanted {wanted} each; p99 to them {followed.p99_ms:.0f} ms;"
        f" card p99 {polled.p99_ms:.1f} ms, longest {polled.max_ms:.1f} ms of {polled.requests};"
        f" poller late {polled.late_ms:.1f} ms; generator {followed.busy:.0%} busy"
    )
    return Measured(followed, polled, missing)
