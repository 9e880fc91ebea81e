"""The cost of authenticating a caller, and of serving a signed card."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

from benchmarks import servers
from benchmarks.bench import Bench, Outcome, Series, Stopwatch, ratios, row
from benchmarks.stats import AtLeast, AtMost, NoBar
from roost.doors.access import Access, AccessRules
from roost.doors.http import RequestHead
from roost.engine.hosted import AgentLimits, Profile
from roost.identity.audit import AuditLog
from roost.identity.scopes import SCHEMES
from roost.identity.token_cache import TokenCache
from roost.identity.tokens import ISSUER, TokenRequest, make_token
from roost.stores.memory import MemoryStore

SEND = "/message:send"
CARD = "/.well-known/agent-card.json"
CHECKS = 20_000


def run(bench: Bench) -> Outcome:
    folder = bench.sub_folder("access")
    secret = make_token(TokenRequest("bench", ["agent:*"])).secret
    with ExitStack() as stack:
        opened = stack.enter_context(servers.roost(folder))
        closed = stack.enter_context(servers.roost_with_token(folder, secret))
        stub = stack.enter_context(servers.stub(folder))
        size = len(closed.get(closed.base + CARD)[1])
        sends: dict[str, list[float]] = {opened.name: [], closed.name: []}
        cpu: dict[str, list[float]] = {opened.name: [], closed.name: []}
        cards: dict[str, list[float]] = {closed.name: [], stub.name: []}
        checks: list[float] = []
        places = {closed.name: CARD, stub.name: f"/{size}"}
        for server in (opened, closed):
            bench.warm(server, SEND, "1", server.token)
        for _ in bench.each_round():
            for server in (opened, closed):
                with Stopwatch(server) as watch:
                    result = bench.closed(server, SEND, "1", token=server.token)
                sends[server.name].append(result.rate)
                cpu[server.name].append(watch.cpu_s / result.timed * 1e6)
                bench.say(f"    {server.name:12} {result.rate:9,.0f} sends/s, {cpu[server.name][-1]:,.0f} us CPU each")
            for server in (closed, stub):
                result = bench.closed(server, places[server.name])
                cards[server.name].append(result.rate)
                bench.say(f"    {server.name:12} {result.rate:9,.0f} cards/s of {size} bytes")
            checks.append(asyncio.run(check_us(secret)))
            bench.say(f"    a check      {checks[-1]:9.1f} us")
    shares = ratios(cards[closed.name], cards[stub.name])
    both = (opened, closed)
    return Outcome(
        [
            row("check of a bearer token, share of a send's CPU time", AtMost(0.1), ratios(checks, cpu[opened.name])),
            row("authenticated message:send, ratio to open", NoBar(), ratios(sends[closed.name], sends[opened.name])),
            row("signed card, share of the no-engine limit", AtLeast(0.5, 0.8), shares),
        ],
        [Series("check of a bearer token", "Roost", "us", checks, drawn=False)]
        + [Series("message:send, open or with a token", each.label, "/s", sends[each.name]) for each in both]
        + [Series("message:send, CPU, open or with a token", each.label, "us", cpu[each.name]) for each in both]
        + [Series("agent card", each.label, "/s", cards[each.name]) for each in (closed, stub)],
    )


async def check_us(secret: str) -> float:
    """Return the microseconds from a request's headers to the principal that may call the agent."""
    store = MemoryStore()
    await store.add_token(make_token(TokenRequest("bench", ["agent:*"]), secret).token)
    roster = TokenCache(store, whole_tenant=False)
    await roster.refresh()
    rules = AccessRules(True, frozenset(SCHEMES), (), (), False, 20, False)
    access = Access(roster, rules, AuditLog(store), None)
    profile = Profile(
        id="bench",
        name="bench",
        description="",
        version="1",
        skills=[],
        input_modes=[],
        output_modes=[],
        extensions=[],
        provider=None,
        documentation_url=None,
        icon_url=None,
        streaming=True,
        direct=False,
        parallel=False,
        resume=True,
        announce=True,
        limits=AgentLimits(),
    )
    headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {secret}".encode()), (b"a2a-version", b"1.0")]
    request = RequestHead("POST", "/", headers, None, None)
    principal = await access.caller(request, profile)
    assert principal.issuer == ISSUER
    start = time.perf_counter()
    for _ in range(CHECKS):
        access.check_agent(request, await access.caller(request, profile), profile.id, profile)
    return (time.perf_counter() - start) / CHECKS * 1e6
