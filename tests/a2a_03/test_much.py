"""Large, deeply nested and silent tasks in A2A 0.3: the host stays responsive, and refuses what does not fit."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub

from roost import Agent, asgi
from roost.doors import heartbeat, sse
from tests.a2a_03.wire import NAMES, Old, message, problem, proto_sending, sending
from tests.doors.wire import Rest
from tests.grpc.wire import refusal
from tests.processes import Server
from tests.waiting import PATIENCE_S

DEEP: Any = 1
for _ in range(35):
    DEEP = {"x": DEEP}


def data_part(value: Any, **metadata: Any) -> dict[str, Any]:
    return {"kind": "data", "data": value, **({"metadata": metadata} if metadata else {})}


def test_the_host_answers_others_while_much_is_converted(old: Old, server: Server) -> None:
    """Without that, nobody is answered until the conversion is over."""
    old.task("x", "echo")  # loads what converts
    params = {"message": message(parts=[data_part({"x": [1] * 60_000})])}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}).encode()
    sent = threading.Event()

    def content() -> Iterator[bytes]:
        yield body
        sent.set()

    request = old.http.build_request(
        "POST", f"{server.url}/agents/echo", content=content(), headers={"Content-Type": "application/json"}
    )
    with ThreadPoolExecutor(1) as pool, httpx.Client(timeout=PATIENCE_S) as http:
        http.get(f"{server.url}/healthz")
        waiting = pool.submit(old.http.send, request)
        assert sent.wait(PATIENCE_S)
        answered = 0
        while not waiting.done():
            answered += http.get(f"{server.url}/healthz").status_code == 200
    assert waiting.result().json()["result"]["status"]["state"] == "completed"
    assert answered > 2


def test_too_many_values_are_refused(old: Old) -> None:
    many = [0] * 100_002
    with old.unchanged():
        for answer in (
            old.post("message/send", {"message": message(parts=[data_part({"x": many})])}, "echo"),
            old.rest("POST", "message:send", "echo", json=proto_sending(content=[{"data": {"data": {"x": many}}}])),
        ):
            found = problem(answer)
            assert found.reason == "PAYLOAD_TOO_LARGE"
            assert "`A2A-Version: 1.0`" in found.message
    old.task('","\\' * 100_002, "echo")
    old.rest_ok("POST", "message:send", "echo", json=proto_sending("\u044f" * 1_500_000))


async def test_too_many_values_are_refused_over_grpc(old: Old, place: str) -> None:
    request = pb.SendMessageRequest(request=pb.Message(message_id="1", role=pb.ROLE_USER, content=[pb.Part()]))
    request.request.content[0].data.data["x"] = [1.5] * 200_000
    async with grpc.aio.insecure_channel(place) as channel:
        with old.unchanged(), pytest.raises(grpc.aio.AioRpcError) as caught:
            await A2AServiceStub(channel).SendMessage(request, metadata=(("a2a-agent", "echo"),), timeout=PATIENCE_S)
    found = refusal(caught.value)
    assert found.reason == "PAYLOAD_TOO_LARGE"
    assert found.message.startswith(NAMES[found.reason])


def test_a_task_that_0_3_cannot_say_hides_no_others(old: Old, new: Rest) -> None:
    said = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"data": DEEP}]}
    deep = new.ok("SendMessage", {"message": said}, "reject")["task"]["id"]
    other = old.task("x", "reject")["id"]
    listed = {task["id"]: task for task in old.rest_ok("GET", "tasks", "reject")}
    assert {deep, other} <= listed.keys()
    assert listed[deep]["status"]["state"] == "TASK_STATE_REJECTED"
    assert "history" in listed[other]
    for answer in (old.rest("GET", f"tasks/{deep}", "reject"), old.post("tasks/get", {"id": deep}, "reject")):
        found = problem(answer)
        assert found.reason == "UNSUPPORTED_OPERATION"
        assert "`A2A-Version: 1.0`" in found.message


def test_numbers_stay_as_they_were(old: Old) -> None:
    data = {"small": [5, -5.5], "most": 2**53, "least": -(2**53), "huge": 1e308, "null": None}
    answer = old.post("message/send", {"message": message(parts=[data_part(data)])}, "echo")
    assert answer.json()["result"]["history"][0]["parts"] == [data_part(data)]
    assert len(answer.content) < 2000
    content = [{"data": {"data": data}}]
    answer = old.rest("POST", "message:send", "echo", json=proto_sending(content=content))
    assert answer.json()["task"]["history"][0]["content"] == content
    assert len(answer.content) < 2000


@pytest.mark.parametrize("value", [[1, 2], "x", None, {"value": 1}])
def test_data_that_is_no_object_is_marked(old: Old, new: Rest, value: Any) -> None:
    part = data_part({"value": value}, data_part_compat=True)
    task = old.ok("message/send", {"message": message(parts=[part])}, "echo")
    assert new.get(task["id"], "echo")["history"][0]["parts"] == [{"data": value}]
    assert task["history"][0]["parts"] == [part if not isinstance(value, dict) else data_part(value)]


@pytest.mark.parametrize("binding", ["rpc", "rest"])
async def test_a_silent_stream_gets_a_comment_now_and_then(binding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every blank line ends an event with data: httpx-sse, which the Python clients of 0.3 use, would turn any other
    into an event without data. The host runs in this process, where the heartbeat interval can be made short.
    """
    monkeypatch.setattr(heartbeat, "IDLE_S", 0.03)
    gate = asyncio.Event()
    agent = Agent("quiet")

    @agent.on_message
    async def wait(task: Any) -> str:
        await gate.wait()
        return "done"

    host = asgi(agent)
    stream = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": sending()}
    body = json.dumps(stream if binding == "rpc" else proto_sending()).encode()
    requests = iter([{"type": "http.request", "body": body, "more_body": False}])
    chunks: list[bytes] = []

    async def receive() -> dict[str, Any]:
        for request in requests:
            return request
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        chunks.append(message.get("body", b""))
        if chunks.count(sse.KEEP_ALIVE) == 3:
            gate.set()

    path = "/agents/quiet" if binding == "rpc" else "/agents/quiet/v1/message:stream"
    await host.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await host(_scope(path), receive, send)
    finally:
        await host.close()
    *events, rest = b"".join(chunks).split(b"\n\n")
    assert rest == b""
    assert all(re.search(rb"^data: ", event, re.MULTILINE) for event in events)
    assert b"done" in b"".join(events[-2:])


def _scope(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "root_path": "",
    }
