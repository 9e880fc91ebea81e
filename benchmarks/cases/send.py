"""message:send. Roost commits the message before the agent runs, and the end of the task before it answers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from benchmarks import checks, servers
from benchmarks.bench import Bench, Outcome, Series, Stopwatch, ratios, row
from benchmarks.servers import Server
from benchmarks.stats import AtLeast, Bar, NoBar

PATH = "/message:send"
PEERS = (
    servers.roost,
    servers.sdk_in_memory,
    servers.sdk_on_sqlite,
    servers.tuned_in_memory,
    servers.tuned_on_sqlite,
    servers.express_in_memory,
    servers.express_on_sqlite,
)
BARS: dict[str, tuple[str, Bar]] = {
    "sdk-memory": ("ratio to a2a-sdk in memory", AtLeast(8, 15)),
    "sdk-sqlite": ("ratio to a2a-sdk on SQLite", AtLeast(60, 120)),
    "tuned-memory": ("ratio to a2a-sdk tuned, in memory", NoBar()),
    "tuned-sqlite": ("ratio to a2a-sdk tuned, on SQLite", NoBar()),
    "express-memory": ("ratio to @a2a-js/sdk on Express, in memory", AtLeast(1.3, 3)),
    "express-sqlite": ("ratio to @a2a-js/sdk on Express, on SQLite", AtLeast(7, 15)),
    "stub": ("share of the no-engine limit", AtLeast(0.15, 0.3)),
}


LARGE = "1".ljust(1024 * 1024)
"""A message of 1 MB that asks for as much work as the smallest one."""


class Sent(NamedTuple):
    rate: float
    p99_ms: float
    cpu_us: float
    """The CPU time of the server for each message."""
    generator_busy: float


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("send")
    with ExitStack() as stack:
        peers = [stack.enter_context(start(folder)) for start in PEERS]
        for server in peers:
            checks.does_the_work(server)
        subjects = [*peers, stack.enter_context(servers.stub(folder))]
        for server in subjects:
            bench.warm(server, PATH, "1")
        sent: dict[str, list[Sent]] = {server.name: [] for server in subjects}
        for _ in bench.each_round():
            for server in subjects:
                sent[server.name].append(measure(bench, server))
    rates = {name: [each.rate for each in rounds] for name, rounds in sent.items()}
    slowest = {name: [each.p99_ms for each in rounds] for name, rounds in sent.items()}
    cpu = {name: [each.cpu_us for each in rounds] for name, rounds in sent.items()}
    generator = [each.rate / each.generator_busy for each in sent["stub"]]
    return Outcome(
        [row(f"message:send, {what}", bar, ratios(rates["roost"], rates[name])) for name, (what, bar) in BARS.items()],
        [Series("message:send", server.label, "/s", rates[server.name]) for server in subjects]
        + [Series("message:send, p99", server.label, "ms", slowest[server.name]) for server in subjects]
        + [Series("message:send, CPU time of the server", server.label, "us", cpu[server.name]) for server in subjects]
        + [Series("message:send, what one core could ask for", "the load generator", "/s", generator)],
    )


def measure(bench: Bench, server: Server, text: str = "1") -> Sent:
    with Stopwatch(server) as watch:
        result = bench.closed(server, PATH, text)
    cpu_us = watch.cpu_s / result.timed * 1e6
    bench.say(
        f"    {server.name:14} {result.rate:9,.0f} /s  p50 {result.p50_ms:.1f}, p99 {result.p99_ms:.1f} ms,"
        f" {cpu_us:,.0f} us CPU each  (generator {result.busy:.0%} busy)"
    )
    return Sent(result.rate, result.p99_ms, cpu_us, result.busy)
