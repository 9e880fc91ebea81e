"""Many paused tasks should cost a host nothing but disk: its memory and its start-up time with and without them."""

from __future__ import annotations

import time

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Series, WrongAnswer, row
from benchmarks.fill import Owner, fill
from benchmarks.stats import AtMost
from roost.identity.principal import LOCAL
from roost.protocol.types import TaskState

TOUCHED = 100
OURS = Owner(LOCAL.tenant, LOCAL.owner)


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("paused")
    count = 1_000 if bench.quick else 100_000
    bench.say(f"  writing {count:,} paused tasks")
    started = time.perf_counter()
    tasks = fill(folder / "full", count, TaskState.INPUT_REQUIRED, lambda _: OURS, OURS, bench.say)
    bench.say(f"    in {time.perf_counter() - started:.0f} s")
    touched = [task.id for task in tasks[:: count // TOUCHED]]
    growth: list[float] = []
    ready: dict[str, list[float]] = {"empty": [], "full": []}
    for number in bench.each_round():
        empty_mb, empty_s = _start(bench, f"empty-{number}", touched, 404)
        full_mb, full_s = _start(bench, "full", touched, 200)
        growth.append(full_mb - empty_mb)
        ready["empty"].append(empty_s)
        ready["full"].append(full_s)
        bench.say(
            f"    RSS {empty_mb:.1f} MB on an empty store, {full_mb:.1f} MB on the full one;"
            f" ready after {empty_s:.2f} s and {full_s:.2f} s"
        )
    what = f"{count:,} paused tasks"
    return Outcome(
        [
            row(f"{what}: RSS growth", AtMost(200, "MB"), growth, unit="MB"),
            row(f"{what}: restart to ready", AtMost(3, "s"), ready["full"], unit="s"),
        ],
        [Series("start to ready", f"Roost, {name} store", "s", ready[name]) for name in ready],
    )


def _start(bench: Bench, data: str, touched: list[str], expected: int) -> tuple[float, float]:
    """Return the RSS in MB after some tasks were read, and the seconds until the host was ready."""
    with servers.roost(bench.folder / "paused", data) as server:
        ready_s = server.ready_after()
        for task_id in touched:
            status, body = server.get(f"{server.base}/tasks/{task_id}")
            if status != expected:
                raise WrongAnswer(f"GetTask: {status} {body[:300]!r}")
        return server.rss_mb(), ready_s
