"""ListTasks in a full store: the first page, and the last page of an owner who has a tenth of all tasks."""

from __future__ import annotations

import base64
import json
import time

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Row, Series, WrongAnswer, row
from benchmarks.fill import Filled, Owner, fill
from benchmarks.load import Closed
from benchmarks.servers import Server
from benchmarks.stats import AtMost
from roost.identity.principal import LOCAL
from roost.protocol.types import TaskState

PAGE = 50
REQUESTS = 200
OURS = Owner(LOCAL.tenant, LOCAL.owner)


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("listing")
    count = 5_000 if bench.quick else 1_000_000
    bench.say(f"  writing {count:,} tasks")
    started = time.perf_counter()
    ours = fill(folder / "journal", count, TaskState.COMPLETED, _owner, OURS, bench.say)
    bench.say(f"    in {time.perf_counter() - started:.0f} s")
    pages = {"first": f"/tasks?pageSize={PAGE}", "last": f"/tasks?pageSize={PAGE}&pageToken={_token(ours[PAGE])}"}
    p50: dict[str, list[float]] = {name: [] for name in pages}
    p99: dict[str, list[float]] = {name: [] for name in pages}
    with servers.roost(folder) as server:
        _check(server, pages["first"], ours[-PAGE:], ends=False)
        _check(server, pages["last"], ours[:PAGE], ends=True)
        for _ in bench.each_round():
            for name, path in pages.items():
                result = bench.load(Closed(server.port, server.base + path, connections=1, requests=REQUESTS))
                p50[name].append(result.p50_ms)
                p99[name].append(result.p99_ms)
                bench.say(f"    {name} page: p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms")
    rows: list[Row] = []
    series: list[Series] = []
    for name in pages:
        what = f"ListTasks, {name} page, at {count:,} tasks"
        rows.append(row(f"{what}: p99", AtMost(20, "ms"), p99[name], unit="ms"))
        series.append(Series(f"{what}: p50", "Roost", "ms", p50[name]))
    return Outcome(rows, series)


def _owner(number: int) -> Owner:
    return OURS if number % 10 == 0 else Owner(LOCAL.tenant, f"bench:user-{number // 100}")


def _token(task: Filled) -> str:
    """Return the token that ListTasks returns with the page that ends at this task."""
    return base64.urlsafe_b64encode(f"{task.status_ms}:{task.id}".encode()).decode().rstrip("=")


def _check(server: Server, path: str, expected: list[Filled], *, ends: bool) -> None:
    status, body = server.get(server.base + path)
    answer = json.loads(body)
    if status != 200 or [task["id"] for task in answer["tasks"]] != [task.id for task in reversed(expected)]:
        raise WrongAnswer(f"{path} is not the page that it should be: {status} {body[:300]!r}")
    if ends != (answer["nextPageToken"] == ""):
        raise WrongAnswer(f"{path}: nextPageToken is {answer['nextPageToken']!r}")
