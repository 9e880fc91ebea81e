"""`make cluster`: runs PostgreSQL, NATS and three replicas of the example fleet, until Ctrl-C.

A replica that exits or is killed is restarted: try `kill -9` on one while it works.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from tools.services import nats, new_database, postgres

ROOT = Path(__file__).resolve().parents[1]
FLEET = ROOT / "examples" / "fleet"
NAMES = "ABC"
FIRST_PORT = 8081
SERVES = "Roost serves"
START_S = 60.0
STOP_S = 20.0
POLL_S = 0.05
PR_SET_PDEATHSIG = 1


def kill_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that ends. Runs before the new program starts."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ClusterError(Exception):
    """A replica does not start. The message has the end of its log."""


class Replica:
    """One `roost serve` process, which is restarted whenever it has ended."""

    def __init__(self, name: str, port: int, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{name}.log"
        program = str(Path(sys.executable).with_name("roost"))
        self.command = [program, "serve", str(FLEET), "--port", str(port), *arguments]
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("ROOST_")}
        self.process: subprocess.Popen[bytes] | None = None
        self.log_offset = 0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.log_offset = log.tell()
            # Its own process group: Ctrl-C reaches only the cluster, which then stops its replicas.
            self.process = subprocess.Popen(  # our own program
                self.command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=kill_with_parent,
            )

    def wait(self) -> None:
        """Wait until it serves."""
        deadline = time.monotonic() + START_S
        while SERVES not in self._log_text():
            if self.ended() or time.monotonic() > deadline:
                raise ClusterError(f"replica {self.name} does not start:\n{self._log_text()[-2000:]}")
            time.sleep(POLL_S)

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def terminate(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def wait_stopped(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _log_text(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self.log_offset)
            return log.read().decode(errors="replace")


class Cluster:
    def __init__(self, replicas: list[Replica], store: str, wake: str, folder: Path) -> None:
        self.replicas = replicas
        self.store = store
        self.wake = wake
        self.folder = folder

    def as_json(self) -> str:
        replicas = [
            {"name": one.name, "url": one.url, "pid": one.process.pid if one.process else None} for one in self.replicas
        ]
        return json.dumps({"replicas": replicas, "store": self.store, "wake": self.wake, "logs": str(self.folder)})

    def as_text(self) -> str:
        a, b, c = (one.url for one in self.replicas)
        roost = ".venv/bin/roost"
        pids = [f"  {one.name}  {one.url}  process {one.process.pid if one.process else ''}" for one in self.replicas]
        return "\n".join(
            [
                "Three replicas of examples/fleet on one journal:",
                *pids,
                f"  PostgreSQL {self.store}",
                f"  NATS {self.wake}",
                f"  Logs in {self.folder}",
                "",
                "In a second terminal, send on A, watch on B:",
                f"  {roost} send job 600 --url {a} > /dev/null &",
                f"  TASK=$({roost} tasks job --url {b} | awk 'NR == 2 {{print $1}}')",
                f"  {roost} watch $TASK --url {b}",
                "In a third terminal, cancel on C, or kill -9 the process of A and see the job continue elsewhere:",
                f"  TASK=$({roost} tasks job --url {c} | awk 'NR == 2 {{print $1}}')",
                f"  {roost} cancel $TASK --url {c}",
                "",
                "Ctrl-C stops everything; only the logs are kept.",
            ]
        )

    def supervise(self) -> None:
        """Restart replicas that have ended, for ever."""
        while True:
            for replica in self.replicas:
                if replica.ended():
                    _log(f"replica {replica.name} has ended; restarting it")
                    replica.start()
                    replica.wait()
            time.sleep(POLL_S)


@contextmanager
def cluster(ports: Sequence[int], folder: Path) -> Iterator[Cluster]:
    """Run three replicas. At the end stop them, then NATS, then PostgreSQL."""
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        bus = stack.enter_context(nats())
        store = new_database(database.url)
        secret = folder / "secret"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(32))
        stack.callback(secret.unlink)
        arguments = ["--store", store, "--wake", bus.url, "--secret-file", str(secret)]
        replicas = [Replica(name, port, arguments, folder) for name, port in zip(NAMES, ports, strict=True)]
        stack.callback(_stop, replicas)
        for replica in replicas:
            replica.start()
        for replica in replicas:
            replica.wait()
        yield Cluster(replicas, store, bus.url, folder)


def _stop(replicas: Sequence[Replica]) -> None:
    for replica in replicas:
        replica.terminate()
    for replica in replicas:
        replica.wait_stopped()


def ports_for(names: str = NAMES) -> list[int]:
    """Return the ports from 8081 on, or any free ports if one of those is taken."""
    wanted = [FIRST_PORT + number for number in range(len(names))]
    try:
        return _free(wanted)
    except OSError:
        return _free([0] * len(names))


def _free(ports: Sequence[int]) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in ports]
        for probe, port in zip(probes, ports, strict=True):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        return [probe.getsockname()[1] for probe in probes]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    parser.add_argument("--logs", type=Path, help="folder for the logs; a temporary folder by default")
    parser.add_argument("--json", action="store_true", help="print all addresses as one line of JSON")
    options = parser.parse_args()
    folder = (options.logs or Path(tempfile.mkdtemp(prefix="roost-cluster-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)  # a background job inherits "ignore"
    try:
        with cluster(ports_for(), folder) as made:
            print(made.as_json() if options.json else made.as_text(), flush=True)
            with suppress(KeyboardInterrupt):
                made.supervise()
            _log("stopping")
    except KeyboardInterrupt:
        return 130  # interrupted before it was up
    except ClusterError as error:
        _log(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
