"""gRPC: SendMessage, and SendStreamingMessage with 100 chunks, beside the SDK's own gRPC server."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from benchmarks import servers
from benchmarks.bench import Bench, Generator, Outcome, Series, Stopwatch, WrongAnswer, ratios, row
from benchmarks.grpc_load import Calls
from benchmarks.load import Result
from benchmarks.servers import Server
from benchmarks.stats import AtLeast, NoBar

SEND, STREAM = "SendMessage", "SendStreamingMessage"
CHUNKS = 100
EVENTS = CHUNKS + 3


class Called(NamedTuple):
    sends: float
    """The answers to SendMessage per second."""
    cpu_us: float
    """The CPU time of the server for each of them."""
    streams: float
    """The streams of SendStreamingMessage per second."""


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("grpc")
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(start(folder)) for start in (servers.roost_grpc, servers.sdk_grpc, servers.tuned_grpc)
        ]
        for server in subjects:
            warm(bench, server)
        called: dict[str, list[Called]] = {server.name: [] for server in subjects}
        for _ in bench.each_round():
            for server in subjects:
                called[server.name].append(measure(bench, server))
    sends = {name: [each.sends for each in rounds] for name, rounds in called.items()}
    cpu = {name: [each.cpu_us for each in rounds] for name, rounds in called.items()}
    streams = {name: [each.streams for each in rounds] for name, rounds in called.items()}
    ours, sdk, tuned = (server.name for server in subjects)
    what = f"gRPC {CHUNKS}-chunk stream"
    return Outcome(
        [
            row("gRPC SendMessage, ratio to a2a-sdk in memory", AtLeast(3, 5), ratios(sends[ours], sends[sdk])),
            row(f"{what}, ratio to a2a-sdk in memory", AtLeast(1.5, 3), ratios(streams[ours], streams[sdk])),
            row("gRPC SendMessage, ratio to a2a-sdk tuned", NoBar(), ratios(sends[ours], sends[tuned])),
            row(f"{what}, ratio to a2a-sdk tuned", NoBar(), ratios(streams[ours], streams[tuned])),
        ],
        [Series("gRPC SendMessage", server.label, "/s", sends[server.name]) for server in subjects]
        + [Series("gRPC SendMessage, CPU time", server.label, "us", cpu[server.name]) for server in subjects]
        + [Series(f"gRPC stream, {CHUNKS} chunks", server.label, "/s", streams[server.name]) for server in subjects],
    )


def warm(bench: Bench, server: Server) -> None:
    _load(bench, server, SEND, "1", bench.warm_up_s)
    _load(bench, server, STREAM, str(CHUNKS), bench.warm_up_s)


def measure(bench: Bench, server: Server) -> Called:
    with Stopwatch(server) as watch:
        sent = _load(bench, server, SEND, "1", bench.seconds)
    streamed = _load(bench, server, STREAM, str(CHUNKS), bench.seconds)
    if set(streamed.counts) != {EVENTS}:
        raise WrongAnswer(f"{server.name} delivers streams of {streamed.counts} events, not of {EVENTS}")
    cpu_us = watch.cpu_s / sent.timed * 1e6
    bench.say(
        f"    {server.name:12} {sent.rate:7,.0f} sends/s, p50 {sent.p50_ms:.1f} ms,"
        f" {cpu_us:,.0f} us CPU each (generator {sent.busy:.0%} busy),"
        f" {streamed.event_rate:8,.0f} events/s (generator {streamed.busy:.0%} busy)"
    )
    return Called(sent.rate, cpu_us, streamed.event_rate / EVENTS)


def _load(bench: Bench, server: Server, method: str, text: str, seconds: float) -> Result:
    return Generator(Calls(server.port, method, text, seconds, bench.connections), "benchmarks.grpc_load").result()
