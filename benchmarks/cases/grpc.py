"""gRPC: SendMessage, and SendStreamingMessage with 100 chunks, beside the SDK's own gRPC server."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

from benchmarks import servers
from benchmarks.bench import WARM_UP_S, Bench, Generator, Outcome, Series, Stopwatch, WrongAnswer, ratios, row
from benchmarks.grpc_load import Calls
from benchmarks.load import Result
from benchmarks.servers import Server
from benchmarks.stats import AtLeast, NoBar

SEND, STREAM = "SendMessage", "SendStreamingMessage"
CHUNKS = 100


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("grpc")
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(start(folder)) for start in (servers.roost_grpc, servers.sdk_grpc, servers.tuned_grpc)
        ]
        sends: dict[str, list[float]] = {server.name: [] for server in subjects}
        events: dict[str, list[float]] = {server.name: [] for server in subjects}
        cpu: dict[str, list[float]] = {server.name: [] for server in subjects}
        sizes: Counter[int] = Counter()
        for server in subjects:
            _load(server, SEND, "1", WARM_UP_S)
            _load(server, STREAM, str(CHUNKS), WARM_UP_S)
        for _ in bench.each_round():
            for server in subjects:
                with Stopwatch(server) as watch:
                    sent = _load(server, SEND, "1", bench.seconds)
                streamed = _load(server, STREAM, str(CHUNKS), bench.seconds)
                sends[server.name].append(sent.rate)
                cpu[server.name].append(watch.cpu_s / sent.timed * 1e6)
                events[server.name].append(streamed.event_rate)
                sizes.update(streamed.counts)
                bench.say(
                    f"    {server.name:12} {sent.rate:7,.0f} sends/s, p50 {sent.p50_ms:.1f} ms,"
                    f" {cpu[server.name][-1]:,.0f} us CPU each (generator {sent.busy:.0%} busy),"
                    f" {streamed.event_rate:8,.0f} events/s (generator {streamed.busy:.0%} busy)"
                )
    if len(sizes) != 1:
        raise WrongAnswer(f"streams differ in their number of events: {sizes}")
    (size,) = sizes
    ours, sdk, tuned = (server.name for server in subjects)
    return Outcome(
        [
            row("gRPC SendMessage, ratio to a2a-sdk in memory", AtLeast(3, 5), ratios(sends[ours], sends[sdk])),
            row(
                f"gRPC {CHUNKS}-chunk stream, ratio to a2a-sdk in memory",
                AtLeast(1.5, 3),
                ratios(events[ours], events[sdk]),
                note=f"{size} events in each stream of both",
            ),
            row("gRPC SendMessage, ratio to a2a-sdk tuned", NoBar(), ratios(sends[ours], sends[tuned])),
            row(f"gRPC {CHUNKS}-chunk stream, ratio to a2a-sdk tuned", NoBar(), ratios(events[ours], events[tuned])),
        ],
        [Series("gRPC SendMessage", server.label, "/s", sends[server.name]) for server in subjects]
        + [Series("gRPC SendMessage, CPU time", server.label, "us", cpu[server.name]) for server in subjects]
        + [
            Series(f"gRPC stream, {CHUNKS} chunks", server.label, "/s", [rate / size for rate in events[server.name]])
            for server in subjects
        ],
    )


def _load(server: Server, method: str, text: str, seconds: float) -> Result:
    return Generator(Calls(server.port, method, text, seconds), "benchmarks.grpc_load").result()
