"""Large requests mean the same as small ones at every door, and what exceeds a limit is refused by its name."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import A2AServiceStub as OldStub
from a2a.types import a2a_pb2 as pb
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from google.protobuf.json_format import MessageToDict, ParseDict

from roost.doors.requests import LARGE_BODIES
from roost.engine.budget import SHARE
from tests.doors.serving import healthy
from tests.doors.wire import VERSION, Door, Rest, Rpc
from tests.grpc.wire import GRPC, place_of
from tests.mcp_door.clients import connected
from tests.processes import Server
from tests.waiting import PATIENCE_S

AGENTS = '''
from roost import Agent, Part

total = Agent("total", parallel=True)

@total.on_message
def add(task):
    """Counts and adds the values of `v`, and says how long the text is."""
    values = task.data["v"] if task.data else []
    return {"count": len(values), "sum": sum(values), "text": len(task.text)}

mirror = Agent("mirror", parallel=True)

@mirror.on_message
def send_back(task):
    """Sends its data back."""
    return Part(data=task.data)

apart = Agent("apart", process=True)

@apart.on_message
def add_apart(task):
    """Adds in a process of its own."""
    return {"count": len(task.data["v"])}

says = Agent("says", parallel=True)

@says.on_message
async def say(task):
    """Says what it hears."""
    yield task.text

asks_on = Agent("asks-on")

@asks_on.on_message
async def ask_on(task):
    """Never stops asking."""
    for _ in range(9):
        await task.ask("More?")

asks = Agent("asks")

@asks.on_message
async def ask(task):
    """Asks for values."""
    answer = await task.ask("Values?")
    return {"count": len(answer.data["v"])}
'''
COUNT = 60_000
VALUES = {"v": list(range(COUNT))}
EXPECTED = {"count": COUNT, "sum": sum(range(COUNT)), "text": 5}
LIMITS = ("--max-values", "150000", "--max-digits", "50", "--max-depth", "60", "--max-task-mb", "1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    agents = tmp_path_factory.mktemp("fleet") / "agents.py"
    agents.write_text(AGENTS)
    with healthy(agents, data=tmp_path_factory.mktemp("data"), args=(*GRPC, *LIMITS)) as host:
        yield host


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S, base_url=server.url) as client:
        yield client


def message(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": list(parts), **more}}


def result(task: dict[str, Any]) -> Any:
    return task["artifacts"][0]["parts"][0]["data"]


# The same meaning


def test_a_large_message_is_read_as_a_small_one(door: Door) -> None:
    sent = door.ok("SendMessage", message({"text": "hello"}, {"data": VALUES}), "total")
    assert result(sent["task"]) == EXPECTED
    assert sent["task"]["history"][0]["parts"][1]["data"] == VALUES


def test_protojsons_liberties_are_taken_in_large_messages_too(http: httpx.Client) -> None:
    body = {
        "message": {
            "message_id": str(uuid.uuid4()),
            "role": 1,
            "parts": [{"data": VALUES, "media_type": None}, {"raw": "_-8"}],
        }
    }
    sent = http.post("/agents/total/message:send", json=body, headers=VERSION).json()
    assert result(sent["task"])["count"] == COUNT
    assert sent["task"]["history"][0]["parts"][1]["raw"] == "/+8="


def test_large_data_comes_back_as_it_was_sent(rest: Rest) -> None:
    values = {"v": [[index, float(index) + 0.5, str(index), None, {"k": index}] for index in range(4000)]}
    sent = rest.ok("SendMessage", message({"data": values}), "mirror")
    assert result(sent["task"]) == values
    read = rest.ok("GetTask", {"id": sent["task"]["id"], "historyLength": 1}, "mirror")
    assert read["history"][0]["parts"][0]["data"] == values
    assert result(read) == values


def test_blanks_and_line_ends_in_large_data_do_not_reach_the_journal(http: httpx.Client) -> None:
    body = json.dumps(message({"data": VALUES}), indent=1).encode()
    with http.stream(
        "POST",
        "/agents/total/message:stream",
        content=body,
        headers={**VERSION, "Content-Type": "application/json"},
    ) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert {line.partition(":")[0] for line in lines} <= {"id", "data", ""}
    assert len(json.loads(lines[0].removeprefix("data: ") if lines[0].startswith("data") else lines[1][6:])) == 1


def test_a_large_message_sent_twice_is_one_task_whatever_its_form(http: httpx.Client) -> None:
    body = message({"data": {"v": [1.5, 2.0, 1e21] * 5000}})
    swapped = {"message": dict(reversed(body["message"].items()))}
    first = http.post("/agents/mirror/message:send", json=body, headers=VERSION)
    again = http.post(
        "/agents/mirror/message:send",
        content=json.dumps(swapped, indent=2),
        headers={**VERSION, "Content-Type": "application/json"},
    )
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json()["task"]["id"] == first.json()["task"]["id"]
    body["message"]["parts"][0]["data"]["v"][-1] = 7
    other = http.post("/agents/mirror/message:send", json=body, headers=VERSION)
    assert other.status_code == 422


async def test_grpc_and_http_agree_on_what_a_large_message_is(server: Server, http: httpx.Client) -> None:
    body = message({"data": {"v": [0.5] * 20_000}})
    sent = http.post("/agents/mirror/message:send", json=body, headers=VERSION).json()["task"]["id"]
    async with grpc.aio.insecure_channel(
        place_of(server), options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        request = ParseDict({**body, "tenant": "mirror"}, pb.SendMessageRequest())
        answer = await A2AServiceStub(channel).SendMessage(request, metadata=(("a2a-version", "1.0"),))
        assert answer.task.id == sent
        read = await A2AServiceStub(channel).GetTask(
            pb.GetTaskRequest(id=sent, tenant="mirror"), metadata=(("a2a-version", "1.0"),)
        )
        assert MessageToDict(read)["artifacts"][0]["parts"][0]["data"] == {"v": [0.5] * 20_000}
        stream = A2AServiceStub(channel).SendStreamingMessage(
            ParseDict({**message({"data": VALUES}), "tenant": "total"}, pb.SendMessageRequest()),
            metadata=(("a2a-version", "1.0"),),
        )
        events = [event async for event in stream]
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED


def test_an_agent_in_a_process_and_an_answer_get_large_data(rest: Rest) -> None:
    assert result(rest.ok("SendMessage", message({"data": VALUES}), "apart")["task"]) == {"count": COUNT}
    asked = rest.ok("SendMessage", message({"text": "hello"}), "asks")["task"]
    answered = rest.ok("SendMessage", message({"data": VALUES}, taskId=asked["id"]), "asks")["task"]
    assert result(answered) == {"count": COUNT}


def test_a2a_03_converts_large_messages(http: httpx.Client) -> None:
    parts = [{"kind": "text", "text": "hello"}, {"kind": "data", "data": VALUES}]
    params = {"message": {"kind": "message", "messageId": str(uuid.uuid4()), "role": "user", "parts": parts}}
    sent = http.post("/agents/total", json={"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params})
    assert result(sent.json()["result"]) == EXPECTED
    content = [{"text": "hello"}, {"data": {"data": VALUES}}]
    old = {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "content": content}}
    rest = http.post("/agents/total/v1/message:send", json=old)
    assert rest.json()["task"]["artifacts"][0]["parts"][0]["data"]["data"] == EXPECTED


async def test_grpc_of_03_converts_large_messages(server: Server) -> None:
    old = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "content": [{"data": {"data": VALUES}}]}
    async with grpc.aio.insecure_channel(
        place_of(server), options=[("grpc.max_receive_message_length", -1)]
    ) as channel:
        answer = await OldStub(channel).SendMessage(
            ParseDict({"request": old}, old_pb.SendMessageRequest()), metadata=(("a2a-agent", "total"),)
        )
    assert MessageToDict(answer.task)["artifacts"][0]["parts"][0]["data"]["data"]["count"] == COUNT


async def test_mcp_takes_large_data(server: Server) -> None:
    async with connected(server.url) as client:
        called = await client.call_tool("total", {"text": "hello", "data": VALUES})
        assert called.structured_content is not None
        assert result(called.structured_content) == EXPECTED
        mirrored = await client.call_tool("mirror", {"text": "hello", "data": VALUES})
    assert mirrored.structured_content is not None
    assert mirrored.structured_content["artifacts"] == []
    texts = [block.text for block in mirrored.content if block.type == "text"]
    assert json.loads(texts[0]) == VALUES
    assert "too many values" in texts[-1]


@pytest.mark.parametrize(("path", "name"), [("chat/completions", "messages"), ("responses", "input")])
def test_openai_takes_a_large_history(http: httpx.Client, path: str, name: str) -> None:
    said = [{"role": "user" if at % 2 == 0 else "assistant", "content": f"number {at}"} for at in range(20_000)]
    body = {"model": "total", name: [*said, {"role": "user", "content": "hello"}]}
    answer = http.post(f"/openai/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    task = http.get(f"/agents/total/tasks/{answer.json()['metadata']['task_id']}", headers=VERSION).json()
    beside = task["history"][0]["metadata"]["openai"]
    assert beside["history"][-1] == {"role": "assistant", "content": "number 19999"}
    assert len(beside["history"]) + beside["omitted"] == 20_000
    assert '"text":5' in answer.text.replace("\\", "")


def test_a_large_openai_request_is_refused_for_what_is_wrong_with_it(http: httpx.Client) -> None:
    said = [{"role": "user", "content": "x"}] * 3000
    unknown = http.post("/openai/v1/chat/completions", json={"model": "nobody", "messages": said})
    assert unknown.status_code == 404
    tools = http.post("/openai/v1/chat/completions", json={"model": "total", "messages": said, "tools": [{}]})
    assert tools.json()["error"]["param"] == "tools"
    parts = http.post("/openai/v1/chat/completions", json={"model": "total", "messages": said})
    assert (parts.status_code, parts.json()["error"]["param"]) == (400, "messages")
    last = [*said, {"role": "assistant", "content": "x"}]
    order = http.post("/openai/v1/chat/completions", json={"model": "total", "messages": last})
    assert order.json()["error"]["param"] == "messages[3000].role"


def test_many_of_one_caller_are_all_answered(http: httpx.Client) -> None:
    """Large requests and results of one caller are converted one after the other, and none is refused."""
    text = "a sentence, with commas. " * 2400

    def rest(_: int) -> int:
        return http.post("/agents/total/message:send", json=message({"text": text}), headers=VERSION).status_code

    def old(_: int) -> int:
        parts = [{"kind": "text", "text": text}]
        params = {"message": {"kind": "message", "messageId": str(uuid.uuid4()), "role": "user", "parts": parts}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
        return http.post("/agents/total", json=body).status_code

    with ThreadPoolExecutor(60) as pool:
        assert set(pool.map(rest, range(60))) == {200}
        assert set(pool.map(old, range(60))) == {200}


async def test_mcp_takes_and_gives_prose(server: Server) -> None:
    text = "a sentence, with commas. " * 2400
    async with connected(server.url) as client:
        called = await client.call_tool("says", {"text": text})
    assert called.structured_content is not None
    assert called.structured_content["artifacts"][0]["parts"][0]["text"] == text


def test_a_task_that_has_grown_large_takes_no_more_answers(rest: Rest) -> None:
    task = rest.ok("SendMessage", message({"text": "hello"}), "asks-on")["task"]
    for _ in range(2):
        rest.ok("SendMessage", message({"text": "a" * 700_000}, taskId=task["id"]), "asks-on")
    problem = rest.refused("SendMessage", message({"text": "more"}, taskId=task["id"]), "asks-on")
    assert problem.reason == "PAYLOAD_TOO_LARGE"
    assert "max_task_mb" in problem.message
    assert rest.ok("CancelTask", {"id": task["id"]}, "asks-on")["status"]["state"] == "TASK_STATE_CANCELED"


# The limits


TOO_MUCH = [
    pytest.param([0] * 150_001, "max_values", id="numbers"),
    pytest.param({f"k{index}": "" for index in range(150_001)}, "max_values", id="names"),
    pytest.param([int("7" * 51)], "max_digits", id="digits"),
]


@pytest.mark.parametrize(("data", "named"), TOO_MUCH)
def test_too_much_is_refused_by_the_name_of_the_setting(door: Door, data: Any, named: str) -> None:
    problem = door.refused("SendMessage", message({"data": data}), "total")
    assert problem.reason == "INVALID_PARAMS"
    assert named in problem.message


async def test_too_much_is_refused_over_grpc(server: Server) -> None:
    async with grpc.aio.insecure_channel(place_of(server)) as channel:
        for parts in ([{"data": [0] * 150_001}], [{}] * 700_000):
            request = ParseDict({**message(*parts), "tenant": "total"}, pb.SendMessageRequest())
            with pytest.raises(grpc.aio.AioRpcError, match="max_values"):
                await A2AServiceStub(channel).SendMessage(request, metadata=(("a2a-version", "1.0"),))


@pytest.mark.parametrize("path", ["openai/v1/chat/completions", "mcp", "agents/total/v1/messages:send"])
def test_too_much_is_refused_at_the_other_doors(http: httpx.Client, path: str) -> None:
    answer = http.post(
        f"/{path}",
        json={"model": "total", "messages": [0] * 150_001, "message": {}},
        headers={"A2A-Version": "1.0", "Accept": "application/json, text/event-stream"},
    )
    assert answer.status_code == 400
    assert "max_values" in answer.text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messageId": "m" * 1025}, "message.messageId"),
        ({"extensions": ["https://example.com"] * 1001}, "message.extensions"),
        ({"referenceTaskIds": ["t"] * 1001}, "message.referenceTaskIds"),
        ({"parts": [{"text": "a", "metadata": {"a": "b" * 70_000}}]}, "message.parts[0].metadata"),
        ({"parts": [{"text": "a"}] * 1001}, "message.parts"),
    ],
)
def test_other_lists_and_names_have_limits(door: Door, change: dict[str, Any], field: str) -> None:
    problem = door.refused("SendMessage", message({"text": "a"}, **change), "total")
    assert problem.fields == [field]


@pytest.mark.parametrize("binding", [Rest, Rpc])
def test_only_messages_may_be_large(server: Server, http: httpx.Client, binding: type[Door]) -> None:
    door = binding(http, server.url)
    task = door.ok("SendMessage", message({"text": "hello"}), "total")["task"]["id"]
    problem = door.refused("CancelTask", {"id": task, "metadata": {"v": [0] * 5000}}, "total")
    assert "only messages" in problem.message


# Room for bodies

MB = 1024 * 1024


def slow(server: Server, length: int, sent: int) -> socket.socket:
    """A request whose body does not arrive in full."""
    client = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST /agents/total/message:send HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n"
    client.sendall(head.encode() + b"Content-Type: application/json\r\nA2A-Version: 1.0\r\n\r\n" + b" " * sent)
    return client


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Server]:
    """A host that reads bodies of up to 1 MB."""
    agents = tmp_path / "agents.py"
    agents.write_text(AGENTS)
    with healthy(agents, data=tmp_path / "data", args=("--max-body", str(MB), "--head-s", "60")) as host:
        yield host


def test_a_caller_whose_large_bodies_take_its_room_waits_with_the_next_and_nobody_else_does(small: Server) -> None:
    large = message({"text": "a" * (MB // 2)})
    path = f"{small.url}/agents/total/message:send"
    with httpx.Client(timeout=PATIENCE_S, headers=VERSION) as client, ThreadPoolExecutor(1) as pool:
        held = [slow(small, MB, MB // 2) for _ in range(LARGE_BODIES // SHARE)]
        waiting = pool.submit(lambda: httpx.post(path, json=large, headers=VERSION, timeout=PATIENCE_S))
        assert client.post(path, json=message({"text": "a"})).status_code == 200
        assert not waiting.done()
        held.pop().close()
        assert result(waiting.result().json()["task"])["text"] == MB // 2
        for one in held:
            one.close()


def test_bodies_that_hardly_grow_make_way_for_others(small: Server) -> None:
    held = [slow(small, MB, MB // 2) for _ in range(LARGE_BODIES // SHARE)]
    sent = httpx.post(
        f"{small.url}/agents/total/message:send",
        json=message({"text": "a" * (MB // 2)}),
        headers=VERSION,
        timeout=PATIENCE_S,
    )
    assert result(sent.json()["task"])["text"] == MB // 2
    answers = [one.recv(4096) for one in held]
    assert any(one.startswith(b"HTTP/1.1 408") for one in answers)
    for one in held:
        one.close()
