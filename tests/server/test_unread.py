"""Clients that ask for much and read nothing, or read slowly: what the host keeps for them is bounded.

The host is a process of its own, so that its memory can be measured. Its clients are sockets that nobody reads.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from typing import Any

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2 as pb

from tests.grpc.wire import GRPC, place_of
from tests.processes import Server, running
from tests.waiting import PATIENCE_S, eventually

MB = 1024 * 1024
SIZE = int(7.5 * MB)
PHRASE = "\u2028 a line end of JavaScript, and \u00e9\u4e2d\U0001f600 "
TEXT = PHRASE * (SIZE // len(PHRASE.encode()))
"""About SIZE bytes of JSON, with characters of each length and one that is escaped in server-sent events."""
WRITE_S = 3.0
GROWTH_MB = 150
AGENT = """
from roost import Agent

agent = Agent("big")


@agent.on_message
async def talk(task):
    if task.text.startswith("ask"):
        await task.ask("why?")
    yield "done"
"""
HEADERS = {"A2A-Version": "1.0"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("unread")
    (folder / "big.py").write_text(AGENT)
    args = (*GRPC, "--write-s", str(WRITE_S), "--max-unsent-mb", "64")
    with running(folder / "big.py", data=folder / "data", args=args) as found:
        yield found


def send(server: Server, text: str) -> dict[str, Any]:
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    url = f"{server.url}/agents/big/message:send"
    answer = httpx.post(url, json={"message": message}, headers=HEADERS, timeout=PATIENCE_S)
    task: dict[str, Any] = answer.raise_for_status().json()["task"]
    return task


@pytest.fixture(scope="module")
def tasks(server: Server) -> list[str]:
    """Five tasks that have ended, and are about as large as a message may be."""
    return [send(server, TEXT)["id"] for _ in range(5)]


def memory_mb(server: Server) -> float:
    """The resident memory of the host and the processes that it started."""
    group = subprocess.run(
        ["ps", "-o", "rss=", "-g", str(server.process.pid)], capture_output=True, text=True, check=True
    )
    return sum(map(int, group.stdout.split())) / 1024


def unread(server: Server, stack: ExitStack, path: str, times: int = 1) -> None:
    """Open a connection that asks for a path, as often as told, and does not read."""
    line = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nA2A-Version: 1.0\r\n\r\n"
    found = stack.enter_context(socket.socket())
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.settimeout(PATIENCE_S)
    found.connect(("127.0.0.1", server.port))
    found.sendall(line.encode() * times)


def counted(server: Server, kind: str) -> int:
    metrics = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_S).text
    found = re.search(rf'^roost_connection_refusals_total{{kind="{kind}"}} (\d+)', metrics, re.MULTILINE)
    return int(found[1]) if found else 0


def answered(server: Server, status: int) -> int:
    """How many requests for a task have been answered so."""
    metrics = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_S).text
    found = re.findall(rf'^roost_http_requests_total\{{.*status="{status}"\}} (\d+)', metrics, re.MULTILINE)
    return sum(map(int, found))


class Peak:
    """The most memory that the host has while the block lasts, and proof that it answers others."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.most = self.before = memory_mb(server)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look)

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    @property
    def growth(self) -> float:
        return self.most - self.before

    def _look(self) -> None:
        while not self.over.wait(0.05):
            self.most = max(self.most, memory_mb(self.server))


def test_200_connections_that_do_not_read_a_large_task_share_it(server: Server, tasks: list[str]) -> None:
    closed = counted(server, "write_time")
    with ExitStack() as stack, Peak(server) as peak:
        for _ in range(200):
            unread(server, stack, f"/agents/big/tasks/{tasks[0]}")
        assert send(server, "small")["status"]["state"] == "TASK_STATE_COMPLETED"
        eventually(lambda: counted(server, "write_time") >= closed + 200)
    assert peak.growth < GROWTH_MB
    eventually(lambda: memory_mb(server) < peak.before + GROWTH_MB / 2, "the memory that comes back")


def test_lists_that_nobody_reads_are_no_larger_than_their_pages(server: Server, tasks: list[str]) -> None:
    closed = counted(server, "write_time")
    with ExitStack() as stack, Peak(server) as peak:
        for _ in range(6):
            unread(server, stack, "/agents/big/tasks?pageSize=100&includeArtifacts=true")
        eventually(lambda: counted(server, "write_time") >= closed + 2)
        page = httpx.get(f"{server.url}/agents/big/tasks?pageSize=1", headers=HEADERS, timeout=PATIENCE_S)
        assert page.json()["totalSize"] >= len(tasks)
    assert peak.growth < GROWTH_MB


def test_who_asks_for_more_than_its_share_waits_and_is_told_to_try_again(server: Server, tasks: list[str]) -> None:
    """Five different tasks of 7.5 MB are more than the 16 MB of one caller. Pipelined requests gain nothing."""
    refused = answered(server, 429)
    with ExitStack() as stack, Peak(server) as peak:
        for task in tasks:
            for _ in range(5):
                unread(server, stack, f"/agents/big/tasks/{task}", times=20)
        eventually(lambda: answered(server, 429) > refused)
        small = send(server, "small")["id"]
        answer = httpx.get(f"{server.url}/agents/big/tasks/{small}", headers=HEADERS, timeout=PATIENCE_S)
        assert answer.status_code == 200
    assert peak.growth < GROWTH_MB
    answer = httpx.get(f"{server.url}/agents/big/tasks/{tasks[0]}", headers=HEADERS, timeout=PATIENCE_S)
    assert answer.status_code == 200
    assert len(answer.content) > 7 * MB


