"""Negotiation of the protocol version."""

from __future__ import annotations

import json
import uuid

from roost.conform.case import Case
from roost.conform.check import HTTP, ONCE, SHOULD, check
from roost.conform.client import EXTENSIONS, VERSION
from roost.conform.outcome import CheckFailed, Skipped
from roost.protocol.errors import VersionNotSupported


@check("version.current", "Requests of version 1.0 are accepted", "3.6.2")
async def current(x: Case) -> None:
    await x.ok("SendMessage", {"message": x.hints.plain.message()}, {VERSION: "1.0"})


@check("version.unknown", "An unknown version returns VersionNotSupported", "3.6.2")
async def unknown(x: Case) -> None:
    await x.refused("SendMessage", {"message": x.hints.plain.message()}, VersionNotSupported, headers={VERSION: "99.0"})


@check("version.absent", "A request without a version is treated as version 0.3", "3.6.2")
async def absent(x: Case) -> None:
    if x.client.name not in [one.protocol_binding for one in x.target.legacy]:
        await x.refused("ListTasks", {}, VersionNotSupported, headers={VERSION: None})
        return
    if x.client.name != "JSONRPC":
        raise Skipped(f"the card names a {x.client.name} interface of 0.3, which version.old judges")
    response = await x.call("ListTasks", {}, {VERSION: None})
    if response.error is None:
        raise CheckFailed(response.seen, "an error: 0.3 has no method ListTasks")


@check("version.patch", "The patch number of a version is ignored", "3.6")
async def patch(x: Case) -> None:
    await x.ok("SendMessage", {"message": x.hints.plain.message()}, {VERSION: "1.0.1"})


@check("version.query", "The version may be a query parameter", "3.6.1", on=HTTP[1:], level=SHOULD)
async def query(x: Case) -> None:
    response = await x.call("ListTasks", {VERSION: "1.0"}, {VERSION: None})
    if response.error is not None:
        raise CheckFailed(response.seen, f"the same as with the header {VERSION}: 1.0")


@check("version.old", "An interface of version 0.3 speaks version 0.3", "3.6.2", "0.3", on=ONCE)
async def old(x: Case) -> None:
    found = [one for one in x.target.legacy if one.protocol_binding == "JSONRPC" and not x.target.barred(one.url)]
    if not found:
        raise Skipped("only JSON-RPC of 0.3 on the host of the card is judged, with TLS if the card has it")
    message = {
        "kind": "message",
        "messageId": str(uuid.uuid4()),
        "role": "user",
        "parts": [{"kind": "text", "text": "hello"}],
        "metadata": x.hints.plain.metadata,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    headers = {"Content-Type": "application/json"}
    if x.client.required:
        headers[f"X-{EXTENSIONS}"] = ", ".join(x.client.required)
    if x.client.token:
        headers["Authorization"] = f"Bearer {x.client.token}"
    raw = await x.target.http.fetch("POST", found[0].url, headers, json.dumps(body).encode())
    response = raw.json("a JSON-RPC response")
    if not isinstance(response, dict) or response.get("result", {}).get("kind") not in ("task", "message"):
        raise CheckFailed(raw.seen(), "a result of the kind task or message, in the form of 0.3")
