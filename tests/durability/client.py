"""Requests in both bindings, over sockets on which one can see that nothing comes."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from tests.waiting import PATIENCE_S

HEADERS = {"A2A-Version": "1.0", "Content-Type": "application/json"}


class Call(NamedTuple):
    """A way to send a message: the path below the agent, and what the request and its answers look like."""

    path: str
    method: str | None

    def body(self, text: str, **configuration: Any) -> dict[str, Any]:
        request = {
            "message": {"messageId": f"id of {text}", "role": "ROLE_USER", "parts": [{"text": text}]},
            "configuration": configuration,
        }
        if self.method is None:
            return request
        return {"jsonrpc": "2.0", "id": 7, "method": self.method, "params": request}

    def result(self, value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = value if self.method is None else value["result"]
        return found


CALLS = {
    "rest-send": Call("/message:send", None),
    "rest-stream": Call("/message:stream", None),
    "jsonrpc-send": Call("/", "SendMessage"),
    "jsonrpc-stream": Call("/", "SendStreamingMessage"),
}


class Connection:
    """One request that has been sent, and what comes of it."""

    def __init__(self, url: str, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        self.url = url
        self.received = b""
        place = urlsplit(url)
        assert place.hostname is not None
        assert place.port is not None
        self.socket = socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {place.netloc}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in HEADERS.items()]
        lines += [f"Content-Length: {len(content)}", "", ""]
        self.socket.sendall("\r\n".join(lines).encode() + content)

    def is_silent(self) -> bool:
        """Nothing has come since the last read, though the host has answered others in the meantime."""
        for _ in range(3):
            assert httpx.get(f"{self.url}/healthz").status_code == 200
        ready, _, _ = select.select([self.socket], [], [], 0)
        return not ready

    def read_until(self, text: bytes) -> bytes:
        while text not in self.received:
            piece = self.socket.recv(65536)
            assert piece, f"the connection ended before {text!r}: {self.received!r}"
            self.received += piece
        return self.received

    def read_all(self) -> bytes:
        while piece := self.socket.recv(65536):
            self.received += piece
        return self.received

    def status(self) -> int:
        return int(self.received.split(b" ", 2)[1])

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.read_all().partition(b"\r\n\r\n")[2])
        return found

    def frames(self) -> list[tuple[int, dict[str, Any]]]:
        """(id, data) of every event; the body's chunks are undone."""
        return events(dechunked(self.read_all().partition(b"\r\n\r\n")[2]))


def dechunked(body: bytes) -> bytes:
    pieces = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        pieces.append(body[:length])
        body = body[length + 2 :]
    return b"".join(pieces)


def events(stream: bytes) -> list[tuple[int, dict[str, Any]]]:
    found = []
    for event in stream.split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if not line.startswith(b":") and line)
        if fields:
            found.append((int(fields[b"id"]), json.loads(fields[b"data"])))
    return found


@contextmanager
def connection(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> Iterator[Connection]:
    made = Connection(url, method, path, body)
    try:
        yield made
    finally:
        made.socket.close()


def sent(url: str, agent: str, how: str, text: str, **configuration: Any) -> Any:
    """A message on its way, as a context manager."""
    call = CALLS[how]
    return connection(url, "POST", f"/agents/{agent}{call.path}", call.body(text, **configuration))


def text_of(task: dict[str, Any]) -> str:
    return "".join(part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"])
