"""Host processes that are started, killed and started again on the same port."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from random import Random

from tools.cluster import dies_with_parent

ROOT = Path(__file__).resolve().parents[1]
SERVES = "Roost serves"
START_S = 60.0
STOP_S = 20.0
LOOK_S = 0.02
PORTS = range(20_000, 32_000)
"""Below what systems hand out to clients: a host that is killed finds its port free when it comes back."""
TRACEBACK = re.compile(r"Traceback \(most recent call last\)")


class ReplicaFailed(Exception):
    """A host did not start, did not stop, or ended by itself."""


class Replica:
    """One host, life after life. It is `down`, starting, or `serves`."""

    def __init__(self, name: str, arguments: Sequence[str], port: int, log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self.command = [str(Path(sys.executable).with_name("roost")), "serve", *arguments, "--port", str(port)]
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("ROOST_")} | dict(env)
        self.process: subprocess.Popen[bytes] | None = None
        self.serves = asyncio.Event()
        self.starting: asyncio.Task[None] | None = None
        self.failed_starts = 0

    def __str__(self) -> str:
        return f"{self.name} at {self.url}, process {self.process.pid if self.process else None}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Begin to start; `serves` is set when it does."""
        self.serves.clear()
        self.starting = asyncio.create_task(self._start(), name=f"start {self.name}")

    async def wait(self) -> None:
        """Until it serves."""
        assert self.starting is not None
        await asyncio.shield(self.starting)

    async def _start(self) -> None:
        """As a supervisor does: again, if it ends before it serves."""
        deadline = time.monotonic() + START_S
        while True:
            begin = self.log.stat().st_size if self.log.exists() else 0
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command,
                    cwd=ROOT,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=dies_with_parent,
                )
            while self.process.poll() is None:
                if SERVES in self._said(begin):
                    self.serves.set()
                    return
                if time.monotonic() > deadline:
                    raise ReplicaFailed(f"{self.name} did not serve within {START_S:g} s:\n{self._said(begin)[-2000:]}")
                await asyncio.sleep(LOOK_S)
            self.failed_starts += 1
            if time.monotonic() > deadline:
                raise ReplicaFailed(f"{self.name} does not start:\n{self._said(begin)[-2000:]}")
            await asyncio.sleep(0.1)

    async def kill(self, *, whole: bool) -> None:
        """SIGKILL, as a crash: to the host alone, or to it and all that it started."""
        await self._abandon()
        assert self.process is not None
        if self.serves.is_set():
            self.check()
        if whole:
            self._signal_all(signal.SIGKILL)
        else:
            self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self.serves.clear()

    async def stop(self) -> None:
        """SIGTERM, as an operator does."""
        await self.wait()
        self.check()
        assert self.process is not None
        self.serves.clear()
        self.process.terminate()
        try:
            await asyncio.to_thread(self.process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self._signal_all(signal.SIGKILL)
            raise ReplicaFailed(f"{self.name} did not stop within {STOP_S:g} s of SIGTERM") from None

    async def freeze(self, seconds: float) -> None:
        """The machine stands still, and the host does not know for how long."""
        await self.wait()
        process = self.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        await self._abandon()
        if self.process is not None:
            self._signal_all(signal.SIGKILL)
            await asyncio.to_thread(self.process.wait)

    def check(self) -> None:
        """It lives, if nobody has ended it."""
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            raise ReplicaFailed(f"{self.name} ended by itself with {code}:\n{self._said(0)[-2000:]}")

    def tracebacks(self) -> list[str]:
        """Those in its log: the exception of each, and the line that it came from."""
        return [_end_of(text.splitlines()[1:]) for text in TRACEBACK.split(self._said(0))[1:]]

    async def _abandon(self) -> None:
        if self.starting is not None and not self.starting.done():
            self.starting.cancel()
            with suppress(asyncio.CancelledError):
                await self.starting

    def _signal_all(self, number: signal.Signals) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _said(self, begin: int) -> str:
        with self.log.open("rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace")


def _end_of(lines: list[str]) -> str:
    """Of a traceback: `Exception: text (file, line n)`."""
    inside = list(takewhile(lambda line: line.startswith(" "), lines))
    places = [line.strip() for line in inside if line.startswith("  File ")]
    return f"{lines[len(inside)] if len(inside) < len(lines) else ''} ({places[-1] if places else ''})"


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in Random().sample(PORTS, 1000):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise ReplicaFailed(f"there are no {count} free ports")
