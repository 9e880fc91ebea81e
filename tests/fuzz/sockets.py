"""The HTTP layer itself, over raw sockets: requests that are malformed, cut off, contradictory or no HTTP at all.

Each is answered below 500 in a form that we have, or its connection is closed; within the host's own limits of time.
"""

from __future__ import annotations

import json
import socket
from typing import NamedTuple

from hypothesis import strategies as st

from tests.fuzz.attack import Attack
from tests.fuzz.bodies import broken, mostly, rubbish
from tests.fuzz.target import Target
from tests.waiting import PATIENCE_S

RPC = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}'
METHODS = [b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"PATCH", b"TRACE", b"CONNECT"]
ODD_METHODS = [b"get", b"", b"GE T", b"\0", b"M-SEARCH", b"PRI", b"G" * 5000, b"\xc3\xa4"]
TARGETS = [
    b"/",
    b"/agents/hello",
    b"/agents/hello/tasks",
    b"/agents/hello/message:send",
    b"/api/v2/admin/tokens",
    b"/metrics",
]
ODD_TARGETS = [
    b"*",
    b"",
    b"//",
    b"///agents",
    b"http://elsewhere/",
    b"/%",
    b"/%zz",
    b"/%00",
    b"/\xff\xfe",
    b"/agents/%2e%2e/x",
    b"/agents/hello/../x",
    b"/agents/hello/tasks?%ff",
    b"/?a=%",
    b"/agents/%0d%0aX:y",
    b"/agents/hello/tasks#x",
    b"/" + b"a" * 40_000,
    b"/agents/hello/tasks?" + b"a=b&" * 500,
    b"?" + b"x" * 20_000,
    b"/agents/" + b"/" * 3000,
]
ODD_VERSIONS = [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1x", b"", b"http/1.1", b"HTTP/1.", b"HTTP/1.1 HTTP/1.1"]
HEADERS = [b"A2A-Version: 1.0", b"Content-Type: application/json", b"Accept: */*", b"Connection: close"]
ODD_HEADERS = [
    b"no colon",
    b": empty name",
    b"a b: c",
    b"X: \0",
    b"X: \r",
    b" folded: x",
    b"X-\xff: \xff",
    b"X:" + b"y" * 40_000,
    b"Content-Length: 5",
    b"Content-Length: -1",
    b"Content-Length: 0x5",
    b"Content-Length: 1, 2",
    b"Content-Length: ",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: x",
    b"Expect: 100-continue",
    b"Expect: x",
    b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings",
    b"Connection: keep-alive, close",
    b"Host: elsewhere",
    b"Host:",
    b"Host: a\r\nHost: b",
    b"Origin: http://evil",
    b"X-Forwarded-For: 1.2.3.4",
    b"Authorization: \xff",
    b"X-API-Key:",
    b"Authorization: Bearer",
    b"Authorization: Basic Og==",
    b"Range: bytes=0-",
    b"If-None-Match: *",
    b"\r\n".join([b"X: y"] * 150),
    b"Accept: \xe2\x82\xac",
    b"Last-Event-ID: \xb2",
    b"X-Tenant-Id: \xc2\xb2",
    b"A2A-Extensions: \xff",
    b"Content-Type: \xff",
]
CHUNKS = [
    b"0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"zz\r\n",
    b"-1\r\n",
    b"FFFFFFFFFFFFFFFFFF\r\n",
    b"5\r\nhe",
    b"1;a=b\r\n{\r\n0\r\nT: x\r\n\r\n",
]
OTHER_PROTOCOLS = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(60),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(20),
    b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET / HTTP/1.1\r\n\r\n",
    b"SSH-2.0-x\r\n",
    b"\r\n\r\n\r\n",
    b"",
]


class Answer(NamedTuple):
    status: int
    body: bytes


@st.composite
def requests(draw: st.DrawFn, usual: list[bytes]) -> bytes:
    """`usual` are headers that every good request has."""
    method = draw(mostly(st.sampled_from(METHODS), st.sampled_from(ODD_METHODS)))
    target = draw(mostly(st.sampled_from(TARGETS), st.sampled_from(ODD_TARGETS)))
    version = draw(mostly(st.just(b"HTTP/1.1"), st.sampled_from(ODD_VERSIONS)))
    lines = [b" ".join((method, target, version)), *usual, *HEADERS]
    lines += draw(st.lists(st.sampled_from(ODD_HEADERS), max_size=2) | st.just([]))
    body = draw(mostly(st.just(RPC), st.sampled_from(CHUNKS) | rubbish()))
    if draw(mostly(st.just(True), st.just(False))):
        lines.append(b"Content-Length: %d" % (len(body) + draw(mostly(st.just(0), st.sampled_from([-3, 3, 1000])))))
    end = draw(mostly(st.just(b"\r\n"), st.sampled_from([b"\n", b"\r", b"\n\r", b"\0"])))
    whole = end.join([*lines, b"", body])
    return draw(mostly(st.just(whole), broken(whole)))


def attack(target: Target) -> Attack:
    usual = {"Host": target.url.removeprefix("http://"), **target.callers["user"]}
    lines = [f"{name}: {value}".encode() for name, value in usual.items()]
    one = mostly(requests(lines), st.sampled_from(OTHER_PROTOCOLS) | st.binary(max_size=200))
    cut = st.none() | st.integers(1, 200)
    salvos = st.lists(st.tuples(one, cut), min_size=40, max_size=60)
    return Attack("raw HTTP", salvos, lambda salvo: strike(target, salvo), weight=0.2)


def strike(target: Target, salvo: list[tuple[bytes, int | None]]) -> None:
    """All of them at once: those that leave the host waiting wait together."""
    clients = [socket.create_connection(("127.0.0.1", target.server.port), PATIENCE_S) for _ in salvo]
    try:
        for client, (data, cut) in zip(clients, salvo, strict=True):
            _send(client, [data] if cut is None else [data[:cut], data[cut:]])
        for client, (data, _) in zip(clients, salvo, strict=True):
            answer = _read(client, has_body=not data.lstrip().startswith(b"HEAD"))
            target.count("raw HTTP", "closed" if answer is None else answer.status)
            if answer is not None:
                _check(answer, data)
    finally:
        for client in clients:
            client.close()
    target.check()


def _send(client: socket.socket, pieces: list[bytes]) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for piece in pieces:
            client.sendall(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has heard enough


def _read(client: socket.socket, *, has_body: bool) -> Answer | None:
    """The first answer, or None where there is none. A reset, or a silence longer than PATIENCE_S, is an error."""
    data = b""
    while (found := _answer(data, has_body)) is None:
        piece = client.recv(1 << 16)
        if not piece:
            assert not data or data.startswith(b"HTTP/1.1 100 "), f"cut off: {data[:500]!r}"
            return None
        data += piece
    return found


def _answer(data: bytes, has_body: bool) -> Answer | None:
    """Once it is complete; of a stream, its head."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    status = int(head.split(b" ")[1])
    if status == 100:
        return _answer(rest, has_body)
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    length = int(headers.get(b"content-length", b"0")) if has_body else 0
    return Answer(status, rest[:length]) if len(rest) >= length else None


def _check(answer: Answer, sent: bytes) -> None:
    assert answer.status < 500 or answer.status == 503, (answer, sent)
    if answer.status >= 400 and answer.body:
        error = json.loads(answer.body)
        assert error.keys() & {"error", "status"}, (answer, sent)
