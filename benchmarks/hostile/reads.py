"""Reads of much: large tasks at every door, long lists, many configs, long histories, bundles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old_pb
from a2a.types import a2a_pb2 as pb

from benchmarks.hostile import grpc_shapes, shapes
from benchmarks.hostile.case import BUSY, EITHER, LIMITED, Case, Stage, invalid, outcome
from benchmarks.hostile.senders import MCP, MCP_VERSION, V1, Response, call, call_grpc

Making = Callable[[Stage], str]
"""Makes a task and returns its id."""
MADE = {"text": "7.9 MB of text", "data": "600,000 values", "messages": "400 messages of 20 KB"}
READ = f"{EITHER}|{BUSY}"
MANY = 3000
JSON = "application/json"


def cases() -> Iterator[Case]:
    for kind, what in MADE.items():
        make = MAKE[kind]
        for door, read in READERS.items():
            yield Case(f"GetTask: {what}", door, partial(read, make), READ, make)
        yield Case(f"subscribe 50 times: {what}", "REST", partial(_subscribe, make), READ, make)
        yield Case(f"50 readers at once: {what}", "REST", partial(_readers, make), READ, make)
    yield Case("ListTasks, 100 of 2 MB with artifacts", "REST", _page, READ, large_tasks)
    yield Case("ListTasks, 100 of 2 MB with artifacts", "gRPC", _grpc_page, READ, large_tasks)
    yield Case("tasks/list, 100 of 2 MB", "0.3 REST", _old_page, READ, large_tasks)
    yield Case("list_tasks, 100 of 2 MB", "MCP", _mcp_page, READ, large_tasks)
    yield Case(f"ListTasks, {MANY} contexts", "REST", _contexts, READ, _many_contexts)
    yield Case("a page token of 16 KB", "REST", _page_token, f"{LIMITED}|{invalid('pageToken')}")
    yield Case("10,000 webhooks for a task", "REST", _configs, LIMITED, _open_task)
    yield Case("a bundle of 100 tasks of 2 MB", "admin", _bundle, READ, large_tasks)
    yield Case("a bundle of everything, since 7d", "admin", _whole_bundle, READ, large_tasks)
    yield Case("the audit log, limit 1000", "admin", _audit, READ)
    yield Case("metrics, 20 times", "admin", _metrics, READ)
    yield Case("openapi.json, 50 times", "REST", _openapi, READ)
    yield Case("20,000 messages", "OpenAI chat", partial(_history, "chat"), EITHER)
    yield Case("20,000 messages", "OpenAI responses", partial(_history, "responses"), EITHER)
    yield Case("200,000 item references", "OpenAI responses", _references, f"{EITHER}|{invalid('no such item')}")
    yield Case("a file of 6 MB in a data: URL", "OpenAI chat", _data_url, EITHER)


# What is read


def _text(stage: Stage) -> str:
    return stage.arena.send_text("sink", "x" * 8_280_000)


def _data(stage: Stage) -> str:
    return stage.arena.send_text("large", "data 4")


def _messages(stage: Stage) -> str:
    """Make a task with many turns: an agent that asks is answered again and again."""
    context = str(uuid4())
    task_id = ""
    for _ in range(400):
        message = {
            "messageId": str(uuid4()), "role": "ROLE_USER", "contextId": context, "parts": [{"text": "x" * 20_000}],
            **({"taskId": task_id} if task_id else {}),
        }  # fmt: skip
        status, body = stage.arena.server.post("/agents/asking/message:send", {"message": message})
        if status != 200:
            raise RuntimeError(f"asking answers {status}: {body[:300]!r}")
        task_id = json.loads(body)["task"]["id"]
    return task_id


MAKE: dict[str, Making] = {"text": _text, "data": _data, "messages": _messages}
AGENT: dict[Making, str] = {_text: "sink", _data: "large", _messages: "asking"}


def large_tasks(stage: Stage) -> list[str]:
    return [stage.arena.send_text("large", "text 2") for _ in range(100)]


def _many_contexts(stage: Stage) -> list[str]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda number: stage.arena.send_text("sink", f"{number}"), range(MANY)))


def _open_task(stage: Stage) -> str:
    return stage.arena.send_text("asking", "hi")


# One large task, at each door


def _rest(make: Making, stage: Stage) -> str:
    return outcome(call(stage.port, "GET", f"/agents/{AGENT[make]}/tasks/{stage.made(make)}"))


def _rest_history(make: Making, stage: Stage) -> str:
    return outcome(call(stage.port, "GET", f"/agents/{AGENT[make]}/tasks/{stage.made(make)}?historyLength=1"))


def _rpc(method: str, headers: dict[str, str], make: Making, stage: Stage) -> str:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": stage.made(make)}}
    return outcome(call(stage.port, "POST", f"/agents/{AGENT[make]}", json.dumps(body).encode(), headers))


def _old_rest(make: Making, stage: Stage) -> str:
    return outcome(call(stage.port, "GET", f"/agents/{AGENT[make]}/v1/tasks/{stage.made(make)}", None, {}))


def _grpc(make: Making, stage: Stage) -> str:
    request = pb.GetTaskRequest(tenant=AGENT[make], id=stage.made(make)).SerializeToString()
    return outcome(call_grpc(stage.grpc_port, grpc_shapes.V1_SERVICE, "GetTask", request, {"a2a-version": "1.0"}))


def _old_grpc(make: Making, stage: Stage) -> str:
    request = old_pb.GetTaskRequest(name=f"tasks/{stage.made(make)}").SerializeToString()
    metadata = {"a2a-agent": AGENT[make]}
    return outcome(call_grpc(stage.grpc_port, grpc_shapes.OLD_SERVICE, "GetTask", request, metadata))


def _mcp(make: Making, stage: Stage) -> str:
    return outcome(mcp(stage, "get_task", {"taskId": stage.made(make)}))


def mcp(stage: Stage, tool: str, arguments: dict[str, Any]) -> Response:
    meta = {"io.modelcontextprotocol/protocolVersion": MCP_VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return call(stage.port, "POST", "/mcp", json.dumps(body).encode(), {**MCP, "Mcp-Name": tool})


def _response(make: Making, stage: Stage) -> str:
    path = f"/openai/v1/responses/resp_{AGENT[make]}_{stage.made(make)}_1"
    return outcome(call(stage.port, "GET", path, None, {}))


def _input_items(make: Making, stage: Stage) -> str:
    path = f"/openai/v1/responses/resp_{AGENT[make]}_{stage.made(make)}_1/input_items?limit=100"
    return outcome(call(stage.port, "GET", path, None, {}))


def _admin_task(make: Making, stage: Stage) -> str:
    return outcome(call(stage.port, "GET", f"/api/v2/admin/tasks/{stage.made(make)}", None, _admin(stage)))


def _exported(make: Making, stage: Stage) -> str:
    path = f"/api/v2/admin/evidence?task={stage.made(make)}"
    return outcome(call(stage.port, "GET", path, None, _admin(stage)))


READERS: dict[str, Callable[[Making, Stage], str]] = {
    "REST": _rest,
    "REST, historyLength": _rest_history,
    "JSON-RPC": partial(_rpc, "GetTask", V1),
    "0.3 JSON-RPC": partial(_rpc, "tasks/get", {}),
    "0.3 REST": _old_rest,
    "gRPC": _grpc,
    "0.3 gRPC": _old_grpc,
    "MCP": _mcp,
    "OpenAI response": _response,
    "OpenAI input_items": _input_items,
    "admin": _admin_task,
    "evidence": _exported,
}


def _subscribe(make: Making, stage: Stage) -> str:
    path = f"/agents/{AGENT[make]}/tasks/{stage.made(make)}:subscribe"
    headers = {**V1, "Last-Event-ID": "1"}  # a task that is over can be read again from its beginning

    def one(_: int) -> str:
        # An agent that asks keeps its stream open, so that only the beginning is read.
        return outcome(call(stage.port, "GET", path, None, headers, read=False))

    with ThreadPoolExecutor(50) as pool:
        return max(pool.map(one, range(50)))


def _readers(make: Making, stage: Stage) -> str:
    path = f"/agents/{AGENT[make]}/tasks/{stage.made(make)}"
    with ThreadPoolExecutor(50) as pool:
        return max(pool.map(lambda _: outcome(call(stage.port, "GET", path)), range(50)))


# Lists


def _page(stage: Stage) -> str:
    return outcome(call(stage.port, "GET", "/agents/large/tasks?pageSize=100&includeArtifacts=true"))


def _grpc_page(stage: Stage) -> str:
    request = pb.ListTasksRequest(tenant="large", page_size=100, include_artifacts=True).SerializeToString()
    return outcome(call_grpc(stage.grpc_port, grpc_shapes.V1_SERVICE, "ListTasks", request, {"a2a-version": "1.0"}))


def _old_page(stage: Stage) -> str:
    return outcome(call(stage.port, "GET", "/agents/large/v1/tasks", None, {}))


def _mcp_page(stage: Stage) -> str:
    return outcome(mcp(stage, "list_tasks", {"agent": "large", "limit": 100}))


def _contexts(stage: Stage) -> str:
    return max(outcome(call(stage.port, "GET", "/agents/sink/tasks?pageSize=100&historyLength=0")) for _ in range(10))


def _page_token(stage: Stage) -> str:
    return outcome(call(stage.port, "GET", f"/agents/sink/tasks?pageToken={'A' * 16_000}"))


def _configs(stage: Stage) -> str:
    path = f"/agents/asking/tasks/{stage.made(_open_task)}/pushNotificationConfigs"
    found = ""
    for number in range(10_000):
        body = json.dumps({"url": f"{stage.issuer.url}/{number}", "id": f"hook-{number}"}).encode()
        found = outcome(call(stage.port, "POST", path, body))
        if found != "accepted":
            break
    listed = call(stage.port, "GET", f"{path}?pageSize=100")
    return found if listed.status == "200" else outcome(listed)


# Bundles and other pages of the operator


def _admin(stage: Stage) -> dict[str, str]:
    return {"Authorization": f"Bearer {stage.arena.admin_token}"}


def _bundle(stage: Stage) -> str:
    tasks = ",".join(stage.made(large_tasks))
    return outcome(call(stage.port, "GET", f"/api/v2/admin/evidence?task={tasks}", None, _admin(stage)))


def _whole_bundle(stage: Stage) -> str:
    return outcome(call(stage.port, "GET", "/api/v2/admin/evidence?since=7d", None, _admin(stage)))


def _audit(stage: Stage) -> str:
    return outcome(call(stage.port, "GET", "/api/v2/admin/audit?limit=1000", None, _admin(stage)))


def _metrics(stage: Stage) -> str:
    return max(outcome(call(stage.port, "GET", "/metrics", None, _admin(stage))) for _ in range(20))


def _openapi(stage: Stage) -> str:
    return max(outcome(call(stage.port, "GET", "/openapi.json", None, {})) for _ in range(50))


# OpenAI


def _history(kind: str, stage: Stage) -> str:
    said = [{"role": role, "content": "x" * 300} for _ in range(10_000) for role in ("user", "assistant")]
    said.append({"role": "user", "content": "hi"})
    name, path = {"chat": ("messages", "chat/completions"), "responses": ("input", "responses")}[kind]
    body = json.dumps({"model": "sink", name: said}).encode()
    return outcome(call(stage.port, "POST", f"/openai/v1/{path}", body, {}))


def _references(stage: Stage) -> str:
    items: list[dict[str, Any]] = [{"type": "item_reference", "id": "msg_x"}] * 150_000
    items = [*items, {"role": "user", "content": "hi"}]
    return outcome(
        call(stage.port, "POST", "/openai/v1/responses", json.dumps({"model": "sink", "input": items}).encode(), {})
    )


def _data_url(stage: Stage) -> str:
    url = b'"data:image/png;base64,' + shapes.raw("standard")[1:]
    body = (
        b'{"model":"sink","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%b}}]}]}' % url
    )
    return outcome(call(stage.port, "POST", "/openai/v1/chat/completions", body, {}))
