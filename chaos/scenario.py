"""One round: hosts on a store, clients, faults, the time to settle, and the verdict."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct
from tools.services import Nats, Postgres, nats, new_database, postgres

from chaos import evidence
from chaos.audit import SETTLE_S, audit
from chaos.checker import Verdict, check
from chaos.clients import Load
from chaos.faults import FaultInjector, schedule
from chaos.fleet_client import Counts, FleetClient
from chaos.history import History
from chaos.proxy import Proxy
from chaos.replicas import Replica, ReplicaFailed, free_ports
from chaos.webhooks import Receiver

AGENTS = "chaos/agents.py"
STORES = ("sqlite", "postgres", "postgres+nats")
REPLICAS = 3
CLIENTS = {"sqlite": 12, "postgres": 20, "postgres+nats": 20}
"""Clients on each store. There are more where tasks wait for the end of a lease."""
QUICK_RETRIES = ("--push-retry-s", "0.2")


class Round(Struct):
    store: str
    seed: int
    seconds: float
    settled_s: float
    """Seconds from the last fault until every client knew how its task ended."""
    harm: dict[str, int]
    """Injected faults by kind."""
    counts: Counts
    webhooks: int
    """Calls that the receiver accepted."""
    failed_starts: int
    """Hosts that exited before they served, and were restarted, as a supervisor does."""
    tracebacks: dict[str, int]
    """Tracebacks in the logs of the hosts, and how often each occurs. They are no violations, but worth a look."""
    verdict: Verdict


class Deployment(NamedTuple):
    replicas: list[Replica]
    proxies: list[Proxy]
    postgres: Postgres | None
    nats: Nats | None


async def run_round(
    store: str, kills: int, seconds: float, seed: int, folder: Path, log: Callable[[str], None]
) -> Round:
    """Inject faults under load until the kills are done or the time is over, let everything settle, and check it."""
    history = History()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(Receiver(history, Random(f"{seed} {store} webhooks")))
        deployment = await stack.enter_async_context(_deployed(store, folder))
        fleet = FleetClient([replica.url for replica in deployment.replicas], history)
        await stack.enter_async_context(fleet.http)
        load = Load(f"{store} {seed}", seed, fleet, receiver.url, history)
        clients = asyncio.create_task(load.run(CLIENTS[store]))
        injector = FaultInjector(
            deployment.replicas,
            deployment.proxies,
            deployment.postgres,
            deployment.nats,
            history,
            folder / "faults.log",
            log,
        )
        faults = schedule(Random(f"{seed} {store} harm"), store, kills)
        await _while_running(clients, injector.run(faults, seconds))
        log(f"{time.monotonic() - begun:.0f} s: all faults are injected; {fleet.counts.tasks} tasks so far. Settling")
        quiet = time.monotonic()
        fleet.deadline = quiet + SETTLE_S
        load.running = False
        await clients
        settled_s = time.monotonic() - quiet
        log(f"every client is done after {settled_s:.1f} s. Reading {len(history.acknowledged)} tasks")
        await audit(fleet, Random(seed), receiver, history)
        await _stop(deployment.replicas, history)
        tracebacks = Counter(text for replica in deployment.replicas for text in replica.tracebacks())
        failed_starts = sum(replica.failed_starts for replica in deployment.replicas)
    steps = folder / "steps"
    history.steps = steps.read_text().splitlines() if steps.exists() else []
    verdict = check(history)
    if verdict.violations:
        evidence.write(folder / "evidence", history, verdict.violations)
    return Round(
        store,
        seed,
        time.monotonic() - begun,
        settled_s,
        dict(injector.counts),
        fleet.counts,
        sum(delivery.accepted for delivery in history.deliveries),
        failed_starts,
        dict(tracebacks),
        verdict,
    )


@asynccontextmanager
async def _deployed(store: str, folder: Path) -> AsyncIterator[Deployment]:
    """Run the hosts of a round and the services that they need."""
    async with AsyncExitStack() as stack:
        deployment = await _deploy(store, folder, stack)
        for replica in deployment.replicas:
            stack.push_async_callback(replica.close)
            replica.start()
        for replica in deployment.replicas:
            await replica.wait()
        yield deployment


async def _deploy(store: str, folder: Path, stack: AsyncExitStack) -> Deployment:
    env = {"CHAOS_STEPS": str(folder / "steps"), "PYTHONUTF8": "1"}
    common = [AGENTS, "--push-allow-cidrs", "127.0.0.0/8", *QUICK_RETRIES, "--log-format", "text"]
    if store == "sqlite":
        [port] = free_ports(1)
        arguments = [*common, "--data", str(folder / "data")]
        return Deployment([Replica("host", arguments, port, folder / "host.log", env)], [], None, None)
    server = stack.enter_context(postgres())
    url = new_database(server.url)
    bus = stack.enter_context(nats()) if store.endswith("nats") else None
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    proxies = [await stack.enter_async_context(Proxy(server.port)) for _ in range(REPLICAS)]
    replicas = []
    for name, port, proxy in zip("ABC", free_ports(REPLICAS), proxies, strict=True):
        place = urlsplit(url)
        through = place._replace(netloc=f"{place.username}@127.0.0.1:{proxy.port}").geturl()
        arguments = [*common, "--store", through, "--secret-file", str(secret)]
        arguments += ["--wake", bus.url] if bus is not None else []
        replicas.append(Replica(name, arguments, port, folder / f"{name}.log", env))
    return Deployment(replicas, proxies, server, bus)


async def _while_running(clients: asyncio.Task[None], faults: Coroutine[Any, Any, None]) -> None:
    """Inject the faults, and stop at once if the clients' own code fails."""
    injecting = asyncio.create_task(faults)
    await asyncio.wait([clients, injecting], return_when=asyncio.FIRST_COMPLETED)
    if not injecting.done():
        injecting.cancel()
        await clients
    await injecting


async def _stop(replicas: list[Replica], history: History) -> None:
    """Stop all hosts at the end, as an operator does."""
    for error in await asyncio.gather(*(replica.stop() for replica in replicas), return_exceptions=True):
        if isinstance(error, ReplicaFailed):
            history.hosts.append(str(error))
        elif error is not None:
            raise error
