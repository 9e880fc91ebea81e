"""The time from an agent's emission to the client, under a load that both servers can carry.

Both clocks are this machine's: the agent writes the time into the chunk.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Series, WrongAnswer, ratios, row
from benchmarks.load import Paced
from benchmarks.stats import AtMost

PATH = "/message:stream"
STREAMS = 50
RATE = 20


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("latency")
    chunks = round(RATE * bench.seconds)
    with ExitStack() as stack:
        subjects = [stack.enter_context(start(folder)) for start in (servers.roost, servers.sdk_in_memory)]
        p50: dict[str, list[float]] = {server.name: [] for server in subjects}
        p99: dict[str, list[float]] = {server.name: [] for server in subjects}
        for server in subjects:
            bench.warm(server, PATH, "10")
        for _ in bench.each_round():
            for server in subjects:
                job = Paced(server.port, server.base + PATH, f"{chunks} {RATE}", STREAMS, spread_s=1 / RATE)
                result = bench.load(job)
                if result.counts != {chunks + 3: STREAMS}:
                    raise WrongAnswer(f"{server.name} delivered {result.counts}, not {chunks + 3} to each")
                p50[server.name].append(result.p50_ms)
                p99[server.name].append(result.p99_ms)
                bench.say(
                    f"    {server.name:10} p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms,"
                    f" longest {result.max_ms:.1f} ms"
                )
    what = f"{STREAMS} streams at {RATE} chunks/s"
    return Outcome(
        [
            row(
                f"{what}: p99 from emission to client, ratio to a2a-sdk in memory",
                AtMost(2),
                ratios(p99["roost"], p99["sdk-memory"]),
            )
        ],
        [Series(f"{what}, p50", server.label, "ms", p50[server.name]) for server in subjects]
        + [Series(f"{what}, p99", server.label, "ms", p99[server.name]) for server in subjects],
    )
