"""`roost serve --workers N`: host processes that share listening sockets, and a parent that restarts them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from roost.server.sockets import CannotServe, Listeners
from roost.settings import Settings

STARTUP_FAILED = 1
"""The exit code of a worker that cannot start, as of any `roost serve` that fails."""
LISTEN_FDS = "ROOST_LISTEN_FDS"
NUMBER = "ROOST_WORKER_NUMBER"
PARENT_FD = "ROOST_PARENT_FD"
READY_FD = "ROOST_READY_FD"
QUICK_S = 5.0
"""A worker that ends within this many seconds waits twice as long as before until it is started again."""
BACKOFF_S, BACKOFF_MAX_S = 0.5, 15.0
KILL_S = 10.0
"""Seconds after the drain until a worker that still runs is killed."""
LOOK_S = 0.1


def inherited() -> Listeners | None:
    """The sockets that a worker inherits from its parent; None if this is no worker."""
    found = os.environ.get(LISTEN_FDS)
    return None if found is None else Listeners([socket.socket(fileno=os.dup(int(fd))) for fd in found.split(",")])


def number() -> int | None:
    """The number of this worker, from 1; None if this is no worker."""
    found = os.environ.get(NUMBER)
    return None if found is None else int(found)


def ready() -> None:
    """Tell the parent that this worker serves."""
    found = os.environ.get(READY_FD)
    if found is not None:
        os.write(int(found), b".")


def when_parent_ends(act: Callable[[], None]) -> None:
    """Call `act` when the parent has ended, so that no worker serves on unnoticed."""
    found = os.environ.get(PARENT_FD)
    if found is None:
        return
    loop, descriptor = asyncio.get_running_loop(), int(found)

    def ended() -> None:
        loop.remove_reader(descriptor)
        act()

    loop.add_reader(descriptor, ended)


class Workers:
    def __init__(self, sources: Sequence[str], settings: Settings, listeners: Sequence[socket.socket]) -> None:
        self.sources = sources
        self.settings = settings
        self.listeners = [listener.fileno() for listener in listeners]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.started: dict[int, float] = {}
        self.delays: dict[int, float] = {}
        self.due: dict[int, float] = dict.fromkeys(range(1, settings.workers + 1), 0.0)
        self.stopping = False
        self.parent = os.pipe()
        """A pipe to which nothing is written. When it closes, the workers know that the parent has ended."""
        self.ready = os.pipe()
        os.set_blocking(self.ready[0], False)
        self.served = False
        """True once any worker was ready, which shows that the settings can be used."""

    def run(self) -> None:
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: self._stop())
        while not self.stopping:
            self._begin_due()
            self._look()
            time.sleep(LOOK_S)
        self._end()

    def _stop(self) -> None:
        self.stopping = True

    def _begin_due(self) -> None:
        for worker, when in list(self.due.items()):
            if when <= time.monotonic():
                del self.due[worker]
                self.processes[worker] = self._spawn(worker)
                self.started[worker] = time.monotonic()

    def _spawn(self, worker: int) -> subprocess.Popen[bytes]:
        given = {f"ROOST_{name.upper()}": _text(value) for name, value in msgspec.structs.asdict(self.settings).items()}
        handed = {
            LISTEN_FDS: ",".join(map(str, self.listeners)),
            PARENT_FD: str(self.parent[0]),
            READY_FD: str(self.ready[1]),
        }
        return subprocess.Popen(  # noqa: S603  # ourselves, with our own arguments
            [sys.executable, "-m", "roost.cli", "serve", *self.sources],
            env={**os.environ, **given, **handed, NUMBER: str(worker)},
            pass_fds=[*self.listeners, self.parent[0], self.ready[1]],
            start_new_session=True,  # a terminal's Ctrl-C reaches only the parent, which stops the workers
        )

    def _look(self) -> None:
        for worker, process in list(self.processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self.processes[worker]
            lived = time.monotonic() - self.started[worker]
            if code == STARTUP_FAILED and not self._has_served():
                self._end()
                raise CannotServe("the workers cannot start; the messages above say why")
            delay = BACKOFF_S if lived > QUICK_S else min(self.delays.get(worker, BACKOFF_S / 2) * 2, BACKOFF_MAX_S)
            self.delays[worker] = delay
            self.due[worker] = time.monotonic() + delay
            print(f"roost: worker {worker} ended with code {code}; it restarts in {delay:g} s", file=sys.stderr)

    def _has_served(self) -> bool:
        try:
            self.served = self.served or bool(os.read(self.ready[0], 64))
        except BlockingIOError:
            pass
        return self.served

    def _end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + self.settings.drain_s + KILL_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
