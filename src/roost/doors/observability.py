"""/healthz, /readyz and /metrics for orchestrators and operators. Nothing here shows what agents say."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from roost.doors.access import Access
from roost.doors.admission import OBSERVABILITY
from roost.doors.context import Context
from roost.doors.counters import LOOP_LAG, REFUSED, RequestCounts
from roost.doors.door import PUBLIC, Describe, Door, Route, require_method
from roost.doors.errors import rest_error
from roost.doors.http import Connection, Request, Response, respond
from roost.doors.openapi_components import JSON
from roost.doors.openapi_doors import page
from roost.doors.openapi_schemas import HealthResponse
from roost.engine.engine import Engine
from roost.engine.probe import PROBE_S
from roost.engine.stats import BUCKETS
from roost.engine.store_types import StoreMisplaced, StoreUnavailable
from roost.fleet.registry import Registry
from roost.identity.scopes import ADMIN, METRICS
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError

log = logging.getLogger("roost.doors")

FAILED_LATELY_S = 3.0
REPEATS = {
    "hit": "aiwg_idempotency_hit",
    "miss": "aiwg_idempotency_misses",
    "collision": "aiwg_idempotency_collisions",
    "eviction": "aiwg_idempotency_evictions",
}
"""The names that agentic-sandbox gave these metrics."""
READY = ("/readyz", "/ready")
PATHS = frozenset({"/healthz", "/health", "/metrics", *READY})


class Observability:
    """Collects the figures of the engine and the doors."""

    def __init__(self, engine: Engine, agents: Registry, requests: RequestCounts, access: Access, version: str) -> None:
        self.engine = engine
        self.agents = agents
        self.access = access
        self.requests = requests
        self.version = version
        self.registry = CollectorRegistry()
        self.registry.register(self)

    async def readiness(self) -> Response:
        try:
            await self.engine.probe()
        except TimeoutError:
            return Response(503, encode({"status": "not ready", "store": f"does not answer within {PROBE_S:g} s"}))
        except StoreMisplaced as error:
            log.error("not ready: %s", error)
            return Response(503, encode({"status": "not ready", "store": str(error)}))
        except StoreUnavailable as error:
            log.warning("not ready, the store cannot write: %s", error)
            why = str(error) if self.access.open else "see the log"  # it may name files and servers
            return Response(503, encode({"status": "not ready", "store": f"cannot write: {why}"}))
        if time.monotonic() - self.engine.committer.failed_at < FAILED_LATELY_S:
            return Response(503, encode({"status": "not ready", "store": "refused a commit a moment ago: see the log"}))
        if not self.engine.worker.has_lease:
            return Response(503, encode({"status": "not ready", "lease": "lost; this host is trying to get it back"}))
        if self.engine.disk.low:
            return Response(503, encode({"status": "not ready", "disk": "nearly full: no new tasks"}))
        if not self.engine.accepting:
            return Response(503, encode({"status": "not ready", "host": "shutting down"}))
        agents = len(self.agents)
        return Response(200, encode({"status": "ready", "store": self.engine.store_figures().name, "agents": agents}))

    def metrics(self) -> Response:
        return Response(200, generate_latest(self.registry), CONTENT_TYPE_LATEST.encode())

    def collect(self) -> Iterator[Metric]:
        stats, runner = self.engine.stats, self.engine.runner
        info = GaugeMetricFamily("roost_info", "The release", labels=["version", "store"])
        info.add_metric([self.version, self.engine.store_figures().name], 1)
        yield info
        requests = CounterMetricFamily("roost_http_requests", "Requests answered", labels=["route", "method", "status"])
        for (route, method, status), count in self.requests.counts.items():
            requests.add_metric([route, method, str(status)], count)
        yield requests
        tasks = CounterMetricFamily("roost_tasks", "Tasks that entered a state", labels=["agent", "state"])
        for (agent, state), count in stats.transitions.items():
            tasks.add_metric([agent, state.removeprefix("TASK_STATE_").lower()], count)
        yield tasks
        running = GaugeMetricFamily("roost_runs", "Agent runs now", labels=["agent", "phase"])
        for agent, queue in runner.queues.items():
            running.add_metric([agent, "running"], len(queue.running))
            running.add_metric([agent, "waiting"], queue.waiting)
        yield running
        yield CounterMetricFamily("roost_entries", "Journal entries committed", value=stats.entries)
        yield CounterMetricFamily(
            "roost_commit_failures", "Commits that the store refused", value=stats.commit_failures
        )
        yield GaugeMetricFamily(
            "roost_loop_lag_seconds",
            "The longest time in the last minute or two in which nobody was answered",
            value=LOOP_LAG.longest(time.monotonic()),
        )
        yield GaugeMetricFamily("roost_open_streams", "Streams open now", value=stats.streams)
        yield GaugeMetricFamily("roost_live_tasks", "Tasks held in memory now", value=len(self.engine.lives))
        yield GaugeMetricFamily(
            "roost_unsent_bytes", "Large responses in memory for their clients", value=self.engine.bodies.budget.used
        )
        yield self._commit_seconds()
        yield from self._durability()
        yield from self._pushes()
        yield from self._refusals()

    def _refusals(self) -> Iterator[Metric]:
        credentials = CounterMetricFamily("roost_auth_refusals", "Callers that were refused", labels=["reason"])
        for reason, count in self.access.refusals.items():
            credentials.add_metric([reason], count)
        yield credentials
        quotas = CounterMetricFamily("roost_quota_refusals", "Requests over a quota", labels=["kind", "quota"])
        for (kind, quota), count in self.engine.meter.refusals.items():
            quotas.add_metric([kind, quota], count)
        yield quotas
        early = CounterMetricFamily(
            "roost_connection_refusals", "Connections that the server ended before a request was read", labels=["kind"]
        )
        for what, count in REFUSED.items():
            early.add_metric([what], count)
        yield early

    def _pushes(self) -> Iterator[Metric]:
        stats = self.engine.stats
        calls = CounterMetricFamily(
            "roost_push_deliveries", "Calls to webhooks, and events given up", labels=["outcome"]
        )
        for outcome, count in stats.pushes.items():
            calls.add_metric([outcome], count)
        yield calls
        yield GaugeMetricFamily(
            "roost_push_outbox", "Webhooks of active tasks, or with events", value=stats.push_outbox
        )
        yield GaugeMetricFamily("roost_push_dead_letters", "Events no webhook accepted", value=stats.push_dead)

    def _durability(self) -> Iterator[Metric]:
        stats, store = self.engine.stats, self.engine.store_figures()
        held = self.engine.worker.has_lease
        yield GaugeMetricFamily("roost_lease_held", "Whether this host may run tasks", value=held)
        yield CounterMetricFamily("roost_leases_lost", "Leases that expired", value=stats.leases_lost)
        adopted = CounterMetricFamily("roost_recoveries", "Tasks taken over from other workers", labels=["reason"])
        for reason, count in stats.adopted.items():
            adopted.add_metric([reason], count)
        yield adopted
        for outcome, name in REPEATS.items():
            yield CounterMetricFamily(
                name, f"Messages with an idempotency key: {outcome}", value=stats.repeats[outcome]
            )
        yield CounterMetricFamily("roost_pruned_tasks", "Tasks deleted by retention", value=stats.pruned)
        size = GaugeMetricFamily("roost_stored_bytes", "Bytes kept for an agent's tasks, about", labels=["agent"])
        tasks = GaugeMetricFamily("roost_stored_tasks", "Tasks kept, about", labels=["agent"])
        for kept in stats.kept:
            size.add_metric([kept.name], kept.size)
            tasks.add_metric([kept.name], kept.tasks)
        yield size
        yield tasks
        wal, free, oldest = store.wal_bytes, store.free_bytes, stats.oldest_ms
        if wal is not None:
            yield GaugeMetricFamily("roost_wal_bytes", "Size of the write-ahead log", value=wal)
        if free is not None:
            yield GaugeMetricFamily("roost_free_bytes", "Free space where the journal is", value=free)
        if oldest is not None:
            yield GaugeMetricFamily(
                "roost_oldest_task_seconds", "Age of the oldest task", value=time.time() - oldest / 1000
            )

    def _commit_seconds(self) -> Metric:
        found = self.engine.stats.commit_seconds
        total, buckets = 0, []
        for bound, count in zip((*(str(b) for b in BUCKETS), "+Inf"), found.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(
            "roost_commit_seconds", "From handing a group to the store until it is on disk", buckets, found.sum
        )


def _health(name: str, *more: str) -> Describe:
    return page(name, {JSON: HealthResponse}, *more)


class ObservabilityDoor(Door):
    def __init__(self, context: Context, observability: Observability, *, open_metrics: bool) -> None:
        self.context = context
        self.observability = observability
        self.open_metrics = open_metrics

    def routes(self) -> Sequence[Route]:
        metrics = PUBLIC if self.open_metrics else f"{METRICS} {ADMIN}"
        return [
            Route("GET", "/healthz", "Report that the process is alive", PUBLIC, _health("GetHealthz")),
            Route("GET", "/health", "The same", PUBLIC, _health("GetHealth")),
            Route(
                "GET",
                "/readyz",
                "Report whether the host can do its work, and if not, why",
                PUBLIC,
                _health("GetReadyz", "503"),
            ),
            Route("GET", "/ready", "The same", PUBLIC, _health("GetReady", "503")),
            Route("GET", "/metrics", "Metrics as Prometheus text", metrics, page("GetMetrics", {"text/plain": None})),
        ]

    def claims(self, request: Request) -> bool:
        return request.path in PATHS

    def error(self, request: Connection, error: A2AError) -> Response:
        return rest_error(request, error)

    async def serve(self, request: Request) -> None:
        request.route = request.path
        require_method(request, "GET")
        if request.path == "/metrics":
            await respond(request, await self._metrics(request))
        elif request.path in READY:
            await respond(request, await self.observability.readiness())
        else:
            await respond(request, Response(200, b'{"status":"alive"}'))

    async def _metrics(self, request: Request) -> Response:
        access = self.context.access
        if not (access.open or self.open_metrics):
            await access.for_scopes(request, METRICS, ADMIN)
        self.context.admission.count_surface(OBSERVABILITY)
        return self.observability.metrics()
