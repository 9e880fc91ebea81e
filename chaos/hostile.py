"""A client that sends requests which are made to cost others something, all the while and never too many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import httpx
from benchmarks.hostile import shapes
from benchmarks.hostile.senders import DOORS, Door

from chaos.fleet_client import CONNECT_S, Counts
from chaos.history import History, Refusal

PAUSE_S = (2.0, 6.0)
"""The time between two requests. Each may cost the host a second, and the host is not to be flooded."""
ROOMS = (1024 * 1024, shapes.ROOM)
NAMES = [*shapes.DATA, *shapes.PARTS]
DEAREST = ["2.6M {}", "4M numbers", "2M floats", "2,000 integers of 4,000 digits", "1M small objects"]
"""Those that kept a host from answering for seconds, before it limited the values of a request."""
ANSWER_S = 30.0
UNAVAILABLE = 503


class HostileRequest(NamedTuple):
    url: str
    door: Door
    name: str
    body: bytes


class HostileClient:
    """Sends to the agent `sink`, whose tasks nobody waits for. Any answer will do but an internal error."""

    def __init__(self, urls: Sequence[str], rng: Random, history: History, counts: Counts) -> None:
        self.urls = urls
        self.rng = rng
        self.history = history
        self.counts = counts
        self.running = True
        self.http = httpx.AsyncClient(timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S), verify=False)

    async def run(self) -> None:
        """Send one request after the other until `running` is cleared."""
        while self.running:
            await self.send()
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))

    async def attack(self, requests: int, seconds: float) -> None:
        """Send this many of the dearest requests, evenly spread over the time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(requests):
                group.create_task(self.send(DEAREST, shapes.ROOM))
                await asyncio.sleep(seconds / requests)

    async def send(self, names: Sequence[str] = NAMES, room: int = 0) -> None:
        request = await asyncio.to_thread(self._make, self.rng.choice(names), room or self.rng.choice(ROOMS))
        headers = {"Content-Type": "application/json", **request.door.headers}
        try:
            response = await self.http.post(request.url, content=request.body, headers=headers)
        except httpx.TransportError:  # the host was killed, or it closed the connection
            return
        self.counts.hostile += 1
        if response.status_code >= 500 and response.status_code != UNAVAILABLE:
            answer = f"{response.status_code} {response.text}"
            self.history.refusals.append(Refusal("", f"{request.door.name}: {request.name}", answer))

    def _make(self, name: str, room: int) -> HostileRequest:
        door = self.rng.choice(list(DOORS.values()))
        if name in shapes.DATA:
            body = door.with_data(shapes.DATA[name](room))
        else:
            body = door.with_parts(shapes.PARTS[name](room))
        return HostileRequest(f"{self.rng.choice(self.urls)}{door.path}", door, name, body)
