"""`make cluster`: PostgreSQL, NATS and three replicas of the example fleet, until Ctrl-C.

A replica that ends by itself, or is killed, is started again: try `kill -9` on one while it works.
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
LOOK_S = 0.05
PR_SET_PDEATHSIG = 1


def dies_with_parent() -> None:
    """In a new process, before its program begins: it is killed when the one that started it is gone, however."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ClusterError(Exception):
    """A replica does not start; the message has what it said."""


class Replica:
    """One `roost serve`, started again whenever it has ended."""

    def __init__(self, name: str, port: int, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{name}.log"
        program = str(Path(sys.executable).with_name("roost"))
        self.command = [program, "serve", str(FLEET), "--port", str(port), *arguments]
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("ROOST_")}
        self.process: subprocess.Popen[bytes] | None = None
        self.begin = 0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.begin = log.tell()
            # A group of its own: Ctrl-C is for the cluster, which then stops its replicas.
            self.process = subprocess.Popen(  # our own program
                self.command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=dies_with_parent,
            )

    def wait(self) -> None:
        """Until it serves."""
        deadline = time.monotonic() + START_S
        while SERVES not in self._said():
            if self.ended() or time.monotonic() > deadline:
                raise ClusterError(f"replica {self.name} does not start:\n{self._said()[-2000:]}")
            time.sleep(LOOK_S)

    def ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def terminate(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def gone(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _said(self) -> str:
        with self.log.open("rb") as log:
            log.seek(self.begin)
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
                "in a third, cancel on C, or kill -9 the process of A and see the job go on elsewhere:",
                f"  TASK=$({roost} tasks job --url {c} | awk 'NR == 2 {{print $1}}')",
                f"  {roost} cancel $TASK --url {c}",
                "",
                "Ctrl-C stops it all; nothing is kept but the logs.",
            ]
        )

    def supervise(self) -> None:
        """Start again what has ended, for ever."""
        while True:
            for replica in self.replicas:
                if replica.ended():
                    _say(f"replica {replica.name} has ended; starting it again")
                    replica.start()
                    replica.wait()
            time.sleep(LOOK_S)


@contextmanager
def cluster(ports: Sequence[int], folder: Path) -> Iterator[Cluster]:
    """Three replicas that serve; stopped at the end, then NATS, then PostgreSQL."""
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
        replica.gone()


def ports_for(names: str = NAMES) -> list[int]:
    """8081 and on, or any that are free where one of those is not."""
    wanted = [FIRST_PORT + number for number in range(len(names))]
    try:
        return _bound(wanted)
    except OSError:
        return _bound([0] * len(names))


def _bound(ports: Sequence[int]) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in ports]
        for probe, port in zip(probes, ports, strict=True):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
        return [probe.getsockname()[1] for probe in probes]


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    parser.add_argument("--logs", type=Path, help="folder for the logs; a temporary one by default")
    parser.add_argument("--json", action="store_true", help="say where everything is as one line of JSON")
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
            _say("stopping")
    except KeyboardInterrupt:
        return 130  # before it was up
    except ClusterError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
