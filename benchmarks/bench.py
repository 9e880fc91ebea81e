"""The input and the result of a case."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from benchmarks.load import Closed, Job, Poll, Result
from benchmarks.servers import ROOT, Server
from benchmarks.stats import Bar, Spread

CONNECTIONS = 16
WARM_UP_S = 0.5


class Row(Struct):
    """A measure with a bar: one value for each round, and whether the values meet the bar."""

    measure: str
    bar: str
    unit: str
    values: list[float]
    verdict: str
    note: str = ""


class Series(Struct):
    """An absolute figure of one subject, one value for each round."""

    measure: str
    subject: str
    unit: str
    values: list[float]
    drawn: bool = True
    """The chart shows the measure if it has figures of Roost and of others."""


class Outcome(Struct):
    rows: list[Row]
    series: list[Series]


class WrongAnswer(Exception):
    """A server did not do what the case measures, so the case has no figures."""


def row(measure: str, bar: Bar, values: list[float], *, unit: str = "", note: str = "") -> Row:
    return Row(measure, str(bar), unit, values, bar.verdict(Spread.of(values)), note)


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Divide round by round: what slows the machine for a while slows both sides of a ratio."""
    if not all(under):
        raise WrongAnswer("a round was too short to measure anything; give it more --seconds")
    return [a / b for a, b in zip(over, under, strict=True)]


class Bench:
    def __init__(self, folder: Path, rounds: int, seconds: float, quick: bool) -> None:
        self.folder = folder
        self.rounds = rounds
        self.seconds = seconds
        self.quick = quick
        """Use fewer tasks and subscribers, to see whether everything works."""
        self.connections = 2 if quick else CONNECTIONS
        self.warm_up_s = min(WARM_UP_S, seconds)

    def each_round(self) -> Iterator[int]:
        for number in range(1, self.rounds + 1):
            self.say(f"  round {number} of {self.rounds}")
            yield number

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def load(self, job: Job) -> Result:
        return Generator(job).result()

    def warm(self, server: Server, path: str, text: str | None, token: str = "") -> None:
        self.closed(server, path, text, self.warm_up_s, token)

    def closed(
        self, server: Server, path: str, text: str | None = None, seconds: float | None = None, token: str = ""
    ) -> Result:
        """Keep all connections busy with requests to one path below the agent."""
        job = Closed(server.port, server.base + path, text, self.connections, seconds or self.seconds, token=token)
        return self.load(job)

    def poll(self, server: Server, path: str) -> Generator:
        return Generator(Poll(server.port, path))

    def sub_folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True)
        return folder


class Generator:
    """A running load generator."""

    def __init__(self, job: Struct, module: str = "benchmarks.load") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(job))
        self.process.stdin.close()
        self.process.stdin = None

    def stop(self) -> Result:
        self.process.terminate()
        return self.result()

    def result(self) -> Result:
        out, _ = self.process.communicate()
        if self.process.returncode:
            raise WrongAnswer("the load generator failed; see its traceback above")
        result = msgspec.json.decode(out, type=Result)
        if result.errors:
            raise WrongAnswer(f"{result.errors} answers were wrong, the first one: {result.error}")
        return result


class Stopwatch:
    """Measures the CPU time of servers, and the wall time, of a `with` block."""

    def __init__(self, *servers: Server) -> None:
        self.servers = servers
        self.cpu_s = self.wall_s = 0.0

    def __enter__(self) -> Stopwatch:
        self.cpu_s, self.wall_s = -self._cpu_s(), -time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s += self._cpu_s()
        self.wall_s += time.perf_counter()

    def _cpu_s(self) -> float:
        return sum(server.cpu_s() for server in self.servers)


def middle(values: Sequence[float]) -> str:
    return f"{median(values):,.4g}"
