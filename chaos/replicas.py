"""Host processes that are started, killed and restarted on the same port."""

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

from tools.cluster import kill_with_parent

ROOT = Path(__file__).resolve().parents[1]
SERVES = "Roost serves"
START_S = 60.0
STOP_S = 20.0
POLL_S = 0.02
PORTS = range(20_000, 32_000)
"""Below the ephemeral ports of the system, so that a killed host finds its port free when it restarts."""
TRACEBACK = re.compile(r"Traceback \(most recent call last\)")


class ReplicaFailed(Exception):
    """A host did not start, did not stop, or exited by itself."""


class Replica:
    """One host over all its restarts. `serves` is set while it serves."""

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
        """Start the host in the background. `serves` is set when it serves."""
        self.serves.clear()
        self.starting = asyncio.create_task(self._start(), name=f"start {self.name}")

    async def wait(self) -> None:
        """Wait until the host serves."""
        assert self.starting is not None
        await asyncio.shield(self.starting)

    async def _start(self) -> None:
        """Start the process, and restart it if it exits before it serves, as a supervisor does."""
        deadline = time.monotonic() + START_S
        while True:
            offset = self.log.stat().st_size if self.log.exists() else 0
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command,
                    cwd=ROOT,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=kill_with_parent,
                )
            while self.process.poll() is None:
                if SERVES in self._log_text(offset):
                    self.serves.set()
                    return
                if time.monotonic() > deadline:
                    raise ReplicaFailed(
                        f"{self.name} did not serve within {START_S:g} s:\n{self._log_text(offset)[-2000:]}"
                    )
                await asyncio.sleep(POLL_S)
            self.failed_starts += 1
            if time.monotonic() > deadline:
                raise ReplicaFailed(f"{self.name} does not start:\n{self._log_text(offset)[-2000:]}")
            await asyncio.sleep(0.1)

    async def kill(self, *, group: bool) -> None:
        """Send SIGKILL to the host alone, or to its whole process group."""
        await self._cancel_start()
        assert self.process is not None
        if self.serves.is_set():
            self.check()
        if group:
            self._signal_all(signal.SIGKILL)
        else:
            self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self.serves.clear()

    async def stop(self) -> None:
        """Send SIGTERM, as an operator does."""
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
        """Stop the process for a while. The host does not know for how long."""
        await self.wait()
        process = self.process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        await self._cancel_start()
        if self.process is not None:
            self._signal_all(signal.SIGKILL)
            await asyncio.to_thread(self.process.wait)

    def check(self) -> None:
        """Raise ReplicaFailed if the process has exited by itself."""
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            raise ReplicaFailed(f"{self.name} exited by itself with {code}:\n{self._log_text(0)[-2000:]}")

    def tracebacks(self) -> list[str]:
        """Return the tracebacks in the log: the exception of each, and the line that raised it."""
        return [_summary(text.splitlines()[1:]) for text in TRACEBACK.split(self._log_text(0))[1:]]

    async def _cancel_start(self) -> None:
        if self.starting is not None and not self.starting.done():
            self.starting.cancel()
            with suppress(asyncio.CancelledError):
                await self.starting

    def _signal_all(self, number: signal.Signals) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _log_text(self, offset: int) -> str:
        with self.log.open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")


def _summary(lines: list[str]) -> str:
    """Summarise a traceback as `Exception: text (file, line n)`."""
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
