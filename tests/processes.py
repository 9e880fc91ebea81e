"""A real host in a process of its own, and the command line as a user has it.

with running(FLEET, data=tmp_path / "data") as server:
    roost("send", "hello", "you", url=server.url)

A process is forked from one that has imported everything (see `forkserver`), and preloaded $LD_PRELOAD. With `fresh` it
is a new interpreter, for what happens before the command begins: how it is installed and started.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import httpx

from tests.forkserver import ForkedProcess, ForkServer
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
FLEET = ROOT / "examples" / "fleet"


SERVES = "  Try it:\n    curl"
"""The end of what a host says when it serves."""
_BANNER = re.compile(r"Roost serves \d+ agents? at (http\S+)/agents/")
_MAIN = "from roost.cli.main import main; main()"
_MEASURED = f"import coverage; coverage.process_startup(); {_MAIN}"

Process = subprocess.Popen[str] | ForkedProcess


class Server:
    """A host that has said that it serves. `url` is its base, without a slash at the end."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.url = ""
        self._lines: list[str] = []
        self._ended = False
        self._told = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def stderr(self) -> str:
        """All that it has said so far; after `kill` and `stop`, all that it said."""
        return "".join(self._lines)

    def send(self, agent: str, text: str, *, task: str = "", context: str = "", wait: bool = True) -> dict[str, Any]:
        """Post a message. The task as it is when it has nothing left to do, or at once without `wait`."""
        message = {
            "messageId": str(uuid.uuid4()),
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            "taskId": task,
            "contextId": context,
        }
        answer = httpx.post(
            f"{self.url}/agents/{agent}/message:send",
            json={"message": message, "configuration": {"returnImmediately": not wait}},
            headers={"A2A-Version": "1.0"},
            timeout=PATIENCE_S,
            verify=False,  # loading certificates takes longer than the request
        )
        sent: dict[str, Any] = answer.raise_for_status().json()["task"]
        return sent

    def wait_said(self, text: str, times: int = 1) -> None:
        """Wait until it has said so on stderr."""
        with self._told:
            self._told.wait_for(lambda: self._ended or self.stderr.count(text) >= times, PATIENCE_S)
        assert self.stderr.count(text) >= times, f"the host did not say {text!r}; it said:\n{self.stderr}"

    def kill(self) -> None:
        """Send SIGKILL to the host alone, like a crash. Nothing happens if it is gone."""
        self.process.kill()
        self._gone()

    def stop(self) -> int:
        """Send SIGTERM, like an operator, and return the exit code."""
        self.process.terminate()
        return self._gone()

    def _gone(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self._tell(line)
        with self._told:
            self._ended = True
            self._told.notify_all()

    def _tell(self, line: str) -> None:
        with self._told:
            self._lines.append(line)
            found = _BANNER.search(line)
            self.url = found.group(1) if found else self.url
            self._told.notify_all()


@contextmanager
def running(
    *sources: str | Path,
    data: Path | None = None,
    store: tuple[str, ...] = (),
    port: int = 0,
    args: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    fresh: bool = False,
) -> Iterator[Server]:
    """Serve the sources until the block ends, however it ends. Without `data` or `store` nothing is kept on disk.

    Start again with the same `data` and `port=server.port` for a host that comes back after a crash.
    """
    place = store or (("--memory",) if data is None else ("--data", str(data)))
    words = ("serve", *map(str, sources), "--port", str(port), *place, *args)
    process = _start(*words, env=env, cwd=cwd, fresh=fresh, stderr=subprocess.PIPE, start_new_session=True)
    server = Server(process)
    try:
        server.wait_said(SERVES)
        yield server
        if process.poll() is None:
            server.stop()
    finally:
        _kill_all(process)
        server.kill()


def _kill_all(process: Process) -> None:
    """The host and what it started: they share its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def roost(
    *words: str | Path,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with no terminal and nothing on stdin."""
    given = {**(env or {}), **({"ROOST_URL": url} if url else {})}
    command = tuple(map(str, words))
    with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        process = _start(*command, env=given, cwd=cwd, fresh=fresh, stdout=stdout.fileno(), stderr=stderr.fileno())
        try:
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(command, code, stdout.read(), stderr.read())


@contextmanager
def begun(
    *words: str,
    url: str,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    fresh: bool = False,
) -> Iterator[Process]:
    """A command that goes on while the test does things; killed at the end of the block, or if it takes too long."""
    streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    with _start(*words, env={"ROOST_URL": url}, fresh=fresh, **streams) as process:
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def _start(
    *words: str,
    env: Mapping[str, str] | None,
    cwd: Path = ROOT,
    fresh: bool,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    start_new_session: bool = False,
) -> Process:
    streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    if not fresh:
        whole = environment(env)
        server = _fork_server(whole.get("LD_PRELOAD", ""))
        return server.start(words, env=whole, cwd=cwd, start_new_session=start_new_session, **streams)
    return subprocess.Popen(
        roost_command(*words),
        text=True,
        env=environment(env),
        cwd=cwd,
        start_new_session=start_new_session,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job inherits "ignore"
        **streams,
    )


@cache
def _fork_server(preload: str) -> ForkServer:
    return ForkServer(ROOT, environment({"LD_PRELOAD": preload}))


def finish(process: Process) -> tuple[str, str]:
    """Return the rest of stdout and stderr. `communicate` would lose what `readline` has read ahead."""
    assert process.stdout is not None
    assert process.stderr is not None
    left = process.stdout.read(), process.stderr.read()
    process.wait()
    return left


def roost_command(*words: str) -> list[str]:
    return [sys.executable, "-c", _MEASURED if _measuring() else _MAIN, *words]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what would change how a command behaves."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ROOST_") and name not in ("COLUMNS", "FORCE_COLOR")
    }
    if _measuring():
        kept |= {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"), "COVERAGE_FILE": str(ROOT / ".coverage")}
    return {**kept, "PYTHONUTF8": "1", **(extra or {})}


def _measuring() -> bool:
    return "COVERAGE_RUN" in os.environ
