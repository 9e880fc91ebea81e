"""Health, readiness and metrics: for operators, true, and bounded whatever the traffic is."""

from __future__ import annotations

import random
import string
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from roost import Agent
from roost._version import VERSION as RELEASE
from roost.doors.counters import LoopLag
from roost.doors.door import AGENT
from roost.engine.store_types import StoreUnavailable
from roost.host import Host
from roost.protocol.operations import BY_NAME
from roost.server.server import TICK_S
from roost.settings import Settings
from roost.stores.memory import MemoryStore
from tests.doors.wire import VERSION, Door, Rest, metrics, sending, streams
from tests.fuzz.hog import SECONDS
from tests.processes import Server, running
from tests.routes import all_routes
from tests.waiting import eventually

REQUESTS = "roost_http_requests_total"


def labels(series: dict[Any, float], name: str) -> set[frozenset[tuple[str, str]]]:
    return {found for metric, found in series if metric == name}


def value(http: httpx.Client, base: str, name: str, **labels: str) -> float:
    return metrics(http, base).get((name, frozenset(labels.items())), 0.0)


@pytest.mark.parametrize("path", ["/healthz", "/health"])
def test_a_host_that_lives_says_so(server: Server, http: httpx.Client, path: str) -> None:
    response = http.get(f"{server.url}{path}")
    assert (response.status_code, response.json()) == (200, {"status": "alive"})


@pytest.mark.parametrize("path", ["/readyz", "/ready"])
def test_a_host_that_can_write_says_that_it_is_ready(server: Server, http: httpx.Client, path: str) -> None:
    response = http.get(f"{server.url}{path}")
    assert response.status_code == 200
    ready = response.json()
    assert (ready["status"], ready["store"]) == ("ready", "sqlite")
    assert ready["agents"] == len(http.get(f"{server.url}/agents/").json()["agents"])


def test_probes_need_no_version_and_no_agent(server: Server, http: httpx.Client) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert http.get(f"{server.url}{path}").status_code == 200
        assert http.head(f"{server.url}{path}").status_code == 200


class _BrokenStore(MemoryStore):
    async def probe(self) -> None:
        raise StoreUnavailable("disk is full")


def _host(store: MemoryStore) -> Host:
    agent = Agent("one")
    agent.on_message(lambda task: "one")
    return Host([agent], Settings(), store)


async def _read(host: Host, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(host), base_url="http://localhost") as http:
        return await http.get(path)


async def test_a_host_that_cannot_write_lives_but_is_not_ready() -> None:
    host = _host(_BrokenStore())
    await host.start()
    try:
        ready = await _read(host, "/readyz")
        assert ready.status_code == 503
        assert ready.json() == {"status": "not ready", "store": "cannot write: disk is full"}
        assert (await _read(host, "/healthz")).status_code == 200
    finally:
        await host.close()


async def test_a_host_that_shuts_down_is_not_ready() -> None:
    host = _host(MemoryStore())
    await host.start()
    try:
        host.drain()
        ready = await _read(host, "/readyz")
        assert (ready.status_code, ready.json()["host"]) == (503, "shutting down")
        assert (await _read(host, "/healthz")).status_code == 200
    finally:
        await host.close()


