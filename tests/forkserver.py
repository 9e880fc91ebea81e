"""Commands as processes of their own that start in milliseconds.

Importing the command line takes most of a second, hundreds of times in a run. So one process per test worker imports
everything once, and forks for each command. The command has its own memory, environment, working directory,
standard streams and signals, and ends as an interpreter does; only the imports were made before.

    pytest ──request: words, environment, folder; stdin, stdout, stderr, status──▶ fork server
                                                                                      └─ fork: waits and reports
                                                                                           └─ fork: the command
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

HEADER = 8
"""Bytes of a request's length."""
LOOK_S = 0.005
"""Seconds between two looks whether a process has ended."""
_SERVE = "from tests.forkserver import serve; serve(); from roost.cli.main import main; main()"


# In the process of the tests


class ForkServer:
    """Starts with its first command, and ends with the process that has it."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=env,
                cwd=folder,
                start_new_session=True,
            )
        atexit.register(self._close)

    def start(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = False,
    ) -> ForkedProcess:
        """Run `roost WORDS`. Descriptors, PIPE and DEVNULL mean what they mean to subprocess.Popen."""
        ours: list[IO[str] | None] = []
        theirs: list[int] = []
        for number, given in enumerate((stdin, stdout, stderr)):
            mine, yours = _stream(number, given)
            ours.append(mine)
            theirs.append(yours)
        reports, report = os.pipe()
        request = json.dumps({"words": words, "env": dict(env), "cwd": str(cwd), "session": start_new_session}).encode()
        with self._lock:
            socket.send_fds(self._ours, [len(request).to_bytes(HEADER)], [*theirs, report])
            self._ours.sendall(request)
        for descriptor in (*theirs, report):
            os.close(descriptor)
        return ForkedProcess(reports, *ours)

    def _close(self) -> None:
        self._ours.close()
        self._process.wait()


def _stream(number: int, given: int | None) -> tuple[IO[str] | None, int]:
    """Our end of a standard stream, where there is one, and the descriptor for the command."""
    if given == subprocess.PIPE:
        read, write = os.pipe()
        return (os.fdopen(write, "w"), read) if number == 0 else (os.fdopen(read), write)
    if given == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    return None, os.dup(number if given is None else given)


class ForkedProcess:
    """The part of subprocess.Popen's interface that tests use."""

    def __init__(self, reports: int, stdin: IO[str] | None, stdout: IO[str] | None, stderr: IO[str] | None) -> None:
        self._reports = os.fdopen(reports, "rb", buffering=0)
        self._ended = select.poll()
        self._ended.register(reports, select.POLLIN)
        self._lock = threading.Lock()
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.pid = int(self._reports.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and self._ended.poll(0):
                self.returncode = int(self._reports.readline())
                self._reports.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("roost", timeout or 0.0)
            time.sleep(LOOK_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended in this moment
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


# In the fork server


def serve() -> None:
    """Fork for every request. Returns in the process that is to run the command."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    import roost
    from roost.wiring.grpc import SILENT

    os.environ |= SILENT  # gRPC reads it when it is imported, and forgets nothing in a fork
    for module in pkgutil.walk_packages(roost.__path__, "roost."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("asyncpg", "nats.aio.client", "uvloop"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for request, descriptors in _requests(control):
        if os.fork() == 0:
            control.close()
            return _begin(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
    os._exit(0)


def _requests(control: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    while True:
        header, descriptors, _, _ = socket.recv_fds(control, HEADER, 4)
        if not header:
            return
        left, body = int.from_bytes(header), b""
        while len(body) < left:
            body += control.recv(left - len(body))
        yield json.loads(body), descriptors


def _begin(request: dict[str, Any], descriptors: list[int]) -> None:
    *streams, report = descriptors
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if command:
        for descriptor in streams:
            os.close(descriptor)
        os.write(report, b"%d\n" % command)
        _, status = os.waitpid(command, 0)
        os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(report)
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["roost", *request["words"]]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    if "COVERAGE_PROCESS_START" in os.environ:
        import coverage

        coverage.process_startup()
