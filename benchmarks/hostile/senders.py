"""Sends hostile requests to each door, as bytes, and returns what came back."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

import grpc

ANSWER_S = 120.0
SHOWN = 600
V1 = {"A2A-Version": "1.0"}
MCP_VERSION = "2026-07-28"
"""The version without sessions."""
MCP = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": MCP_VERSION,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "sink",
}


class Response(NamedTuple):
    status: str
    """The HTTP status, the name of gRPC's, or why there is none."""
    body: bytes

    @property
    def short(self) -> str:
        """The status, and what the answer says: an error's message, or the beginning."""
        return f"{self.status} {self.body[:SHOWN].decode(errors='replace')}"


def call(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = V1,
    *,
    read: bool = True,
) -> Response:
    """Send an HTTP request and read the response, also one that comes before the body has been sent."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    sent = {"Content-Type": "application/json", **headers} if body is not None else dict(headers)
    try:
        try:
            connection.request(method, path, body, sent)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer may be there already
        with connection.getresponse() as response:
            return Response(str(response.status), response.read() if read else b"")
    except (OSError, http.client.HTTPException) as error:
        return Response(type(error).__name__, str(error).encode())
    finally:
        connection.close()


def call_grpc(port: int, service: str, method: str, request: bytes, metadata: Mapping[str, str]) -> Response:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        unary: Callable[..., bytes] = channel.unary_unary(f"/{service}/{method}")
        try:
            found = unary(request, timeout=ANSWER_S, metadata=tuple(metadata.items()))
        except grpc.RpcError as error:
            return Response(error.code().name, (error.details() or "").encode())
        return Response("OK", found)


def unread(port: int, request: bytes, receive_buffer: int = 4096) -> socket.socket | None:
    """Send a request and leave the response unread; None if the host does not accept the connection."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.settimeout(10)
    try:
        made.connect(("127.0.0.1", port))
        made.sendall(request)
    except OSError:
        with suppress(OSError):
            made.close()
        return None
    return made


def plain(method: str, path: str, port: int, headers: Mapping[str, str] = V1, body: bytes = b"") -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *(f"{n}: {v}" for n, v in headers.items())]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Door(NamedTuple):
    """Where a message can be sent, and how its JSON is written around the parts."""

    name: str
    path: str
    headers: Mapping[str, str]
    envelope: bytes
    """The body; %(parts)s is replaced by the items of the list of parts."""
    data: bytes
    """A part with data; %(data)s is replaced by the value."""
    snake_case: bool = False
    """Whether the message's id is written as message_id, which is allowed, but not what clients send."""

    def send(self, port: int, body: bytes, *, token: str = "") -> Response:
        headers = {**self.headers, **({"Authorization": f"Bearer {token}"} if token else {})}
        return call(port, "POST", self.path, body, headers)

    def of(self, agent: str) -> Door:
        """Return the same door, for another agent than `sink`."""
        headers = {name: value.replace("sink", agent) for name, value in self.headers.items()}
        envelope = self.envelope.replace(b'"sink"', f'"{agent}"'.encode())
        return self._replace(path=self.path.replace("sink", agent), headers=headers, envelope=envelope)

    def with_parts(self, parts: bytes) -> bytes:
        envelope = self.envelope
        if self.snake_case:
            envelope = envelope.replace(b'"messageId"', b'"message_id"')
        return envelope.replace(b"%(id)s", str(uuid4()).encode()).replace(b"%(parts)s", parts)

    def with_data(self, value: bytes) -> bytes:
        return self.with_parts(self.data.replace(b"%(data)s", value))


def _door(
    name: str, path: str, body: object, data: object, headers: Mapping[str, str], snake_case: bool = False
) -> Door:
    envelope = json.dumps(body).replace('["%(parts)s"]', "[%(parts)s]")
    value = json.dumps(data).replace('"%(data)s"', "%(data)s")
    return Door(name, path, headers, envelope.encode(), value.encode(), snake_case)


_MESSAGE = {"messageId": "%(id)s", "role": "ROLE_USER", "parts": ["%(parts)s"]}
_OLD = {"kind": "message", "messageId": "%(id)s", "role": "user", "parts": ["%(parts)s"]}
_OLD_REST = {"messageId": "%(id)s", "role": "ROLE_USER", "content": ["%(parts)s"]}
_RPC = {"jsonrpc": "2.0", "id": 1}
_ITEM = {"type": "text", "text": ""}
_META = {
    "io.modelcontextprotocol/protocolVersion": MCP_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}

REST = _door("REST", "/agents/sink/message:send", {"message": _MESSAGE}, {"data": "%(data)s"}, V1)
_DOORS = (
    REST,
    _door("REST, snake_case", REST.path, {"message": _MESSAGE}, {"data": "%(data)s"}, V1, True),
    _door(
        "JSON-RPC",
        "/agents/sink",
        {**_RPC, "method": "SendMessage", "params": {"message": _MESSAGE}},
        {"data": "%(data)s"},
        V1,
    ),
    _door(
        "0.3 JSON-RPC",
        "/agents/sink",
        {**_RPC, "method": "message/send", "params": {"message": _OLD}},
        {"kind": "data", "data": {"v": "%(data)s"}},
        {},
    ),
    _door(
        "0.3 REST",
        "/agents/sink/v1/message:send",
        {"message": _OLD_REST, "configuration": {"blocking": True}},
        {"data": {"data": {"v": "%(data)s"}}},
        {},
    ),
    _door(
        "sandbox",
        "/agents/sink/v1/messages:send",
        {"message": _MESSAGE},
        {"data": "%(data)s"},
        V1,
    ),
    _door(
        "OpenAI chat",
        "/openai/v1/chat/completions",
        {"model": "sink", "messages": [{"role": "user", "content": ["%(parts)s"]}]},
        {**_ITEM, "extra": "%(data)s"},
        {},
    ),
    _door(
        "OpenAI responses",
        "/openai/v1/responses",
        {"model": "sink", "input": [{"role": "user", "content": ["%(parts)s"]}]},
        {**_ITEM, "extra": "%(data)s"},
        {},
    ),
    _door(
        "MCP",
        "/mcp",
        {
            **_RPC,
            "method": "tools/call",
            "params": {"name": "sink", "arguments": {"text": "hi", "data": ["%(parts)s"]}, "_meta": _META},
        },
        "%(data)s",
        MCP,
    ),
)
DOORS = {door.name: door for door in _DOORS}
