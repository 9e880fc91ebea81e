"""Notices requests that block the event loop of a host: another caller waits while the host computes.

A process of its own asks the host for /healthz all the while (benchmarks/hostile/probe.py). A wait counts only as far
as the machine ran the host: without the time in which the event loop was ready to run and something else ran, and no
longer than the CPU time that the host used meanwhile. So a busy machine is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.hostile.host import Prober
from benchmarks.hostile.probe import ProbeJob, Wait

BLOCKED_MS = 100.0
PAUSE_S = 0.005


class LoopBlocked(AssertionError):
    """A request kept the event loop from answering others."""

    def __init__(self, wait: Wait, cause: str) -> None:
        super().__init__(
            f"{cause} blocked the event loop: another caller waited {wait.own_ms:.0f} ms ({wait.wall_ms:.0f} ms by the"
            f" clock, with what else the machine ran), while the host computed for {wait.busy_ms:.0f} ms, the thread of"
            f" the event loop for {wait.cpu_ms:.0f} of them"
        )


class LoopWatch:
    """The probe of one host."""

    def __init__(self, prober: Prober) -> None:
        self.prober = prober

    def check(self, cause: str) -> None:
        """Raise LoopBlocked if the event loop was blocked since the last check."""
        worst = self.worst()
        if worst is not None and min(worst.own_ms, worst.busy_ms) > BLOCKED_MS:
            raise LoopBlocked(worst, cause)

    def worst(self) -> Wait | None:
        """Return the longest wait since the last call, if one was long."""
        self.prober.mark()
        long = self.prober.taken()["healthz"].long
        return max(long, key=lambda wait: min(wait.own_ms, wait.busy_ms), default=None)


@contextmanager
def watching(port: int, pid: int) -> Iterator[LoopWatch]:
    """Watch the host on this port, whose event loop runs in the main thread of this process."""
    prober = Prober(ProbeJob(port, 0, pid, 0, {"healthz": PAUSE_S}))
    try:
        yield LoopWatch(prober)
    finally:
        prober.stop()
