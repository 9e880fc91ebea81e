"""The hosts that are fuzzed: real processes, with tasks and webhooks in every state, and callers of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.doors.wire import VERSION, Rest, Rpc, sending
from tests.fuzz.blocking import LoopWatch, watching
from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S

AGENTS = ("ask", "files", "hello", "stream", "tck")
"""The example agents that end soon and accept any message."""
HEAD_S = 1.0
MAX_BODY = 128 * 1024
LARGE_BODY = 8 * 1024 * 1024
WEBHOOK = "http://127.0.0.1:9/"
LIMITS = (
    "--drain-s=0",
    f"--head-s={HEAD_S}",
    f"--max-body={MAX_BODY}",
    "--auth-failures=1000000",
    "--min-free-mb=0",
    "--push-allow-hosts=127.0.0.1",
    "--push-attempts=1",
)
TOKEN, ADMIN_TOKEN = "a-token-for-fuzzing", "an-admin-token-for-fuzzing"
SCOPES = {"narrow": ["agent:hello"], "operator": ["operate"], "auditor": ["audit"], "metrics": ["metrics"]}


class Finding(NamedTuple):
    attack: str
    seed: int | None
    """None: of the tests, which are the same each time."""
    text: str

    def __str__(self) -> str:
        again = "" if self.seed is None else f" (--seed {self.seed} --only {self.attack.partition(': ')[2]!r})"
        return f"{self.attack}{again}:\n{self.text}"


class Target:
    """A host under attack, what it was asked, and what it answered."""

    def __init__(self, name: str, server: Server, callers: Mapping[str, dict[str, str]], loop: LoopWatch) -> None:
        self.name = name
        self.server = server
        self.loop = loop
        self.url = server.url
        self.callers = callers
        self.http = httpx.Client(timeout=PATIENCE_S, verify=False, headers={**VERSION, **callers["user"]})
        self.admin = {**callers["user"], **callers.get("admin", {})}
        self.tasks: list[str] = []
        self.statuses: Counter[str] = Counter()
        self.failures: list[str] = []
        self.log = 0
        """The number of bytes of its log that have been checked."""

    def prepare(self) -> None:
        rest = Rest(self.http, self.url)
        for agent in AGENTS:
            self.tasks += [rest.task("hello", agent)["id"] for _ in range(2)]
        rest.ok("CreateTaskPushNotificationConfig", {"taskId": self.tasks[0], "url": WEBHOOK, "id": "hook"}, "ask")

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"{self.url}/openapi.json").raise_for_status().json()
        return found

    def count(self, surface: str, status: object) -> None:
        self.statuses[f"{surface} {status}"] += 1

    def check(self) -> None:
        """It answers a good request at both doors.

        Since last time it said no 5xx but 503, logged no traceback, and kept nobody waiting.
        """
        for door in (Rest(self.http, self.url), Rpc(self.http, self.url)):
            task = door.ok("SendMessage", sending("are you well?"))["task"]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        known = self.failures
        log = self.look()
        assert self.failures == known
        assert not log, "\n".join(log)
        self.loop.check("one of these requests")

    def look(self) -> list[str]:
        """The tracebacks in its log since last time. Whoever looks next does not see them again."""
        metrics = self.http.get(f"{self.url}/metrics", headers=self.admin).raise_for_status().text
        self.failures = [line for line in metrics.splitlines() if 'status="5' in line and 'status="503"' not in line]
        start, self.log = self.log, len(self.server.stderr)
        return [line.replace("\\n", "\n") for line in self.server.stderr[start:].splitlines() if "Traceback" in line]


@contextmanager
def open_host() -> Iterator[Target]:
    """Asks for no credential."""
    with running(*_agents(), args=LIMITS, env={"ROOST_ADMIN_TOKEN": ADMIN_TOKEN}) as server:
        callers = {"user": {}, "admin": _bearer(ADMIN_TOKEN), "stranger": _bearer("no-such-token-at-all")}
        with _ready("open", server, callers) as target:
            yield target


@contextmanager
def closed_host(data: Path) -> Iterator[Target]:
    """Has callers with several scopes."""
    env = {"ROOST_TOKEN": TOKEN, "ROOST_ADMIN_TOKEN": ADMIN_TOKEN}
    with running(*_agents(), args=LIMITS, env=env, data=data) as server:
        callers = {"user": _bearer(TOKEN), "admin": _bearer(ADMIN_TOKEN), "nobody": {}, "stranger": {"X-API-Key": "x"}}
        for name, scopes in SCOPES.items():
            made = httpx.post(
                f"{server.url}/api/v2/admin/tokens", json={"name": name, "scopes": scopes}, headers=callers["admin"]
            )
            callers[name] = {"X-API-Key": made.raise_for_status().json()["token"]}
        with _ready("closed", server, callers) as target:
            yield target


@contextmanager
def large_host() -> Iterator[Target]:
    """Is open, takes bodies as large as hosts do by default, and serves gRPC."""
    args = (*LIMITS, f"--max-body={LARGE_BODY}", "--grpc=127.0.0.1:0")
    with running(*_agents(), args=args) as server, _ready("large", server, {"user": {}}) as target:
        yield target


@contextmanager
def _ready(name: str, server: Server, callers: Mapping[str, dict[str, str]]) -> Iterator[Target]:
    with watching(server.port, server.process.pid) as loop:
        target = Target(name, server, callers, loop)
        with target.http:
            target.prepare()
            loop.worst()  # what starting took is nobody's fault
            yield target


def _agents() -> list[Path]:
    return [FLEET / f"{agent}.py" for agent in AGENTS]


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