def test_the_metrics_are_prometheus_text(server: Server, http: httpx.Client) -> None:
    response = http.get(f"{server.url}/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    kinds = {name: family.type for name, family in families.items()}
    assert (
        kinds.items()
        >= {
            "roost_info": "gauge",
            "roost_http_requests": "counter",
            "roost_tasks": "counter",
            "roost_runs": "gauge",
            "roost_entries": "counter",
            "roost_commit_failures": "counter",
            "roost_loop_lag_seconds": "gauge",
            "roost_open_streams": "gauge",
            "roost_commit_seconds": "histogram",
        }.items()
    )
    assert all(family.documentation for family in families.values())
    assert value(http, server.url, "roost_info", version=RELEASE, store="sqlite") == 1


def test_a_task_is_counted_in_every_state_that_it_enters(door: Door, server: Server, http: httpx.Client) -> None:
    def count(state: str) -> float:
        return value(http, server.url, "roost_tasks_total", agent="stream", state=state)

    states = ("submitted", "working", "completed")
    before = [count(state) for state in states]
    entries = value(http, server.url, "roost_entries_total")
    door.task("one two", "stream")
    assert [count(state) for state in states] == [number + 1 for number in before]
    # the message, SUBMITTED, WORKING, two words and COMPLETED
    assert value(http, server.url, "roost_entries_total") == entries + 6


def test_requests_are_counted_by_route_method_and_status(rest: Rest, server: Server, http: httpx.Client) -> None:
    def count(route: str, method: str, status: str) -> float:
        return value(http, server.url, REQUESTS, route=f"/agents/{{agent}}{route}", method=method, status=status)

    wanted = [("/message:send", "POST", "200"), ("/tasks/{id}", "GET", "200"), ("/tasks/{id}", "GET", "404")]
    before = [count(*labels) for labels in wanted]
    task = rest.task()
    rest.get(task["id"])
    rest.refused("GetTask", {"id": "unknown"})
    assert [count(*labels) for labels in wanted] == [number + 1 for number in before]


def test_json_rpc_is_counted_by_its_method(server: Server, http: httpx.Client, rpc: Door) -> None:
    def count(method: str) -> float:
        route = f"/agents/{{agent}}/ {method}".rstrip()
        return value(http, server.url, REQUESTS, route=route, method="POST", status="200")

    before = count("ListTasks"), count("NoSuchMethod")
    rpc.ok("ListTasks", {})
    rpc.refused("NoSuchMethod", {})
    assert (count("ListTasks"), count("NoSuchMethod")) == (before[0] + 1, 0)


def test_open_streams_and_running_tasks_are_gauges(door: Door, server: Server, http: httpx.Client) -> None:
    gate = str(uuid.uuid4())
    assert streams(http, server.url) == 0
    with door.open("SendStreamingMessage", sending(gate), "hold") as stream:
        next(stream)
        assert streams(http, server.url) == 1
        assert value(http, server.url, "roost_runs", agent="hold", phase="running") == 1
        door.task(gate, "release")
        assert list(stream)
    eventually(lambda: streams(http, server.url) == 0)
    eventually(lambda: value(http, server.url, "roost_runs", agent="hold", phase="running") == 0)


def test_waiting_tasks_are_a_gauge(rest: Rest, server: Server, http: httpx.Client) -> None:
    gate, context = str(uuid.uuid4()), str(uuid.uuid4())
    made = [rest.begin(gate, "turns", contextId=context) for _ in range(3)]
    assert value(http, server.url, "roost_runs", agent="turns", phase="running") == 1
    assert value(http, server.url, "roost_runs", agent="turns", phase="waiting") == 2
    rest.task(gate, "release")
    for task in made:
        assert rest.until(task["id"], "turns", "COMPLETED")
    eventually(lambda: value(http, server.url, "roost_runs", agent="turns", phase="waiting") == 0)


def test_the_histogram_of_commits_is_one(rest: Rest, server: Server, http: httpx.Client) -> None:
    rest.task()
    series = metrics(http, server.url)
    buckets = sorted(
        (float(dict(labels)["le"]), count) for (name, labels), count in series.items() if name.endswith("_bucket")
    )
    counts = [count for _, count in buckets]
    assert counts == sorted(counts)
    assert counts[-1] == series["roost_commit_seconds_count", frozenset()] > 0
    assert series["roost_commit_seconds_sum", frozenset()] > 0


def test_an_agent_that_blocks_the_event_loop_shows_in_the_metrics() -> None:
    with running(Path(__file__).parents[1] / "fuzz" / "hog.py") as host, httpx.Client(headers=VERSION) as http:
        Rest(http, host.url).task("compute", "hello")
        eventually(lambda: value(http, host.url, "roost_loop_lag_seconds") > SECONDS - 2 * TICK_S)


def test_the_longest_delay_is_forgotten_after_two_minutes() -> None:
    lag = LoopLag()
    lag.late(1000.0, 0.5)
    lag.late(1001.0, 0.25)
    assert lag.longest(1059.0) == 0.5
    lag.late(1061.0, 0.1)
    assert lag.longest(1119.0) == 0.5
    assert lag.longest(1121.0) == 0.1
    assert lag.longest(1250.0) == 0


def test_strangers_cannot_grow_the_metrics(server: Server, http: httpx.Client) -> None:
    """100 unknown paths, agents, tasks, methods and queries add a few series, not 100."""
    chance = random.Random(1)

    def word() -> str:
        return "".join(chance.choices(string.ascii_letters, k=12))

    before = metrics(http, server.url)
    for _ in range(100):
        http.get(f"{server.url}/{word()}/{word()}")
        http.get(f"{server.url}/agents/{word()}/tasks/{word()}?{word()}={word()}")
        http.get(f"{server.url}/agents/hello/{word()}", headers=VERSION)
        http.get(f"{server.url}/agents/hello/tasks/{word()}", headers=VERSION)
        http.post(f"{server.url}/agents/{word()}", json={})
        body = {"jsonrpc": "2.0", "id": word(), "method": word(), "params": {}}
        http.post(f"{server.url}/agents/hello", json=body, headers=VERSION)
        http.get(f"{server.url}/", headers={"Host": word()})
    new = {series for series in metrics(http, server.url).keys() - before.keys() if "_http_" in series[0]}
    assert 0 < len(new) <= 10, new


def test_a_method_that_http_does_not_know_is_counted_as_another(server: Server, http: httpx.Client) -> None:
    before = metrics(http, server.url)
    for method in ("PROPFIND", "MKCOL", "LOCK", "PURGE", "REPORT", "SUBSCRIBE"):
        assert http.request(method, f"{server.url}/agents/hello/tasks", headers=VERSION).status_code == 405
    new = {series for series in metrics(http, server.url).keys() - before.keys() if "_http_" in series[0]}
    assert new == {(REQUESTS, frozenset({"route": "/agents/{agent}/*", "method": "other", "status": "405"}.items()))}


def test_every_route_label_is_a_template_of_the_hosts(server: Server, http: httpx.Client) -> None:
    known = {"unmatched", "/agents", f"{AGENT}/", f"{AGENT}/*"}
    known |= {route.path for route in all_routes()}
    known |= {f"{AGENT}/ {method}" for method in BY_NAME}
    for labels_of in labels(metrics(http, server.url), REQUESTS):
        assert dict(labels_of)["route"] in known


def test_metrics_hold_nothing_that_a_client_said(rest: Rest, server: Server, http: httpx.Client) -> None:
    secret = f"secret-{uuid.uuid4()}"
    task = rest.task(secret, contextId=secret)
    assert rest.get(task["id"])["contextId"] == secret
    text = http.get(f"{server.url}/metrics").text
    assert secret not in text
    assert task["id"] not in text


def test_the_log_holds_nothing_that_a_client_said(rest: Rest, server: Server) -> None:
    secret = f"secret-{uuid.uuid4()}"
    rest.refused("SendMessage", {"message": {"text": secret}})
    said = rest.task(secret, "boom")["status"]["message"]["parts"][0]["text"]
    eventually(lambda: said.rpartition(" ")[2] in server.stderr)
    assert secret not in server.stderr
