"""Durable message:send on PostgreSQL: one replica, three replicas on the same database, and a2a-sdk on its own.

The load and the number of connections are the same for all; three replicas share the connections.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from tools.services import new_database, postgres

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Series, Stopwatch, ratios, row
from benchmarks.load import Closed
from benchmarks.servers import Server
from benchmarks.stats import NoBar

PATH = "/message:send"
REPLICAS = 3
CONNECTIONS = 24
LEAD_S = 1.0
"""The seconds before the measurement, after which slow answers come as often as they ever will."""


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("cluster")
    with ExitStack() as stack:
        database = stack.enter_context(postgres())
        stores = [new_database(database.url) for _ in range(3)]
        several = [servers.replica(folder, f"replica-{number}", stores[1]) for number in range(1, REPLICAS + 1)]
        subjects: dict[str, list[Server]] = {
            "Roost, 1 replica": [servers.replica(folder, "replica", stores[0])],
            f"Roost, {REPLICAS} replicas": several,
            "a2a-sdk": [servers.sdk_on_postgres(folder, stores[2])],
        }
        for server in (server for subject in subjects.values() for server in subject):
            stack.enter_context(server)
            bench.warm(server, PATH, "1")
        rates: dict[str, list[float]] = {name: [] for name in subjects}
        slowest: dict[str, list[float]] = {name: [] for name in subjects}
        cpu: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in bench.each_round():
            for name, (first, *others) in subjects.items():
                job = Closed(first.port, first.base + PATH, "1", CONNECTIONS, bench.seconds, lead_s=LEAD_S)
                job.replicas = [server.port for server in others]
                with Stopwatch(first, *others) as watch:
                    result = bench.load(job)
                rates[name].append(result.rate)
                slowest[name].append(result.p99_ms)
                cpu[name].append(watch.cpu_s / result.timed * 1e6)
                bench.say(
                    f"    {name:17} {result.rate:7,.0f} /s  p50 {result.p50_ms:.1f}, p99 {result.p99_ms:.1f} ms,"
                    f" {cpu[name][-1]:,.0f} us CPU each  (generator {result.busy:.0%} busy)"
                )
    what = f"message:send on PostgreSQL, {CONNECTIONS} connections"
    one, three, sdk = rates.values()
    cores = f"{os.cpu_count()} cores for the replicas, PostgreSQL and the load generator together"
    return Outcome(
        [
            row(f"{what}: one replica, ratio to a2a-sdk", NoBar(), ratios(one, sdk)),
            row(f"{what}: {REPLICAS} replicas, ratio to a2a-sdk", NoBar(), ratios(three, sdk)),
            row(f"{what}: {REPLICAS} replicas, ratio to one", NoBar(), ratios(three, one), note=cores),
        ],
        [Series(what, name, "/s", rates[name], drawn=False) for name in subjects]
        + [Series(f"{what}, p99", name, "ms", slowest[name], drawn=False) for name in subjects]
        + [Series(f"{what}, CPU time of the servers", name, "us", cpu[name], drawn=False) for name in subjects],
    )
