"""message:send, durable on Roost: accepted on disk before the agent runs, ended on disk before the answer."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Series, Stopwatch, ratios, row
from benchmarks.load import Closed
from benchmarks.stats import AtLeast, NoBar

PATH = "/message:send"


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("send")
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(start(folder))
            for start in (
                servers.roost,
                servers.sdk_in_memory,
                servers.sdk_on_sqlite,
                servers.tuned_in_memory,
                servers.tuned_on_sqlite,
                servers.stub,
            )
        ]
        rates: dict[str, list[float]] = {server.name: [] for server in subjects}
        slowest: dict[str, list[float]] = {server.name: [] for server in subjects}
        cpu: dict[str, list[float]] = {server.name: [] for server in subjects}
        generator: list[float] = []
        for server in subjects:
            bench.warm(server, PATH, "1")
        for _ in bench.each_round():
            for server in subjects:
                with Stopwatch(server) as watch:
                    result = bench.load(Closed(server.port, server.base + PATH, "1", seconds=bench.seconds))
                rates[server.name].append(result.rate)
                slowest[server.name].append(result.p99_ms)
                cpu[server.name].append(watch.cpu_s / result.timed * 1e6)
                if server.name == "stub":
                    generator.append(result.rate / result.busy)
                bench.say(
                    f"    {server.name:12} {result.rate:9,.0f} /s  p50 {result.p50_ms:.1f}, p99 {result.p99_ms:.1f} ms,"
                    f" {cpu[server.name][-1]:,.0f} us CPU each  (generator {result.busy:.0%} busy)"
                )
    ours = rates["roost"]
    return Outcome(
        [
            row("message:send, ratio to a2a-sdk in memory", AtLeast(8, 15), ratios(ours, rates["sdk-memory"])),
            row("message:send, ratio to a2a-sdk on SQLite", AtLeast(60, 120), ratios(ours, rates["sdk-sqlite"])),
            row("message:send, ratio to a2a-sdk tuned, in memory", NoBar(), ratios(ours, rates["tuned-memory"])),
            row("message:send, ratio to a2a-sdk tuned, on SQLite", NoBar(), ratios(ours, rates["tuned-sqlite"])),
            row("message:send, share of the no-engine limit", AtLeast(0.15, 0.3), ratios(ours, rates["stub"])),
        ],
        [Series("message:send", server.label, "/s", rates[server.name]) for server in subjects]
        + [Series("message:send, p99", server.label, "ms", slowest[server.name]) for server in subjects]
        + [Series("message:send, CPU time of the server", server.label, "us", cpu[server.name]) for server in subjects]
        + [Series("message:send, what one core could ask for", "the load generator", "/s", generator)],
    )
