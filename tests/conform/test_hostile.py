"""Hosts that hang, stream without end or send garbage: the judgement ends within its limits and reports them."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import threading
from pathlib import Path

import msgspec
import pytest
import trustme

from roost.conform.check import every
from roost.conform.outcome import LONGEST, ConformReport, NotJudged
from roost.conform.runner import INTERNAL, judge
from roost.conform.target import ConformOptions
from tests.conform.conftest import Conform
from tests.conform.hostile import Serve, answer, hostile


def hangs(connection: socket.socket, _: str) -> None:
    while connection.recv(65536):
        pass


def drips(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
    pause = threading.Event()
    while not pause.wait(0.05):
        connection.sendall(b" ")


def endless_head(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"x" * 8000 + b"\r\n")


def endless_body(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        connection.sendall(b"[" * 65536)


def redirects(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")


def says(data: bytes) -> Serve:
    return lambda connection, _: connection.sendall(data)


RUBBISH = {
    "hangs": hangs,
    "drips": drips,
    "endless head": endless_head,
    "endless body": endless_body,
    "redirects": redirects,
    "no HTTP": says(b"SSH-2.0-OpenSSH_9.0\r\n"),
    "closes": says(b""),
    "not found": says(answer(b"{}", status="404 Not Found")),
    "no JSON": says(answer(b"<html>\x1b[31m</html>", "text/html")),
    "no card": says(answer(b"[1, 2, 3]")),
    "deep": says(answer(b"[" * 200_000)),
    "no text": says(answer(b"\xff\xfe\x00")),
    "zipped": says(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\x00"),
    "no interfaces": says(answer(b'{"name": "x", "supportedInterfaces": [1, null, {"url": 7}]}')),
}


LIMIT_S = 3.0
"""The time limit for a host that does not answer. The test takes as long."""
PATIENCE_S = 20.0
"""The time limit for a host that answers."""


async def judged(url: str, seconds: float, *only: str) -> ConformReport:
    return await judge(ConformOptions(url, token="t", timeout=seconds, only=[*only]))


@pytest.mark.parametrize("serve", RUBBISH.values(), ids=RUBBISH)
async def test_a_host_without_a_card_cannot_be_judged(serve: Serve) -> None:
    with hostile(serve) as url, pytest.raises(NotJudged, match=r"\S"):
        await judged(url, 1)


@pytest.mark.parametrize("kind", ["hangs", "no JSON"])
def test_the_command_says_so(conform: Conform, kind: str) -> None:
    with hostile(RUBBISH[kind]) as url:
        done = conform(url, "--timeout", "1")
    assert done.code == 2, done.stderr
    assert re.match(r"roost: \S.*\n$", done.stderr), done.stderr
    assert "\x1b" not in done.stderr


def card(url: str, **more: object) -> bytes:
    skill = {"id": "x", "name": "x", "description": "x", "tags": ["x"]}
    return json.dumps(
        {
            "name": "<script>alert(1)</script>",
            "description": "x",
            "version": "1",
            "supportedInterfaces": [{"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}],
            "capabilities": {"streaming": True, "pushNotifications": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
            **more,
        }
    ).encode()


def endless_stream(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    event = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
    while True:
        connection.sendall(b"data: " + json.dumps(event).encode() + b"\n\n")


def with_card(serve: Serve) -> Serve:
    """Serve a valid card, and everything else as `serve` does."""

    def both(connection: socket.socket, path: str) -> None:
        if "agent-card" in path:
            host, port = connection.getsockname()
            connection.sendall(answer(card(f"http://{host}:{port}")))
        else:
            serve(connection, path)

    return both


TASK = b'{"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}'


def streams_for_ever(connection: socket.socket, path: str) -> None:
    if path.endswith(("stream", "subscribe")):
        endless_stream(connection)
    connection.sendall(answer(TASK))


BEHIND_CHECKS = ("first*", "stream.*", "get.*")
BEHIND: dict[str, Serve] = {
    "endless head": endless_head,
    "endless body": endless_body,
    "redirects": redirects,
    "endless stream": streams_for_ever,
    "no object": says(answer(b"[]")),
    "no HTTP": says(b"\0"),
}


@pytest.mark.parametrize("serve", BEHIND.values(), ids=BEHIND)
async def test_a_host_with_a_card_and_rubbish_behind_it_fails(serve: Serve) -> None:
    with hostile(with_card(serve)) as url:
        report = await judged(url, PATIENCE_S, *BEHIND_CHECKS)
    assert report.code == 1
    assert not [result for result in report.results if INTERNAL in result.reason]


async def test_a_host_with_a_card_that_hangs_behind_it_fails() -> None:
    """Each check waits for the time limit, and all of them at the same time."""
    checks = [check.id for check in every(BEHIND_CHECKS)]
    with hostile(with_card(hangs)) as url:
        reports = await asyncio.gather(*(judged(url, LIMIT_S, check) for check in checks))
    assert 1 in [report.code for report in reports]
    assert not [result for report in reports for result in report.results if INTERNAL in result.reason]


def test_what_a_host_says_is_escaped_in_the_page(conform: Conform) -> None:
    with hostile(with_card(says(answer(TASK)))) as url:
        done = conform(url, "--only", "get.unknown", "--timeout", PATIENCE_S, "--report-format", "html")
    assert done.code == 1
    assert "<script>" not in done.stdout
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in done.stdout


async def test_what_a_card_says_of_itself_is_cleaned_and_cut() -> None:
    def serve(connection: socket.socket, path: str) -> None:
        host, port = connection.getsockname()
        connection.sendall(answer(card(f"http://{host}:{port}", name="\x1b[31m" + "x" * 100_000)))

    with hostile(serve) as url:
        report = await judged(url, PATIENCE_S, "card.json")
    assert "\x1b" not in report.agent
    assert len(report.agent) < LONGEST + 10


async def test_an_interface_that_cannot_be_called_is_left_out() -> None:
    with (
        hostile(says(answer(card("http://127.0.0.1:99999")))) as url,
        pytest.raises(NotJudged, match="cannot be called"),
    ):
        await judged(url, PATIENCE_S)


def test_an_interface_elsewhere_is_not_called(conform: Conform) -> None:
    """The URL comes from the card, and the user did not say that the token is for that host."""
    other = {"url": "http://localhost:9/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
    with hostile(says(answer(card("", supportedInterfaces=[other])))) as url:
        done = conform(url, "--token", "secret", "--timeout", PATIENCE_S)
    assert done.code == 2
    assert "--any-host" in done.stderr
    assert "secret" not in done.stdout + done.stderr


async def test_a_token_does_not_leave_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The card is served with TLS, and names interfaces on the same host without TLS."""
    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    ca.issue_cert("127.0.0.1").configure_cert(context)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    called: list[str] = []

    def secure(connection: socket.socket, _: str) -> None:
        host, port = connection.getsockname()
        bare = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("GRPC", "1.0")]
        named = [(f"https://{host}:{port}", "HTTP+JSON", "1.0"), *((plain, *one) for one in bare)]
        keys = ("url", "protocolBinding", "protocolVersion")
        interfaces = [dict(zip(keys, one, strict=True)) for one in named]
        connection.sendall(answer(card("", supportedInterfaces=interfaces)))

    with hostile(lambda _, path: called.append(path)) as plain, hostile(secure, context) as url:
        options = ConformOptions(url, token="secret", timeout=PATIENCE_S, only=["card.json", "version.old"])
        report = await judge(options)
    assert report.bindings == ["HTTP+JSON"]
    assert [note.partition(":")[0] for note in report.notes] == [
        f"the interface {name} is without TLS, the card with it" for name in ("JSONRPC", "GRPC")
    ]
    assert "skipped version.old" in [f"{one.outcome} {one.id}" for one in report.results]
    assert "passed card.json" in [f"{one.outcome} {one.id}" for one in report.results]
    assert called == []


@pytest.mark.parametrize("before", [150, 1900, 3950])
async def test_no_part_of_a_token_is_in_a_report(before: int) -> None:
    """The token is in a response where the report cuts it."""
    token = "first-half-of-it-and-the-second-half-of-it" * 2
    said = json.dumps({"error": {"code": 500, "message": "x" * before + f"{token} " * 100}}).encode()
    with hostile(with_card(says(answer(said, status="500 Oops")))) as url:
        report = await judge(
            ConformOptions(url, token=token, timeout=PATIENCE_S, only=["get.task", "send.answer", "errors.info"])
        )
    assert {one.outcome for one in report.results if one.binding == "HTTP+JSON"} == {"failed", "error"}
    assert "***" in str(msgspec.to_builtins(report)) or before > 2000
    assert "first-half" not in str(msgspec.to_builtins(report))
