"""Answers of a real host to requests whose body has not arrived: the client reads them, and the connection ends."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.processes import FLEET, Server, running
from tests.waiting import PATIENCE_S, eventually

SECRET = "a-secret-of-these-tests"
SIZE = 7_000_000
SEND = "/agents/hello/message:send"
NODE = """
const body = new ReadableStream({
  async pull(to) {
    for (let sent = 0; sent < 70; sent++) to.enqueue(new Uint8Array(100_000));
    to.close();
  },
});
const [url, whole] = process.argv.slice(1);
const said = whole ? new Uint8Array(7_000_000) : body;
const headers = { authorization: "Bearer wrong", "content-type": "application/json" };
const answer = await fetch(url, { method: "POST", body: said, duplex: "half", headers });
console.log(JSON.stringify([answer.status, (await answer.json()).error.status]));
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Server]:
    args = ("--drain-s", "0", "--auth-failures", "3000", "--max-body", "8000000", "--quotas", "surface:admin.rate=1")
    with running(FLEET / "hello.py", args=args, env={"ROOST_TOKEN": SECRET}) as server:
        yield server
        server.stop()
    assert "Traceback" not in server.stderr


def opened(host: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", host.port), PATIENCE_S)


def head(line: str, *headers: str, length: int = SIZE, secret: str = SECRET) -> bytes:
    lines = [f"{line} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {secret}", "A2A-Version: 1.0"]
    lines += ["Content-Type: application/json", f"Content-Length: {length}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def answer(client: socket.socket) -> tuple[int, dict[str, str]]:
    """Read the head and the body of one answer."""
    with client.makefile("rb", buffering=0) as file:
        status = int(file.readline().split()[1])
        headers = {}
        while line := file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        left = int(headers.get("content-length", 0))
        while left:
            left -= len(file.read(left) or b"")
    return status, headers


def gone(client: socket.socket) -> bool:
    """Say whether the host has closed the connection of a client that goes on with its body."""
    try:
        client.sendall(b" ")
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(head(f"POST {SEND}", secret="wrong"), 401, id="a wrong credential"),
        pytest.param(head(f"POST {SEND}", "Origin: https://evil.example.com"), 403, id="a foreign origin"),
        pytest.param(head("POST /agents/nobody/message:send"), 404, id="no such agent"),
        pytest.param(head("POST /nothing"), 404, id="no such path"),
        pytest.param(head("PUT /mcp"), 405, id="another method"),
        pytest.param(head(f"POST {SEND}", length=9_000_000), 413, id="too large a body"),
        pytest.param(head("GET /healthz"), 200, id="a body that no one expects"),
        pytest.param(head("GET /agents/hello/tasks"), 200, id="a listing with a body"),
        pytest.param(head(f"POST {SEND}", "Expect: 100-continue", secret="wrong"), 401, id="a client that asks first"),
    ],
)
def test_an_answer_before_the_body_ends_the_connection(host: Server, sent: bytes, status: int) -> None:
    with opened(host) as client:
        client.sendall(sent)
        found, headers = answer(client)
        assert (found, headers["connection"]) == (status, "close")
        eventually(lambda: gone(client))


def test_a_stream_that_begins_before_the_body_has_ended_ends_the_connection(host: Server) -> None:
    with opened(host) as client:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Ada"}]}
        done = httpx.post(
            f"{host.url}{SEND}",
            json={"message": message},
            headers={"Authorization": f"Bearer {SECRET}", "A2A-Version": "1.0"},
        )
        client.sendall(head(f"GET /agents/hello/tasks/{done.json()['task']['id']}:subscribe"))
        assert answer(client)[1]["connection"] == "close"
        eventually(lambda: gone(client))


def test_fifty_slow_bodies_are_gone_soon_and_others_are_served(host: Server) -> None:
    clients = [opened(host) for _ in range(50)]
    try:
        for client in clients:
            client.sendall(head(f"POST {SEND}", secret="wrong") + b"{")
        for client in clients:
            assert answer(client)[0] == 401
        assert httpx.get(f"{host.url}/healthz").status_code == 200
        for client in clients:
            eventually(lambda client=client: gone(client))  # type: ignore[misc]  # a lambda's default has no type
    finally:
        for client in clients:
            client.close()


def test_a_small_body_with_a_wrong_credential_costs_no_connection(host: Server) -> None:
    body = json.dumps({"message": {}}).encode()
    with opened(host) as client:
        for _ in range(3):
            client.sendall(head(f"POST {SEND}", length=len(body), secret="wrong"))
            status, headers = answer(client)
            assert (status, headers.get("connection")) == (401, None)
            client.sendall(body)
        client.sendall(head(f"POST {SEND}", length=len(body)) + body)
        assert answer(client)[0] == 400


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in pieces"])
def test_httpx_reads_the_answer_while_it_sends(host: Server, whole: bool) -> None:
    body = b"x" * SIZE if whole else (b"x" * 100_000 for _ in range(70))
    with httpx.Client(headers={"Authorization": "Bearer wrong"}, timeout=PATIENCE_S) as client:
        refused = client.post(host.url + SEND, content=body)
        assert (refused.status_code, refused.json()["error"]["status"]) == (401, "UNAUTHENTICATED")
        assert client.get(f"{host.url}/healthz").status_code == 200


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in pieces"])
def test_node_reads_the_answer_while_it_sends(host: Server, whole: bool) -> None:
    words = ("node", "--input-type=module", "--eval", NODE, host.url + SEND, *(["whole"] if whole else []))
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.strip() == '[401,"UNAUTHENTICATED"]', done.stderr
