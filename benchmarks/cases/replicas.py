"""The time from an agent's emission on one replica to a subscriber on another, both on one PostgreSQL database.

Both clocks are this machine's: the agent writes the time into the chunk. a2a-sdk's replicas use the store and the
event stream that it offers for several servers on one database: the subscriber's replica asks the database for new
events, and waits for half a second when there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from tools.services import nats, new_database, postgres

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Row, Series, WrongAnswer, ratios, row
from benchmarks.load import Across, Result
from benchmarks.servers import Server
from benchmarks.stats import AtMost, NoBar

TASKS = 20
RATE, SLOW = 20, 1
"""The chunks per second of each task: the rate of the bars, and one that a2a-sdk can keep up with."""
DELAY_S = 2
"""The seconds before the first chunk, in which the load generator subscribes to every task."""
BARS = {"notify": AtMost(25, "ms"), "nats": AtMost(15, "ms")}


class Pair(NamedTuple):
    """Two replicas: agents run on `first`, and subscribers are connected to `second`."""

    name: str
    first: Server
    second: Server

    @property
    def label(self) -> str:
        return self.first.label

    def job(self, chunks: int, rate: int) -> Across:
        text = f"{chunks} {rate} {DELAY_S}"
        return Across(self.first.port, self.second.port, self.first.base, text, TASKS, spread_s=1 / rate)


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("replicas")
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        wake = stack.enter_context(nats()).url

        def pair(name: str, start: Callable[[str, str], Server]) -> Pair:
            store = new_database(database.url)
            first, second = (stack.enter_context(start(f"{name}-{number}", store)) for number in (1, 2))
            return Pair(name, first, second)

        pairs = [
            pair("notify", lambda name, store: servers.replica(folder, name, store)),
            pair("nats", lambda name, store: servers.replica(folder, name, store, wake)),
            pair("sdk", lambda name, store: servers.sdk_replica(folder, name, store)),
        ]
        fast: dict[str, list[Result]] = {each.name: [] for each in pairs}
        slow: dict[str, list[Result]] = {each.name: [] for each in pairs}
        for each in pairs:
            warm(bench, each)
        for _ in bench.each_round():
            for each in pairs:
                fast[each.name].append(measure(bench, each, RATE))
            for each in pairs:
                slow[each.name].append(measure(bench, each, SLOW))
    bars = [
        row(f"{what(RATE)}, {each.label}: p95", BARS[each.name], _values(fast[each.name], 95), unit="ms")
        for each in pairs
        if each.name in BARS
    ]
    delivered = median(result.timed / (result.seconds - DELAY_S) for result in fast["sdk"])
    return Outcome(
        [
            *bars,
            _beside_sdk(fast, RATE, f"a2a-sdk delivered {delivered:.0f} a second"),
            _beside_sdk(slow, SLOW, "a2a-sdk looks for new events every 0.5 s"),
        ],
        [
            Series(f"{what(rate)}, p{percent}", each.label, "ms", _values(measured[each.name], percent), drawn=False)
            for rate, measured in ((RATE, fast), (SLOW, slow))
            for percent in (50, 95, 99)
            for each in pairs
        ],
    )


def warm(bench: Bench, pair: Pair) -> None:
    bench.load(pair.job(10, RATE))


def measure(bench: Bench, pair: Pair, rate: int) -> Result:
    chunks = max(2, round(rate * bench.seconds))
    result = bench.load(pair.job(chunks, rate))
    if result.timed != chunks * TASKS:
        raise WrongAnswer(f"{pair.name} delivered {result.timed} chunks, not {chunks * TASKS}: {result.counts}")
    bench.say(
        f"    {pair.name:6} {TASKS * rate:3} events/s: p50 {result.p50_ms:.1f}, p95 {result.p95_ms:.1f},"
        f" p99 {result.p99_ms:.1f} ms, longest {result.max_ms:.0f} ms; the last event came after {result.seconds:.1f} s"
    )
    return result


def _beside_sdk(measured: dict[str, list[Result]], rate: int, note: str) -> Row:
    return row(
        f"{what(rate)}: p95 of a2a-sdk, ratio to that of Roost, PostgreSQL",
        NoBar(),
        ratios(_values(measured["sdk"], 95), _values(measured["notify"], 95)),
        note=note,
    )


def what(rate: int) -> str:
    return f"event to a subscriber on another replica, {TASKS * rate} events/s"


def _values(results: list[Result], percent: int) -> list[float]:
    return [getattr(result, f"p{percent}_ms") for result in results]
