"""One round: hosts on a store, clients, faults, the time to settle, and the verdict."""

from __future__ import annotations

import asyncio
import re
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
from chaos.checker import Verdict, Violation, check
from chaos.clients import Load, patient_plan
from chaos.faults import FaultInjector, schedule
from chaos.fleet_client import Counts, FleetClient
from chaos.history import History
from chaos.hostile import HostileClient
from chaos.proxy import Proxy
from chaos.replicas import Replica, ReplicaFailed, free_ports
from chaos.webhooks import Receiver

AGENTS = "chaos/agents.py"
STORES = ("sqlite", "postgres", "postgres+nats")
REPLICAS = "ABC"
ATTACKED = "AB"
ATTACK_REQUESTS, ATTACK_S = 15, 85.0
ATTACK_CLIENTS = 12
LEASES_LOST = re.compile(r"^roost_leases_lost_total (\S+)$", re.MULTILINE)
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
    store: str, kills: int, seconds: float, seed: int, folder: Path, log: Callable[[str], None], *, hostile: bool = True
) -> Round:
    """Inject faults under load until the kills are done or the time is over, let everything settle, and check it.

    With `hostile`, a client sends requests meanwhile that are made to cost others something.
    """
    history = History()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(Receiver(history, Random(f"{seed} {store} webhooks")))
        deployment = await stack.enter_async_context(_deployed(store, folder, REPLICAS))
        fleet = FleetClient([replica.url for replica in deployment.replicas], history)
        await stack.enter_async_context(fleet.http)
        load = Load(f"{store} {seed}", seed, fleet, receiver.url, history)
        clients = asyncio.create_task(load.run(CLIENTS[store]))
        attacker = HostileClient(fleet.urls, Random(f"{seed} {store} hostile"), history, fleet.counts)
        await stack.enter_async_context(attacker.http)
        attacking = asyncio.create_task(attacker.run()) if hostile else None
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
        load.running = attacker.running = False
        if attacking is not None:
            await attacking
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


async def run_attack(
    requests: int, seconds: float, seed: int, folder: Path, log: Callable[[str], None], store: str = "postgres"
) -> Round:
    """Send hostile requests to two replicas while tasks of others run for as long: none may fail, no lease be lost.

    There are no faults, so that also a task that ends FAILED for the death of its host is a violation.
    """
    history = History()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    async with AsyncExitStack() as stack:
        deployment = await stack.enter_async_context(_deployed(store, folder, ATTACKED))
        receiver = await stack.enter_async_context(Receiver(history, Random(seed)))
        fleet = FleetClient([replica.url for replica in deployment.replicas], history)
        await stack.enter_async_context(fleet.http)
        load = Load(f"attack {seed}", seed, fleet, receiver.url, history, patient_plan(seconds))
        clients = asyncio.create_task(load.run(ATTACK_CLIENTS))
        attacker = HostileClient(fleet.urls, Random(f"{seed} attack"), history, fleet.counts)
        await stack.enter_async_context(attacker.http)
        await _while_running(clients, attacker.attack(requests, seconds))
        log(f"{time.monotonic() - begun:.0f} s: {requests} requests are sent, {fleet.counts.tasks} tasks have begun")
        quiet = time.monotonic()
        fleet.deadline = quiet + SETTLE_S + 2 * seconds
        load.running = False
        await clients
        settled_s = time.monotonic() - quiet
        await audit(fleet, Random(seed), receiver, history)
        lost = {replica.name: await _leases_lost(fleet, replica) for replica in deployment.replicas}
        await _stop(deployment.replicas, history)
        tracebacks = Counter(text for replica in deployment.replicas for text in replica.tracebacks())
    history.hosts += [f"{name} lost its lease {count:g} times" for name, count in lost.items() if count]
    verdict = check(history)
    if verdict.given_up:
        what = f"{verdict.given_up} tasks of others ended FAILED, as if their host had died"
        verdict.violations.append(Violation("state", "", what))
    if verdict.violations:
        evidence.write(folder / "evidence", history, verdict.violations)
    counts, seconds = fleet.counts, time.monotonic() - begun
    return Round(store, seed, seconds, settled_s, {}, counts, 0, 0, dict(tracebacks), verdict)


async def _leases_lost(fleet: FleetClient, replica: Replica) -> float:
    found = LEASES_LOST.search((await fleet.http.get(f"{replica.url}/metrics")).raise_for_status().text)
    return float(found.group(1)) if found else 0.0


@asynccontextmanager
async def _deployed(store: str, folder: Path, names: str) -> AsyncIterator[Deployment]:
    """Run the hosts of a round and the services that they need."""
    async with AsyncExitStack() as stack:
        deployment = await _deploy(store, folder, stack, names)
        for replica in deployment.replicas:
            stack.push_async_callback(replica.close)
            replica.start()
        for replica in deployment.replicas:
            await replica.wait()
        yield deployment


async def _deploy(store: str, folder: Path, stack: AsyncExitStack, names: str) -> Deployment:
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
    proxies = [await stack.enter_async_context(Proxy(server.port)) for _ in names]
    replicas = []
    for name, port, proxy in zip(names, free_ports(len(names)), proxies, strict=True):
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