def slowly(server: Server, request: bytes, until: bytes = b"") -> bytes:
    """The response to a request, read in small steps: to its end, or until it contains this."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", server.port))
        client.sendall(request)
        found = bytearray()
        while piece := client.recv(16 * 1024):
            found += piece
            if until and until in found[-len(piece) - len(until) :]:
                break
        return bytes(found)


def asking(server: Server, line: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{line} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "A2A-Version: 1.0", "Connection: close", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_slow_readers_get_every_byte(server: Server, tasks: list[str]) -> None:
    """The same body through REST and JSON-RPC, of a task that many read at the same time."""
    url = f"{server.url}/agents/big/tasks/{tasks[0]}"
    whole = httpx.get(url, headers=HEADERS, timeout=PATIENCE_S).content
    assert json.loads(whole)["history"][0]["parts"][0]["text"] == TEXT
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": tasks[0]}}
    rest = asking(server, f"GET /agents/big/tasks/{tasks[0]}")
    rpc = asking(server, "POST /agents/big", json.dumps(call).encode())
    expected = {rest: whole, rpc: b'{"jsonrpc":"2.0","id":1,"result":%b}' % whole}
    digests: list[tuple[bytes, str]] = []

    def read(request: bytes) -> None:
        digests.append((request, sha256(slowly(server, request).partition(b"\r\n\r\n")[2]).hexdigest()))

    with ExitStack() as stack:
        for _ in range(20):
            unread(server, stack, f"/agents/big/tasks/{tasks[0]}")
        threads = [threading.Thread(target=read, args=(request,)) for request in [rest, rpc] * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(digests) == 8
    for request, digest in digests:
        assert digest == sha256(expected[request]).hexdigest()


def test_head_names_the_length_and_sends_nothing(server: Server, tasks: list[str]) -> None:
    url = f"{server.url}/agents/big/tasks/{tasks[0]}"
    whole = httpx.get(url, headers=HEADERS, timeout=PATIENCE_S).content
    answer = slowly(server, asking(server, f"HEAD /agents/big/tasks/{tasks[0]}"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b""
    if b" 200 " in head.splitlines()[0]:
        assert b"content-length: %d" % len(whole) in head.lower()


@pytest.mark.parametrize("rpc", [False, True])
def test_subscribers_that_do_not_read_the_opening_share_it(server: Server, rpc: bool) -> None:
    task = send(server, f"ask {TEXT}")["id"]
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
    body = json.dumps(call).encode()
    resumed = ("Last-Event-ID: 1",)
    line = f"GET /agents/big/tasks/{task}:subscribe"
    with ExitStack() as stack, Peak(server) as peak:
        for number in range(60):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            more = resumed if number % 2 else ()
            client.sendall(asking(server, "POST /agents/big", body, *more) if rpc else asking(server, line, b"", *more))
        request = asking(server, "POST /agents/big", body) if rpc else asking(server, line)
        answer = slowly(server, request, until=b"\n\n")
    assert peak.growth < GROWTH_MB
    event = unchunked(answer.partition(b"\r\n\r\n")[2])
    assert "\u2028".encode() not in event
    data = json.loads(event.partition(b"data: ")[2].partition(b"\n\n")[0])
    found = (data["result"] if rpc else data)["task"]
    assert found["history"][0]["parts"][0]["text"] == f"ask {TEXT}"


def unchunked(body: bytes) -> bytes:
    found = []
    while body:
        size, _, body = body.partition(b"\r\n")
        found.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(found)


def test_a_listing_returns_each_large_task_once(server: Server, tasks: list[str]) -> None:
    found: list[str] = []
    token = ""
    while True:
        query = {"pageSize": "100", "includeArtifacts": "true", **({"pageToken": token} if token else {})}
        answer = httpx.get(f"{server.url}/agents/big/tasks", params=query, headers=HEADERS, timeout=PATIENCE_S)
        page = answer.raise_for_status().json()
        assert len(answer.content) < 8 * MB + MB
        found += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert len(found) == len(set(found)) == page["totalSize"]
    assert set(tasks) <= set(found)


async def test_many_large_responses_over_grpc_wait_for_each_other(server: Server, tasks: list[str]) -> None:
    """Each is converted for its client alone, so that they do not fit next to each other. All of them arrive."""
    asked = tasks[:3] * 2
    with Peak(server) as peak:
        async with grpc.aio.insecure_channel(place_of(server), [("grpc.max_receive_message_length", -1)]) as channel:
            ask = channel.unary_unary("/lf.a2a.v1.A2AService/GetTask", None, pb.Task.FromString)
            requests = [pb.GetTaskRequest(tenant="big", id=task).SerializeToString() for task in asked]
            metadata = (("a2a-version", "1.0"),)
            calls = [ask(request, metadata=metadata, timeout=PATIENCE_S) for request in requests]
            found = await asyncio.gather(*calls)
    assert [task.id for task in found] == asked
    assert {task.history[0].parts[0].text for task in found} == {TEXT}
    assert peak.growth < 2 * GROWTH_MB
    eventually(lambda: unsent(server) == 0, "the room that is given back")


def unsent(server: Server) -> float:
    found = re.search(r"^roost_unsent_bytes (\S+)", httpx.get(f"{server.url}/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])
