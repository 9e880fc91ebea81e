"""A host is killed while a thousand tasks run in a full store: when is it ready, and when do they all run again?"""

from __future__ import annotations

import shutil

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Series, row
from benchmarks.fill import Owner, fill
from benchmarks.load import Closed
from benchmarks.servers import Server
from benchmarks.stats import AtMost
from roost.identity.principal import LOCAL
from roost.protocol.types import TaskState

OURS = Owner(LOCAL.tenant, LOCAL.owner)
CONNECTIONS = 20
FOR_LONG = "1 0 3600"
"""The message of a task that emits one piece after an hour."""
LOOK_S = 0.02


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("restart")
    running, count = (100, 1_000) if bench.quick else (1000, 100_000)
    bench.say(f"  writing {count - running:,} tasks that have ended")
    fill(folder / "full", count - running, TaskState.COMPLETED, lambda _: OURS, OURS, bench.say)
    ready: list[float] = []
    again: list[float] = []
    for number, _ in enumerate(bench.each_round()):
        killed = f"killed-{number}"
        shutil.copytree(folder / "full", folder / killed)  # a task that was killed three times is not tried again
        with servers.roost(folder, killed) as server:
            path, each = server.base + "/message:send", running // CONNECTIONS
            bench.load(Closed(server.port, path, FOR_LONG, CONNECTIONS, requests=each, at_once=True))
            _run_after(server, running)
            server.kill()
        with servers.roost(folder, killed) as server:
            ready.append(server.ready_after())
            again.append(_run_after(server, running))
            server.kill()
        shutil.rmtree(folder / killed, ignore_errors=True)  # the writer of the killed host may be closing its files
        bench.say(f"    ready after {ready[-1]:.2f} s, {running:,} tasks run again after {again[-1]:.2f} s")
    what = f"killed with {count:,} tasks, {running:,} of them running"
    return Outcome(
        [row(f"{what}: restart to ready", AtMost(3, "s"), ready, unit="s")],
        [Series(f"{what}: restart until those run again", "Roost", "s", again)],
    )


def _run_after(server: Server, count: int) -> float:
    """Return the seconds from the start of the process until `count` tasks run."""
    running = f'roost_runs{{agent="bench",phase="running"}} {count}.0\n'.encode()
    return server.after(lambda: running in server.get("/metrics")[1], LOOK_S)
