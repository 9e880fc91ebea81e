"""Compares Roost in this checkout with Roost in another one: `python -m benchmarks --beside PATH`.

Both run in the same rounds and get their load from this checkout's generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tools.services import nats, new_database, postgres

from benchmarks import checks, servers
from benchmarks.bench import Bench, ratios
from benchmarks.cases import access, grpc, replicas, send, stream
from benchmarks.servers import HERE, Checkout
from benchmarks.stats import Spread


class Figure(NamedTuple):
    measure: str
    unit: str
    """`/s` for a rate, where more is better. In all other units less is better."""
    value: float


Measure = Callable[[], list[Figure]]
"""Takes the figures of one round from the running servers of one checkout."""


class Comparison(NamedTuple):
    """One measure in both checkouts, with one value for each round."""

    measure: str
    unit: str
    here: list[float]
    there: list[float]

    @property
    def gain(self) -> float:
        """How many times better this checkout is than the other, by their medians."""
        return self._gains([median(self.here)], [median(self.there)])[0]

    @property
    def spread(self) -> Spread:
        """The gains of the single rounds."""
        return Spread.of(self._gains(self.here, self.there))

    @property
    def verdict(self) -> str:
        if self.spread.low > 1:
            return "better"
        return "worse" if self.spread.high < 1 else "undecided"

    def _gains(self, here: Sequence[float], there: Sequence[float]) -> list[float]:
        return ratios(here, there) if self.unit == "/s" else ratios(there, here)


@contextmanager
def _send(bench: Bench, folder: Path, checkout: Checkout) -> Iterator[Measure]:
    with servers.roost(folder, checkout=checkout) as server:
        checks.does_the_work(server)
        bench.warm(server, send.PATH, "1")

        def measure() -> list[Figure]:
            sent = send.measure(bench, server)
            return [Figure("message:send", "/s", sent.rate), Figure("message:send, CPU time", "us", sent.cpu_us)]

        yield measure


@contextmanager
def _large(bench: Bench, folder: Path, checkout: Checkout) -> Iterator[Measure]:
    with servers.roost(folder, checkout=checkout) as server:
        bench.warm(server, send.PATH, send.LARGE)

        def measure() -> list[Figure]:
            sent = send.measure(bench, server, send.LARGE)
            what = "message:send of 1 MB"
            return [Figure(what, "/s", sent.rate), Figure(f"{what}, CPU time", "us", sent.cpu_us)]

        yield measure


@contextmanager
def _stream(bench: Bench, folder: Path, checkout: Checkout) -> Iterator[Measure]:
    with servers.roost(folder, checkout=checkout) as server:
        checks.does_the_work(server)
        bench.warm(server, stream.PATH, str(stream.CHUNKS))
        what = f"message:stream, {stream.CHUNKS} chunks"
        yield lambda: [Figure(what, "/s", stream.measure(bench, server))]


@contextmanager
def _cards(bench: Bench, folder: Path, checkout: Checkout) -> Iterator[Measure]:
    with servers.roost(folder, checkout=checkout) as server:
        bench.warm(server, access.CARD, None)

        def measure() -> list[Figure]:
            result = bench.closed(server, access.CARD)
            bench.say(f"    {result.rate:9,.0f} cards/s  (generator {result.busy:.0%} busy)")
            return [Figure("signed agent card", "/s", result.rate)]

        yield measure


@contextmanager
def _grpc(bench: Bench, folder: Path, checkout: Checkout) -> Iterator[Measure]:
    with servers.roost_grpc(folder, checkout=checkout) as server:
        grpc.warm(bench, server)

        def measure() -> list[Figure]:
            called = grpc.measure(bench, server)
            return [
                Figure("gRPC SendMessage", "/s", called.sends),
                Figure("gRPC SendMessage, CPU time", "us", called.cpu_us),
                Figure(f"gRPC stream, {grpc.CHUNKS} chunks", "/s", called.streams),
            ]

        yield measure


@contextmanager
def _replicas(bench: Bench, folder: Path, checkout: Checkout) -> Iterator[Measure]:
    with ExitStack() as stack:
        database, wake = stack.enter_context(postgres()).url, stack.enter_context(nats()).url

        def pair(name: str, wake: str) -> replicas.Pair:
            store = new_database(database)
            starting = [servers.replica(folder, f"{name}-{each}", store, wake, checkout=checkout) for each in (1, 2)]
            first, second = (stack.enter_context(server) for server in starting)
            return replicas.Pair(name, first, second)

        pairs = [pair("notify", ""), pair("nats", wake)]
        for each in pairs:
            replicas.warm(bench, each)

        def measure() -> list[Figure]:
            what = replicas.what(replicas.RATE)
            return [
                Figure(f"{what}, {each.label}: p95", "ms", replicas.measure(bench, each, replicas.RATE).p95_ms)
                for each in pairs
            ]

        yield measure


CASES: dict[str, Callable[[Bench, Path, Checkout], AbstractContextManager[Measure]]] = {
    "send": _send,
    "large": _large,
    "stream": _stream,
    "cards": _cards,
    "grpc": _grpc,
    "replicas": _replicas,
}


def compare(bench: Bench, case: str, other: Checkout) -> list[Comparison]:
    """Measure one case in both checkouts. They take turns, and each of them begins every second round."""
    values: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    with ExitStack() as stack:
        sides = [
            stack.enter_context(CASES[case](bench, bench.sub_folder(f"{case}-{name}"), checkout))
            for name, checkout in (("here", HERE), ("there", other))
        ]
        for number in bench.each_round():
            for index in (0, 1) if number % 2 else (1, 0):
                bench.say(f"    {'there' if index else 'here'}:")
                for measure, unit, value in sides[index]():
                    values.setdefault((measure, unit), ([], []))[index].append(value)
    return [Comparison(measure, unit, here, there) for (measure, unit), (here, there) in values.items()]
