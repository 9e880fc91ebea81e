"""Requests to any replica, again and again until one of them answers."""

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
ANSWER_S = 8.0
"""Longest wait for an answer; then the request is made again, elsewhere. Longer than a lease."""
SILENT_S = 20.0
"""Longest silence of a stream: hosts send a comment every 15 s."""
AGAIN_S = (0.02, 0.25)
TRY_AGAIN = frozenset({429, 503})


class Counts(Struct):
    tasks: int = 0
    events: int = 0
    drops: int = 0
    """Connections that clients closed in the middle of a stream."""
    resumes: int = 0
    """Streams that went on with Last-Event-ID."""
    retries: int = 0
    """Requests that were made again after a failure."""
    replays: int = 0
    """Answers to a message that had come before."""


class GaveUp(Exception):
    """Nothing may take this long."""


class Refused(Exception):
    """An answer that is neither the one that was asked for nor `try again`."""

    def __init__(self, request: str, status: int, content: bytes) -> None:
        super().__init__(f"{status} {content.decode(errors='replace')}")
        self.request = request
        self.reason = _reason(content)


class Door:
    """The fleet, as one client sees it: a list of addresses that are as good as each other."""

    until = float("inf")
    """When clients give up."""

    def __init__(self, urls: list[str], history: History) -> None:
        self.urls = urls
        self.history = history
        self.counts = Counts()
        self.http = httpx.AsyncClient(
            headers=HEADERS,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5),
            verify=False,  # loading certificates takes longer than many requests
        )

    async def ask(
        self, chance: Random, method: str, path: str, waiting_for: str, body: dict[str, Any] | None = None
    ) -> Any:
        """What a replica answers, the first that does. `path` begins with the agent."""
        while True:
            self.check(waiting_for)
            begun, url = time.monotonic(), self.url(chance, path)
            try:
                response = await self.http.request(method, url, json=body)
            except httpx.TransportError as error:
                self.note(begun, url, type(error).__name__)
                await self.again(chance)
                continue
            self.note(begun, url, str(response.status_code))
            if response.status_code == 200:
                self.counts.replays += response.headers.get("idempotent-replayed") == "true"
                return decode(response.content)
            if response.status_code not in TRY_AGAIN:
                raise Refused(f"{method} {path}", response.status_code, response.content)
            await self.again(chance)

    async def stream(
        self, chance: Random, path: str, body: dict[str, Any] | None = None, last: int | None = None
    ) -> AsyncIterator[tuple[int | None, bytes]]:
        """The events of one connection, (id, data) each, until either side ends it."""
        method = "GET" if body is None else "POST"
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=SILENT_S)
        begun, url = time.monotonic(), self.url(chance, path)
        async with self.http.stream(method, url, json=body, headers=headers, timeout=timeout) as response:
            self.note(begun, url, f"{response.status_code} to Last-Event-ID {last}")
            if response.status_code in TRY_AGAIN:
                return
            if response.status_code != 200:
                raise Refused(f"{method} {path} {headers}", response.status_code, await response.aread())
            self.counts.replays += response.headers.get("idempotent-replayed") == "true"
            self.counts.resumes += last is not None
            rest = b""
            async for piece in response.aiter_raw():
                self.check("the end of its stream")  # which may have nothing but comments to say
                *whole, rest = (rest + piece).split(b"\n\n")
                for lines in whole:
                    event = dict(line.split(b": ", 1) for line in lines.split(b"\n") if not line.startswith(b":"))
                    if event:
                        yield int(event[b"id"]) if b"id" in event else None, event[b"data"]

    def note(self, begun: float, url: str, answer: str) -> None:
        self.history.requests.append(Request(begun, time.monotonic(), url, answer))

    def url(self, chance: Random, path: str) -> str:
        return f"{chance.choice(self.urls)}/agents/{path}"

    def check(self, waiting_for: str) -> None:
        if time.monotonic() > self.until:
            raise GaveUp(waiting_for)

    async def again(self, chance: Random) -> None:
        self.counts.retries += 1
        await asyncio.sleep(chance.uniform(*AGAIN_S))


def _reason(content: bytes) -> str:
    try:
        details = decode(content)["error"]["details"]
    except (ValueError, KeyError, TypeError):
        return ""
    return next((detail["reason"] for detail in details if "reason" in detail), "")
