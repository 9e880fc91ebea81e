"""The extensions and the older paths of agentic-sandbox."""

from __future__ import annotations

from roost.conform.case import Case
from roost.conform.check import BEYOND, HTTP, ONCE, check
from roost.conform.client import EXTENSIONS
from roost.conform.hints import NO_PAUSE
from roost.conform.needs import EXTENSION, HITL_PROMPT, PTY, RUNTIME, SANDBOX
from roost.conform.outcome import CheckFailed, Skipped
from roost.conform.target import MULTI_TENANT
from roost.protocol.errors import Forbidden, InvalidParams

V1 = "/api/v1/agents"
V1_HEADERS = ("sunset", "deprecated", "link")
"""The headers of the contract. `Deprecation` (RFC 9745) is not one of them."""


@check(
    "tenants.echo",
    "A task names its tenant",
    MULTI_TENANT,
    EXTENSION + MULTI_TENANT,
    also="tenant_id_echoed_in_get_task",
)
async def echo(x: Case) -> None:
    headers = {EXTENSIONS: MULTI_TENANT}
    tenant = x.target.options.tenant_id or "default"
    message = x.hints.plain.message(metadata={"tenant_id": tenant})
    response = await x.call("SendMessage", {"message": message}, headers)
    if response.error is not None and response.error.code == x.client.code(Forbidden):
        raise Skipped(f"the caller does not belong to the tenant {tenant}: give --tenant-id")
    if response.result is None:
        raise CheckFailed(response.seen, "SendMessage succeeds")
    if "task" not in response.result:
        raise Skipped("the agent answers with a message and creates no task")
    task = await x.ok("GetTask", {"id": response.result["task"]["id"]}, headers)
    if (task.get("metadata") or {}).get("tenant_id") != tenant:
        raise CheckFailed(task, f"metadata.tenant_id: {tenant}")


@check(
    "tenants.malformed",
    "An invalid tenant_id returns InvalidParams",
    MULTI_TENANT,
    EXTENSION + MULTI_TENANT,
    also="tenant_id_invalid_charset_rejected",
)
async def malformed(x: Case) -> None:
    message = x.hints.plain.message(metadata={"tenant_id": "../other tenant"})
    await x.refused("SendMessage", {"message": message}, InvalidParams, headers={EXTENSIONS: MULTI_TENANT})


@check(
    "hitl.prompt",
    "A task that waits for input carries its prompt",
    HITL_PROMPT,
    EXTENSION + HITL_PROMPT,
    also="input_required_carries_envelope_when_activated",
)
async def prompt(x: Case) -> None:
    if x.hints.pause is None:
        raise Skipped(NO_PAUSE)
    result = await x.ok("SendMessage", {"message": x.hints.pause.message()}, {EXTENSIONS: HITL_PROMPT})
    metadata = result.get("task", {}).get("status", {}).get("message", {}).get("metadata", {})
    found = metadata.get(HITL_PROMPT, {})
    if not {"prompt_id", "prompt", "response_schema"} <= found.keys():
        raise CheckFailed(metadata, "prompt_id, prompt and response_schema")


@check(
    "runtime.keys",
    "A task carries the keys of its runtime",
    RUNTIME,
    EXTENSION + RUNTIME,
    also="task_metadata_carries_runtime_keys_when_activated",
)
async def runtime(x: Case) -> None:
    result = await x.ok("SendMessage", {"message": x.hints.plain.message()}, {EXTENSIONS: RUNTIME})
    metadata = result.get("task", {}).get("metadata", {})
    if not {"runtime.instance_id", "runtime.kind"} <= metadata.keys():
        raise CheckFailed(metadata, "runtime.instance_id and runtime.kind")


@check(
    "v1.sunset",
    "Paths of version 1 announce when they end",
    "agentic-sandbox v1",
    SANDBOX,
    on=ONCE,
    level=BEYOND,
    also="deprecated_v1_path_emits_sunset_header",
)
async def sunset(x: Case) -> None:
    headers = {"Authorization": f"Bearer {x.client.token}"} if x.client.token else {}
    raw = await x.target.http.fetch("GET", x.target.origin + V1, headers)
    absent = [name for name in V1_HEADERS if name not in raw.headers]
    if len(absent) == len(V1_HEADERS) and (raw.status != 200 or raw.kind != "application/json"):
        raise Skipped(f"the host does not serve {V1}")
    if absent:
        raise CheckFailed(dict(raw.headers), f"the headers {', '.join(absent)}")


@check("terminal.attach", "A terminal rejects an unknown subprotocol", PTY, EXTENSION + PTY, on=HTTP[1:])
async def terminal(x: Case) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "cm9vc3QtY29uZm9ybS0wMQ==",
        "Sec-WebSocket-Protocol": "of-nobody",
    }
    if x.client.token:
        headers["Authorization"] = f"Bearer {x.client.token}"
    raw = await x.target.http.fetch("GET", f"{x.target.base}/sessions/conform/attach", headers)
    if raw.status not in (400, 404):
        raise CheckFailed(raw.seen(), "400 unsupported_subprotocol, or 404 if there is no such session")
