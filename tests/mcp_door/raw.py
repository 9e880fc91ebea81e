"""MCP with sessions as bytes on the wire, for what the official client does not do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import PATIENCE_S

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
VERSION = "2025-11-25"
MODERN = "2026-07-28"


def opening(**capabilities: Any) -> dict[str, Any]:
    client = {"name": "tests", "version": "1"}
    return {"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": client}


def asking(method: str, params: Mapping[str, Any], request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def modern(method: str, params: Mapping[str, Any], name: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """A body and its headers, in the version without sessions."""
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    headers = {**HEADERS, "MCP-Protocol-Version": MODERN, "Mcp-Method": method, **({"Mcp-Name": name} if name else {})}
    return asking(method, {**params, "_meta": meta}), headers


class Session:
    """A session that was opened, ended with the block."""

    def __init__(
        self, base: str, headers: Mapping[str, str] | None = None, *, socket: Path | None = None, **capabilities: Any
    ) -> None:
        self.url = f"{base}/mcp"
        transport = None if socket is None else httpx.HTTPTransport(uds=str(socket))
        self.http = httpx.Client(headers={**HEADERS, **(headers or {})}, timeout=PATIENCE_S, transport=transport)
        self.capabilities = capabilities

    def __enter__(self) -> Session:
        opened = self.http.post(self.url, json=asking("initialize", opening(**self.capabilities), 0))
        assert opened.status_code == 200, opened.text
        self.id = opened.headers["mcp-session-id"]
        self.http.headers.update({"Mcp-Session-Id": self.id, "MCP-Protocol-Version": VERSION})
        self.tell("notifications/initialized", {})
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        told = self.http.post(self.url, json={"jsonrpc": "2.0", "method": method, "params": params})
        assert told.status_code == 202, told.text

    @contextmanager
    def sent(self, method: str, params: Mapping[str, Any], request_id: Any) -> Iterator[httpx.Response]:
        """The answer has begun; at the end of the block the connection is dropped."""
        with self.http.stream("POST", self.url, json=asking(method, params, request_id)) as answer:
            assert answer.status_code == 200
            yield answer

    def messages(self, response: httpx.Response) -> Iterator[dict[str, Any]]:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))

    def answer(self, response: httpx.Response, request_id: Any) -> dict[str, Any]:
        for message in self.messages(response):
            if message.get("id") == request_id:
                return message
        raise AssertionError("the stream ended without an answer")

    def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        with self.sent("tools/call", {"name": tool, "arguments": arguments}, "call") as answer:
            result: dict[str, Any] = self.answer(answer, "call")["result"]
            return result

    def end(self) -> None:
        assert self.http.delete(self.url).status_code == 200
