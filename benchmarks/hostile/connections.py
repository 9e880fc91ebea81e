"""Connections that read nothing or send slowly, and heads that are as large as they may be."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from benchmarks.hostile.case import ACCEPTED, INVALID, LIMITED, Case, Stage, outcome
from benchmarks.hostile.reads import AGENT, MAKE, Making, large_tasks
from benchmarks.hostile.senders import V1, call, plain, unread

UNREAD = 200
HOLD_S = 8.0
TOO_MUCH_MB = 2500.0
"""The growth at which an attack ends early, to spare the machine."""
HEAD = f"{ACCEPTED}|{INVALID}|{LIMITED}|refused (401|403|404|414|431)"
CLOSED_S = 20.0


def cases() -> Iterator[Case]:
    make = MAKE["text"]
    yield Case(f"{UNREAD} unread answers of 7.9 MB", "REST", partial(_unread_tasks, make), "held|closed", make)
    yield Case("6 unread lists over 2 MB tasks", "REST", _unread_lists, "held|closed", large_tasks)
    yield Case("100 unread streams over a task of 7.9 MB", "REST", partial(_unread_streams, make), "held|closed", make)
    yield Case("100 answers of 7.9 MB, dropped", "REST", partial(_dropped, make), "held|closed", make)
    yield Case("50 slow bodies of 7 MB after a 401", "admin", _slow_refused, "closed")
    yield Case("50 slow bodies of 7 MB", "REST", _slow_bodies, "held|closed")
    yield Case("500 open connections without a request", "REST", _silent, "held|closed")
    yield Case("a query of 15 KB", "REST", partial(_get, f"/agents/bench/tasks?contextId={'c' * 15_000}"), HEAD)
    many = "&".join(f"a{number}=1" for number in range(2500))
    yield Case("a query of 2,500 names", "REST", partial(_get, f"/agents/bench/tasks?{many}"), HEAD)
    yield Case("a path of 30 KB", "REST", partial(_get, f"/agents/{'a/' * 15_000}"), HEAD)
    yield Case("an agent of 30 KB", "REST", partial(_get, f"/agents/{'a' * 30_000}/tasks"), HEAD)
    for name, header in HEADERS.items():
        yield Case(name, "REST", partial(_headers, header), HEAD)


HEADERS: dict[str, dict[str, str]] = {
    "5,000 extensions in a header": {"A2A-Extensions": ",".join(f"u:{n}" for n in range(4_000))},
    "A2A-Version of 30 KB": {"A2A-Version": "1" * 30_000},
    "Authorization of 30 KB": {"Authorization": f"Bearer {'a' * 30_000}"},
    "Accept with 3,000 types": {"Accept": ",".join(["a/b;q=0.1"] * 3_000)},
    "X-Tenant-Id of 30 KB": {"X-Tenant-Id": "t" * 30_000},
    "90 headers of 300 bytes": {f"X-{number}": "x" * 300 for number in range(90)},
    "Last-Event-ID of 30 KB": {"Last-Event-ID": "9" * 30_000},
    "X-Forwarded-For with 3,000 addresses": {"X-Forwarded-For": ",".join(["10.0.0.1"] * 3_000)},
    "Cookie of 30 KB": {"Cookie": "; ".join(["a=b"] * 6_000)},
}


def _get(path: str, stage: Stage) -> str:
    return max(outcome(call(stage.port, "GET", path)) for _ in range(20))


def _headers(headers: dict[str, str], stage: Stage) -> str:
    return max(outcome(call(stage.port, "GET", "/agents/bench/tasks", None, {**V1, **headers})) for _ in range(20))


# Unread answers


def _hold(stage: Stage, opened: list[socket.socket], limit_s: float = HOLD_S) -> str:
    """Keep the connections open for a while, and close them."""
    memory, before = stage.arena.memory, stage.arena.memory.now()
    until = time.monotonic() + limit_s
    while time.monotonic() < until and memory.now() - before < TOO_MUCH_MB:
        time.sleep(0.1)
    for each in opened:
        each.close()
    return f"held {len(opened)} connections"


def _open(stage: Stage, request: bytes, number: int) -> list[socket.socket]:
    before = stage.arena.memory.now()
    opened: list[socket.socket] = []
    for _ in range(number):
        made = unread(stage.port, request)
        if made is not None:
            opened.append(made)
        if stage.arena.memory.now() - before > TOO_MUCH_MB:
            break
        time.sleep(0.02)
    return opened


def _unread_tasks(make: Making, stage: Stage) -> str:
    request = plain("GET", f"/agents/{AGENT[make]}/tasks/{stage.made(make)}", stage.port)
    return _hold(stage, _open(stage, request, UNREAD))


def _unread_lists(stage: Stage) -> str:
    path = "/agents/large/tasks?pageSize=100&includeArtifacts=true"
    return _hold(stage, _open(stage, plain("GET", path, stage.port), 6))


def _unread_streams(make: Making, stage: Stage) -> str:
    path = f"/agents/{AGENT[make]}/tasks/{stage.made(make)}:subscribe"
    request = plain("GET", path, stage.port, {**V1, "Last-Event-ID": "1"})
    return _hold(stage, _open(stage, request, 100))


def _dropped(make: Making, stage: Stage) -> str:
    request = plain("GET", f"/agents/{AGENT[make]}/tasks/{stage.made(make)}", stage.port)
    for _ in range(100):
        made = unread(stage.port, request)
        if made is not None:
            made.close()
    return _hold(stage, [], 1.0)


# Slow bodies


def _slow_refused(stage: Stage) -> str:
    """Send bodies slowly to a route that needs a credential; the host must close the connections by itself."""
    head = plain("POST", "/api/v2/admin/tokens", stage.port)
    return _slow(stage, head)


def _slow_bodies(stage: Stage) -> str:
    return _slow(stage, plain("POST", "/agents/sink/message:send", stage.port))


def _slow(stage: Stage, head: bytes) -> str:
    request = head[:-2] + b"Content-Type: application/json\r\nContent-Length: 7000000\r\n\r\n" + b" " * 1000
    opened = [made for _ in range(50) if (made := unread(stage.port, request)) is not None]
    left, until = [*opened], time.monotonic() + CLOSED_S
    while left and time.monotonic() < until:
        time.sleep(0.5)
        left = [each for each in left if _drips(each)]
    for each in opened:
        each.close()
    return f"held {len(left)} of {len(opened)} for {CLOSED_S:g} s" if left else "closed"


def _drips(connection: socket.socket) -> bool:
    """Send a little more of the body. Return False if the host has closed the connection."""
    try:
        connection.sendall(b" " * 100)
        connection.setblocking(False)
        with suppress(BlockingIOError):
            while data := connection.recv(65_536):
                del data
            return False
        connection.settimeout(5)
    except OSError:
        return False
    return True


def _silent(stage: Stage) -> str:
    opened = [made for _ in range(500) if (made := unread(stage.port, b"")) is not None]
    return _hold(stage, opened, 2.0)
