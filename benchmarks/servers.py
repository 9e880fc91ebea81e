"""Server processes: started, measured from outside, stopped."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from roost.identity.seal import make_key

ROOT = Path(__file__).resolve().parent.parent
READY = re.compile(r"at http://127\.0\.0\.1:(\d+)/")
GRPC_READY = re.compile(r"gRPC: 127\.0\.0\.1:(\d+)")
TICKS = os.sysconf("SC_CLK_TCK")
START_S = 60.0
HAPPEN_S = 120.0


class ServerFailed(Exception):
    """A server did not start, or died."""


class Server:
    def __init__(
        self, name: str, label: str, arguments: Sequence[str], folder: Path, base: str = "", token: str = ""
    ) -> None:
        self.name = name
        self.token = token
        """That it asks for."""
        self.label = label
        self.arguments = arguments
        self.base = base
        """The path below which the agent is served."""
        self.ready = READY
        """What it says when it serves, and on which port."""
        self.errors = folder / f"{name}.log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.started = time.perf_counter()
        with self.errors.open("wb") as errors:
            given = {**os.environ, **({"ROOST_TOKEN": self.token} if self.token else {})}
            self.process = subprocess.Popen(self.arguments, cwd=ROOT, stdout=errors, stderr=errors, env=given)
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
        """As a crash does; what it leaves is for the next one."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path, headers={"A2A-Version": "1.0"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ready_after(self) -> float:
        """Seconds from the start of the process until /readyz said 200."""
        return self.after(lambda: self.get("/readyz")[0] == 200, 0.005)

    def after(self, happened: Callable[[], bool], pause_s: float) -> float:
        """Seconds from the start of the process until something has happened; one looks every `pause_s`."""
        while not happened():
            if time.perf_counter() - self.started > HAPPEN_S:
                raise ServerFailed(f"{self.name} is not where it should be after {HAPPEN_S:g} s")
            time.sleep(pause_s)
        return time.perf_counter() - self.started

    def cpu_s(self) -> float:
        """Of the server and the processes that it started."""
        found = [_proc(pid, "stat").rpartition(")")[2].split() for pid in self._pids()]
        return sum(int(fields[11]) + int(fields[12]) for fields in found) / TICKS

    def rss_mb(self) -> float:
        found = [re.search(r"VmRSS:\s+(\d+) kB", _proc(pid, "status")) for pid in self._pids()]
        return sum(int(size.group(1)) for size in found if size is not None) / 1024

    def _pids(self) -> list[int]:
        assert self.process is not None
        pid = self.process.pid
        return [pid, *(int(child) for child in _proc(pid, f"task/{pid}/children").split())]


def _proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def roost(folder: Path, data: str = "journal") -> Server:
    """On SQLite, as a user would start it."""
    command = Path(sys.executable).with_name("roost")
    arguments = [str(command), "serve", "benchmarks/agents.py", "--port", "0", "--data", str(folder / data)]
    return Server("roost", "Roost, SQLite", arguments, folder, "/agents/bench")


def roost_grpc(folder: Path) -> Server:
    server = roost(folder, "grpc")
    return _on_grpc(Server("roost-grpc", "Roost, SQLite", [*server.arguments, "--grpc", "127.0.0.1:0"], folder))


def roost_with_token(folder: Path, token: str) -> Server:
    """The same, closed to everyone without the token."""
    server = roost(folder, "closed")
    return Server("roost-token", "Roost, SQLite, with a token", server.arguments, folder, server.base, token)


def replica(folder: Path, name: str, store: str, wake: str = "") -> Server:
    """One of several on one PostgreSQL."""
    secret = folder / "secret.key"
    if not secret.exists():
        make_key(secret)
    command = Path(sys.executable).with_name("roost")
    arguments = [str(command), "serve", "benchmarks/agents.py", "--port", "0", "--store", store]
    arguments += ["--secret-file", str(secret), *(["--wake", wake] if wake else [])]
    return Server(name, f"Roost, PostgreSQL{' and NATS' * bool(wake)}", arguments, folder, "/agents/bench")


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
    """One of several on one PostgreSQL, each with the events of the others."""
    return _sdk(name, "a2a-sdk, PostgreSQL", folder, "--replica", store)


def sdk_grpc(folder: Path) -> Server:
    return _on_grpc(_sdk("sdk-grpc", "a2a-sdk, in memory", folder, "--grpc"))


def tuned_grpc(folder: Path) -> Server:
    return _on_grpc(_sdk("tuned-grpc", "a2a-sdk tuned, in memory", folder, "--grpc", "--tuned"))


def _on_grpc(server: Server) -> Server:
    server.ready = GRPC_READY
    return server


def _sdk(name: str, label: str, folder: Path, *arguments: str) -> Server:
    return Server(name, label, [sys.executable, "-m", "benchmarks.sdk", *arguments], folder)


def stub(folder: Path) -> Server:
    return Server("stub", "no engine", [sys.executable, "-m", "benchmarks.stub"], folder)
