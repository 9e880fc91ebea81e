"""The CPU time that the server needs for an event of a long task, compared with one of a short task."""

from __future__ import annotations

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Series, Stopwatch, WrongAnswer, middle, ratios, row
from benchmarks.load import Closed
from benchmarks.servers import Server
from benchmarks.stats import AtMost

PATH = "/message:stream"
SHORT, LONG = 100, 10_000
EVENTS_PER_S = 20_000
"""How many events of each length are measured, for each second that a measurement may take."""


def run(bench: Bench) -> Outcome:
    total = LONG * max(1, round(bench.seconds * EVENTS_PER_S / LONG))
    cpu: dict[int, list[float]] = {SHORT: [], LONG: []}
    wall: dict[int, list[float]] = {SHORT: [], LONG: []}
    with servers.roost(bench.sub_folder("cost")) as server:
        _measure(bench, server, SHORT, LONG)
        for _ in bench.each_round():
            for chunks in (SHORT, LONG):
                cpu_us, wall_us = _measure(bench, server, chunks, total)
                cpu[chunks].append(cpu_us)
                wall[chunks].append(wall_us)
                bench.say(f"    {chunks:6} chunks: {cpu_us:.1f} us CPU, {wall_us:.1f} us wall per event")
    walls = middle(ratios(wall[LONG], wall[SHORT]))
    return Outcome(
        [
            row(
                f"cost per event at {LONG:,} events, ratio to that at {SHORT}",
                AtMost(1.3),
                ratios(cpu[LONG], cpu[SHORT]),
                note=f"CPU; by the wall clock {walls}",
            )
        ],
        [Series("CPU per event", f"{chunks:,} chunks", "us", cpu[chunks]) for chunks in (SHORT, LONG)]
        + [Series("wall per event", f"{chunks:,} chunks", "us", wall[chunks]) for chunks in (SHORT, LONG)],
    )


def _measure(bench: Bench, server: Server, chunks: int, total: int) -> tuple[float, float]:
    """Return the microseconds of CPU and of wall time per chunk, over `total` chunks on one connection."""
    tasks = total // chunks
    with Stopwatch(server) as watch:
        result = bench.load(Closed(server.port, server.base + PATH, str(chunks), connections=1, requests=tasks))
    if result.counts != {chunks + 3: tasks}:
        raise WrongAnswer(f"expected {tasks} streams of {chunks + 3} events, got {result.counts}")
    return watch.cpu_s / total * 1e6, result.seconds / total * 1e6
