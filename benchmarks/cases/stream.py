"""message:stream with 100 chunks, as many streams as 16 connections can take."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Series, WrongAnswer, ratios, row
from benchmarks.load import Closed
from benchmarks.stats import AtLeast, NoBar

PATH = "/message:stream"
CHUNKS = 100
STARTS = (servers.roost, servers.sdk_in_memory, servers.tuned_in_memory)


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("stream")
    with ExitStack() as stack:
        subjects = [stack.enter_context(start(folder)) for start in STARTS]
        events: dict[str, list[float]] = {server.name: [] for server in subjects}
        counts: dict[str, Counter[int]] = {server.name: Counter() for server in subjects}
        for server in subjects:
            bench.warm(server, PATH, str(CHUNKS))
        for _ in bench.each_round():
            for server in subjects:
                result = bench.load(Closed(server.port, server.base + PATH, str(CHUNKS), seconds=bench.seconds))
                events[server.name].append(result.event_rate)
                counts[server.name].update(result.counts)
                bench.say(
                    f"    {server.name:10} {result.event_rate:9,.0f} events/s in {sum(result.counts.values())} streams"
                    f" of {_sizes(result.counts)} events  (generator {result.busy:.0%} busy)"
                )
    if len({*counts["roost"], *counts["sdk-memory"]}) != 1:
        raise WrongAnswer(f"streams differ in their number of events: {counts}")
    (size,) = counts["roost"]
    return Outcome(
        [
            row(
                f"{CHUNKS}-chunk stream, ratio to a2a-sdk in memory",
                AtLeast(15, 25),
                ratios(events["roost"], events["sdk-memory"]),
                note=f"{size} events in each stream of both",
            ),
            row(
                f"{CHUNKS}-chunk stream, ratio to a2a-sdk tuned, in memory",
                NoBar(),
                ratios(events["roost"], events["tuned-memory"]),
            ),
        ],
        [
            Series(
                f"message:stream, {CHUNKS} chunks", server.label, "/s", [rate / size for rate in events[server.name]]
            )
            for server in subjects
        ],
    )


def _sizes(counts: dict[int, int]) -> str:
    return " or ".join(str(size) for size in counts)
