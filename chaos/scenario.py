"""One round: hosts on a store, clients, harm, rest, and the verdict."""

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
from chaos.door import Counts, Door
from chaos.harm import Harmer, schedule
from chaos.history import History
from chaos.proxy import Proxy
from chaos.replicas import Replica, ReplicaFailed, free_ports
from chaos.webhooks import Receiver

AGENTS = "chaos/agents.py"
STORES = ("sqlite", "postgres", "postgres+nats")
REPLICAS = 3
CLIENTS = {"sqlite": 12, "postgres": 20, "postgres+nats": 20}
"""More where tasks wait for the end of a lease."""
QUICK_RETRIES = ("--push-retry-s", "0.2")


class Round(Struct):
    store: str
    seed: int
    seconds: float
    settled_s: float
    """From the end of the harm until every client knew how its task ended."""
    harm: dict[str, int]
    counts: Counts
    webhooks: int
    """Calls that the receiver took."""
    failed_starts: int
    """Hosts that ended before they served, and were started again, as a supervisor does."""
    tracebacks: dict[str, int]
    """In the hosts' logs, and how often: no violations, but to be looked at."""
    verdict: Verdict


class Stage(NamedTuple):
    replicas: list[Replica]
    proxies: list[Proxy]
    postgres: Postgres | None
    nats: Nats | None


async def play(store: str, kills: int, seconds: float, seed: int, folder: Path, say: Callable[[str], None]) -> Round:
    """Do harm under load until so many kills are done or the time is over, then let everything settle and check it."""
    history = History()
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(Receiver(history, Random(f"{seed} {store} webhooks")))
        stage = await stack.enter_async_context(_on_stage(store, folder))
        door = Door([replica.url for replica in stage.replicas], history)
        await stack.enter_async_context(door.http)
        load = Load(f"{store} {seed}", seed, door, receiver.url, history)
        clients = asyncio.create_task(load.run(CLIENTS[store]))
        harmer = Harmer(stage.replicas, stage.proxies, stage.postgres, stage.nats, history, folder / "harm.log", say)
        harms = schedule(Random(f"{seed} {store} harm"), store, kills)
        await _while_running(clients, harmer.run(harms, seconds))
        say(f"{time.monotonic() - begun:.0f} s: the harm is done; {door.counts.tasks} tasks so far. Settling")
        quiet = time.monotonic()
        door.until = quiet + SETTLE_S
        load.going_on = False
        await clients
        settled_s = time.monotonic() - quiet
        say(f"every client is done after {settled_s:.1f} s. Reading {len(history.acknowledged)} tasks")
        await audit(door, Random(seed), receiver, history)
        await _stop(stage.replicas, history)
        tracebacks = Counter(text for replica in stage.replicas for text in replica.tracebacks())
        failed_starts = sum(replica.failed_starts for replica in stage.replicas)
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
        dict(harmer.done),
        door.counts,
        sum(delivery.accepted for delivery in history.deliveries),
        failed_starts,
        dict(tracebacks),
        verdict,
    )


@asynccontextmanager
async def _on_stage(store: str, folder: Path) -> AsyncIterator[Stage]:
    """The hosts of a scenario, serving, with what they stand on."""
    async with AsyncExitStack() as stack:
        made = await _built(store, folder, stack)
        for replica in made.replicas:
            stack.push_async_callback(replica.close)
            replica.start()
        for replica in made.replicas:
            await replica.wait()
        yield made


async def _built(store: str, folder: Path, stack: AsyncExitStack) -> Stage:
    env = {"CHAOS_STEPS": str(folder / "steps"), "PYTHONUTF8": "1"}
    common = [AGENTS, "--push-allow-cidrs", "127.0.0.0/8", *QUICK_RETRIES, "--log-format", "text"]
    if store == "sqlite":
        [port] = free_ports(1)
        arguments = [*common, "--data", str(folder / "data")]
        return Stage([Replica("host", arguments, port, folder / "host.log", env)], [], None, None)
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
    return Stage(replicas, proxies, server, bus)


async def _while_running(clients: asyncio.Task[None], harm: Coroutine[Any, Any, None]) -> None:
    """Do the harm, and stop at once if the clients' own code fails."""
    doing = asyncio.create_task(harm)
    await asyncio.wait([clients, doing], return_when=asyncio.FIRST_COMPLETED)
    if not doing.done():
        doing.cancel()
        await clients
    await doing


async def _stop(replicas: list[Replica], history: History) -> None:
    """All of them at the end, as an operator does."""
    for error in await asyncio.gather(*(replica.stop() for replica in replicas), return_exceptions=True):
        if isinstance(error, ReplicaFailed):
            history.hosts.append(str(error))
        elif error is not None:
            raise error
