"""Sends requests to any replica, and repeats them until one of them answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import httpx
from msgspec import Struct

from chaos.history import History, Request, decode

IDEMPOTENCY = "https://agentic-sandbox.aiwg.io/extensions/idempotency/v1"
HEADERS = {"A2A-Version": "1.0", "A2A-Extensions": IDEMPOTENCY}
CONNECT_S = 2.0
RESPONSE_S = 8.0
"""Seconds to wait for a response before the request is repeated elsewhere. Longer than a lease."""
SILENT_S = 20.0
"""Seconds without data before a stream counts as broken. Hosts send a comment every 15 s."""
BACK_OFF_S = (0.02, 0.25)
RETRIABLE = frozenset({429, 503})


class Counts(Struct):
    tasks: int = 0
    events: int = 0
    drops: int = 0
    """Connections that clients closed in the middle of a stream."""
    resumes: int = 0
    """Streams that were resumed with Last-Event-ID."""
    retries: int = 0
    """Requests that were repeated after a failure."""
    replays: int = 0
    """Responses to a message that was sent again."""
    hostile: int = 0
    """Answers to requests that were made to cost others something."""


class DeadlineExceeded(Exception):
    """The client waited longer than any operation may take."""


class Refused(Exception):
    """A response that is neither the requested one nor a request to retry."""

    def __init__(self, request: str, status: int, content: bytes) -> None:
        super().__init__(f"{status} {content.decode(errors='replace')}")
        self.request = request
        self.reason = _reason(content)


class FleetClient:
    """The fleet as a client sees it: a list of equivalent addresses."""

    def __init__(self, urls: list[str], history: History) -> None:
        self.deadline = float("inf")
        """The monotonic time at which clients give up."""
        self.urls = urls
        self.history = history
        self.counts = Counts()
        self.http = httpx.AsyncClient(
            headers=HEADERS,
            timeout=httpx.Timeout(RESPONSE_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5),
            verify=False,  # loading certificates takes longer than many requests
        )

    async def request(
        self, rng: Random, method: str, path: str, waiting_for: str, body: dict[str, Any] | None = None
    ) -> Any:
        """Return the response of the first replica that answers. `path` begins with the agent."""
        while True:
            self.check(waiting_for)
            begun, url = time.monotonic(), self.url(rng, path)
            try:
                response = await self.http.request(method, url, json=body)
            except httpx.TransportError as error:
                self.record(begun, url, type(error).__name__)
                await self.back_off(rng)
                continue
            self.record(begun, url, str(response.status_code))
            if response.status_code == 200:
                self.counts.replays += response.headers.get("idempotent-replayed") == "true"
                return decode(response.content)
            if response.status_code not in RETRIABLE:
                raise Refused(f"{method} {path}", response.status_code, response.content)
            await self.back_off(rng)

    async def stream(
        self, rng: Random, path: str, body: dict[str, Any] | None = None, last: int | None = None
    ) -> AsyncIterator[tuple[int | None, bytes]]:
        """Yield the events of one connection as (id, data), until either side ends it."""
        method = "GET" if body is None else "POST"
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        timeout = httpx.Timeout(RESPONSE_S, connect=CONNECT_S, read=SILENT_S)
        begun, url = time.monotonic(), self.url(rng, path)
        async with self.http.stream(method, url, json=body, headers=headers, timeout=timeout) as response:
            self.record(begun, url, f"{response.status_code} to Last-Event-ID {last}")
            if response.status_code in RETRIABLE:
                return
            if response.status_code != 200:
                raise Refused(f"{method} {path} {headers}", response.status_code, await response.aread())
            self.counts.replays += response.headers.get("idempotent-replayed") == "true"
            self.counts.resumes += last is not None
            rest = b""
            async for piece in response.aiter_raw():
                self.check("the end of its stream")  # a stream may carry nothing but comments
                *whole, rest = (rest + piece).split(b"\n\n")
                for lines in whole:
                    event = dict(line.split(b": ", 1) for line in lines.split(b"\n") if not line.startswith(b":"))
                    if event:
                        yield int(event[b"id"]) if b"id" in event else None, event[b"data"]

    def record(self, begun: float, url: str, answer: str) -> None:
        self.history.requests.append(Request(begun, time.monotonic(), url, answer))

    def url(self, rng: Random, path: str) -> str:
        return f"{rng.choice(self.urls)}/agents/{path}"

    def check(self, waiting_for: str) -> None:
        if time.monotonic() > self.deadline:
            raise DeadlineExceeded(waiting_for)

    async def back_off(self, rng: Random) -> None:
        self.counts.retries += 1
        await asyncio.sleep(rng.uniform(*BACK_OFF_S))


def _reason(content: bytes) -> str:
    try:
        details = decode(content)["error"]["details"]
    except (ValueError, KeyError, TypeError):
        return ""
    return next((detail["reason"] for detail in details if "reason" in detail), "")
