"""A host under normal load, and what is measured of it: the waits of its other callers, and its memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

import msgspec

from benchmarks.hostile.probe import ProbeJob, Waits
from benchmarks.hostile.senders import V1, call
from benchmarks.servers import GRPC_READY, HERE, ROOT, Server

AGENTS = ("benchmarks/agents.py", "benchmarks/hostile/agents.py")
PROBES = {"healthz": 0.004, "card": 0.01, "send": 0.05, "grpc": 0.01}
LOAD = {"send": 0.2, "get": 0.1, "list": 0.5, "card": 0.2, "stream": 0.0, "grpc": 0.2}
"""The normal load, about fifteen requests in a second beside an open stream; it is measured too."""
SAMPLE_S = 0.05
MARK_S = 200.0


class Memory:
    """Samples the resident memory of a process and of all that it started, in megabytes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = 0.0
        self.running = True
        self.thread = threading.Thread(target=self._sample, daemon=True)
        self.thread.start()

    def now(self) -> float:
        return sum(map(_rss_mb, tree(self.pid)))

    def restart(self) -> float:
        """Forget the peak and return the memory of now."""
        self.peak = self.now()
        return self.peak

    def stop(self) -> None:
        self.running = False
        self.thread.join()

    def _sample(self) -> None:
        while self.running:
            self.peak = max(self.peak, self.now())
            time.sleep(SAMPLE_S)


def tree(pid: int) -> list[int]:
    """Return the process and its descendants, whichever thread started them."""
    found = [pid]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(OSError):
                    found += map(int, (task / "children").read_text().split())
    return found


def _rss_mb(pid: int) -> float:
    with suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found.group(1)) / 1024 if found else 0.0
    return 0.0


class Prober:
    """A process that measures waits (probe.py)."""

    def __init__(self, job: ProbeJob) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hostile.probe", msgspec.json.encode(job).decode()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def mark(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def taken(self) -> dict[str, Waits]:
        """Return what was measured between the last two marks."""
        assert self.process.stdout is not None
        return msgspec.json.decode(self.process.stdout.readline(), type=dict[str, Waits])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Arena:
    """A host with its probes and its load, inside a `with` block."""

    def __init__(
        self,
        folder: Path,
        options: Sequence[str],
        *,
        admin_token: str,
        token: str = "",
    ) -> None:
        self.folder = folder
        self.admin_token = admin_token
        self.token = token
        """The token that callers must send; empty for an open host."""
        arguments = [str(HERE.command), "serve", *AGENTS, "--port", "0", "--grpc", "127.0.0.1:0", *options]
        arguments = ["env", f"ROOST_ADMIN_TOKEN={admin_token}", "PYTHONUNBUFFERED=1", *arguments]
        self.server = Server("hostile", "Roost", arguments, folder, base="/agents/bench", token=token)
        self.probers: list[Prober] = []

    def __enter__(self) -> Self:
        self.server.__enter__()
        assert self.server.process is not None
        self.pid = self.server.process.pid
        self.port = self.server.port
        self.grpc_port = self._grpc_port()
        self.memory = Memory(self.pid)
        try:
            self._probe()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _probe(self) -> None:
        """Start the probes and the load."""
        task_id = self.send_text("bench", "1")
        writer = next(iter(tree(self.pid)[1:]), 0)
        for probes in (PROBES, LOAD):
            if self.token:  # the probe of gRPC has no credential
                probes = {name: pause for name, pause in probes.items() if name != "grpc"}
            job = ProbeJob(self.port, self.grpc_port, self.pid, writer, probes, task_id, self.token)
            self.probers.append(Prober(job))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for prober in self.probers:
            prober.stop()
        self.memory.stop()
        self.server.__exit__(kind, error, trace)

    @property
    def alive(self) -> bool:
        return self.server.process is not None and self.server.process.poll() is None

    def waits(self) -> Mapping[str, Waits]:
        """Return the waits since the last call, by probe. Those of the load have a name of their own."""
        for prober in self.probers:
            prober.mark()
        found = [prober.taken() for prober in self.probers]
        return {**found[0], **{f"load {name}": waits for name, waits in found[1].items()}}

    def send_text(self, agent: str, text: str) -> str:
        """Send a message and return the id of its task."""
        message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        body = json.dumps({"message": message}).encode()
        headers = {**V1, **({"Authorization": f"Bearer {self.token}"} if self.token else {})}
        sent = call(self.port, "POST", f"/agents/{agent}/message:send", body, headers)
        if sent.status != "200":
            raise RuntimeError(f"{agent} answers {sent.short}")
        task_id: str = json.loads(sent.body)["task"]["id"]
        return task_id

    def _grpc_port(self) -> int:
        found = GRPC_READY.search(self.server.errors.read_text(errors="replace"))
        return int(found.group(1)) if found else 0
