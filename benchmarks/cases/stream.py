"""message:stream with 100 chunks: as many streams as 16 connections can take."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import checks, servers
from benchmarks.bench import Bench, Outcome, Series, WrongAnswer, ratios, row
from benchmarks.servers import Server
from benchmarks.stats import AtLeast, Bar, NoBar

PATH = "/message:stream"
CHUNKS = 100
EVENTS = CHUNKS + 3
"""The events of a stream: the task, WORKING, the chunks and COMPLETED."""
PEERS = (
    servers.roost,
    servers.sdk_in_memory,
    servers.tuned_in_memory,
    servers.express_in_memory,
    servers.express_on_sqlite,
)
BARS: dict[str, tuple[str, Bar]] = {
    "sdk-memory": ("ratio to a2a-sdk in memory", AtLeast(22, 30)),
    "tuned-memory": ("ratio to a2a-sdk tuned, in memory", NoBar()),
    "express-memory": ("ratio to @a2a-js/sdk on Express, in memory", NoBar()),
    "express-sqlite": ("ratio to @a2a-js/sdk on Express, on SQLite", NoBar()),
}


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("stream")
    with ExitStack() as stack:
        peers = [stack.enter_context(start(folder)) for start in PEERS]
        for server in peers:
            checks.does_the_work(server)
            bench.warm(server, PATH, str(CHUNKS))
        rates: dict[str, list[float]] = {server.name: [] for server in peers}
        for _ in bench.each_round():
            for server in peers:
                rates[server.name].append(measure(bench, server))
    return Outcome(
        [
            row(f"{CHUNKS}-chunk stream, {what}", bar, ratios(rates["roost"], rates[name]))
            for name, (what, bar) in BARS.items()
        ],
        [Series(f"message:stream, {CHUNKS} chunks", server.label, "/s", rates[server.name]) for server in peers],
    )


def measure(bench: Bench, server: Server) -> float:
    """Return the streams per second, with the events of unfinished streams counted as their share of one."""
    result = bench.closed(server, PATH, str(CHUNKS))
    if set(result.counts) != {EVENTS}:
        raise WrongAnswer(f"{server.name} delivers streams of {result.counts} events, not of {EVENTS}")
    bench.say(
        f"    {server.name:14} {result.event_rate:9,.0f} events/s in {sum(result.counts.values())} streams"
        f"  (generator {result.busy:.0%} busy)"
    )
    return result.event_rate / EVENTS
