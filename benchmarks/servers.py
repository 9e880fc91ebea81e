"""Starts the server processes, measures them from outside, and stops them."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tools.npm import NODE, installed

from roost.identity.seal import make_key

ROOT = Path(__file__).resolve().parent.parent
READY = re.compile(r"at http://127\.0\.0\.1:(\d+)/")
GRPC_READY = re.compile(r"gRPC: 127\.0\.0\.1:(\d+)")
START_S = 60.0
HAPPEN_S = 120.0


class ServerFailed(Exception):
    """A server did not start, or died."""


class Checkout(NamedTuple):
    """A copy of this repository, from which Roost is started."""

    root: Path
    command: Path
    """The `roost` command of the checkout's own virtual environment."""


HERE = Checkout(ROOT, Path(sys.executable).with_name("roost"))


class Server:
    """A server process. It runs inside a `with` block."""

    def __init__(
        self,
        name: str,
        label: str,
        arguments: Sequence[str],
        folder: Path,
        *,
        base: str = "",
        token: str = "",
        ready: re.Pattern[str] = READY,
        cwd: Path = ROOT,
    ) -> None:
        self.name = name
        self.label = label
        """The name that the report uses."""
        self.arguments = arguments
        self.base = base
        """The path below which the agent is served."""
        self.token = token
        """The bearer token that callers must send; empty if the server is open to everyone."""
        self.ready = ready
        """Matches what the server prints when it serves; the group is its port."""
        self.cwd = cwd
        self.errors = folder / f"{name}.log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.started = time.perf_counter()
        with self.errors.open("wb") as errors:
            given = {**os.environ, **({"ROOST_TOKEN": self.token} if self.token else {})}
            self.process = subprocess.Popen(self.arguments, cwd=self.cwd, stdout=errors, stderr=errors, env=given)
        while not (found := self.ready.search(self.errors.read_text(errors="replace"))):
            if self.process.poll() is not None or time.perf_counter() - self.started > START_S:
                self.__exit__(None, None, None)
                raise ServerFailed(f"{self.name} did not start:\n{self.errors.read_text(errors='replace')[-2000:]}")
            time.sleep(0.005)
        self.port = int(found.group(1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End the process as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> tuple[int, bytes]:
        return self._request("GET", path)

    def post(self, path: str, body: object) -> tuple[int, bytes]:
        return self._request("POST", path, json.dumps(body).encode())

    def _request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {"A2A-Version": "1.0", "Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ready_after(self) -> float:
        """Return the seconds from the start of the process until /readyz answers 200."""
        return self.after(lambda: self.get("/readyz")[0] == 200, 0.005)

    def after(self, happened: Callable[[], bool], pause_s: float) -> float:
        """Return the seconds from the start of the process until `happened`, which is called every `pause_s`."""
        while not happened():
            if time.perf_counter() - self.started > HAPPEN_S:
                raise ServerFailed(f"{self.name} is not where it should be after {HAPPEN_S:g} s")
            time.sleep(pause_s)
        return time.perf_counter() - self.started

    def cpu_s(self) -> float:
        """Return the CPU seconds of the server and of the processes that it started."""
        return sum(time.clock_gettime(cpu_clock(pid)) for pid in self._pids())

    def rss_mb(self) -> float:
        found = [re.search(r"VmRSS:\s+(\d+) kB", _proc(pid, "status")) for pid in self._pids()]
        return sum(int(size.group(1)) for size in found if size is not None) / 1024

    def _pids(self) -> list[int]:
        assert self.process is not None
        pid = self.process.pid
        return [pid, *(int(child) for child in _proc(pid, f"task/{pid}/children").split())]


def cpu_clock(pid: int) -> int:
    """Return what clock_getcpuclockid(3) returns: the clock of a process's CPU time, finer than the ticks of /proc."""
    return ~pid << 3 | 2


def _proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def roost(folder: Path, data: str = "journal", *, checkout: Checkout = HERE) -> Server:
    """Roost on SQLite, started as a user would start it."""
    return _roost("roost", "SQLite", folder, checkout, "--data", str(folder / data))


def roost_grpc(folder: Path, *, checkout: Checkout = HERE) -> Server:
    options = ("--data", str(folder / "grpc"), "--grpc", "127.0.0.1:0")
    return _roost("roost-grpc", "SQLite", folder, checkout, *options, ready=GRPC_READY)


def roost_with_token(folder: Path, token: str) -> Server:
    """Roost on SQLite, closed to everyone without the token."""
    return _roost("roost-token", "SQLite, with a token", folder, HERE, "--data", str(folder / "closed"), token=token)


def replica(folder: Path, name: str, store: str, wake: str = "", *, checkout: Checkout = HERE) -> Server:
    """One of several hosts on the same PostgreSQL database, and on NATS if `wake` names it."""
    secret = folder / "secret.key"
    if not secret.exists():
        make_key(secret)
    options = ["--store", store, "--secret-file", str(secret), *(["--wake", wake] if wake else [])]
    return _roost(name, f"PostgreSQL{' and NATS' * bool(wake)}", folder, checkout, *options)


def _roost(
    name: str,
    store: str,
    folder: Path,
    checkout: Checkout,
    *options: str,
    token: str = "",
    ready: re.Pattern[str] = READY,
) -> Server:
    arguments = [str(checkout.command), "serve", "benchmarks/agents.py", "--port", "0", *options]
    label, base = f"Roost, {store}", "/agents/bench"
    return Server(name, label, arguments, folder, base=base, token=token, ready=ready, cwd=checkout.root)


def sdk_in_memory(folder: Path) -> Server:
    return _sdk("sdk-memory", "a2a-sdk, in memory", folder)


def sdk_on_sqlite(folder: Path) -> Server:
    return _sdk("sdk-sqlite", "a2a-sdk, SQLite", folder, str(folder / "sdk.db"))


def tuned_in_memory(folder: Path) -> Server:
    return _sdk("tuned-memory", "a2a-sdk tuned, in memory", folder, "--tuned")


def tuned_on_sqlite(folder: Path) -> Server:
    return _sdk("tuned-sqlite", "a2a-sdk tuned, SQLite", folder, "--tuned", str(folder / "tuned.db"))


def sdk_on_postgres(folder: Path, store: str) -> Server:
    return _sdk("sdk-postgres", "a2a-sdk, PostgreSQL", folder, store)


def sdk_replica(folder: Path, name: str, store: str) -> Server:
    """One of several servers on the same PostgreSQL database, each with the events of the others."""
    return _sdk(name, "a2a-sdk, PostgreSQL", folder, "--replica", store)


def sdk_grpc(folder: Path) -> Server:
    return _sdk("sdk-grpc", "a2a-sdk, in memory", folder, "--grpc", ready=GRPC_READY)


def tuned_grpc(folder: Path) -> Server:
    return _sdk("tuned-grpc", "a2a-sdk tuned, in memory", folder, "--grpc", "--tuned", ready=GRPC_READY)


def _sdk(name: str, label: str, folder: Path, *arguments: str, ready: re.Pattern[str] = READY) -> Server:
    return Server(name, label, [sys.executable, "-m", "benchmarks.sdk", *arguments], folder, ready=ready)


def express_in_memory(folder: Path) -> Server:
    return _express("express-memory", "@a2a-js/sdk, in memory", folder)


def express_on_sqlite(folder: Path) -> Server:
    return _express("express-sqlite", "@a2a-js/sdk, SQLite", folder, str(folder / "express.db"))


def _express(name: str, label: str, folder: Path, *arguments: str) -> Server:
    program = ["env", "NODE_ENV=production", str(NODE), "server.mjs", *arguments]
    return Server(name, label, program, folder, cwd=installed(ROOT / "benchmarks" / "js", "server.mjs"))


def stub(folder: Path) -> Server:
    return Server("stub", "no engine", [sys.executable, "-m", "benchmarks.stub"], folder)
