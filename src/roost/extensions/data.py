"""The extensions cost-v1, tool-call-v1 and hitl-v1 of protolabs, in each of the three forms that agents use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from roost.protocol.codec import decoder, encode
from roost.protocol.raw import data_of
from roost.protocol.types import Artifact, JSONObject, Part

URI = "https://proto-labs.ai/a2a/ext/"
COST, TOOL_CALL, HITL = "cost-v1", "tool-call-v1", "hitl-v1"
PREVIEW = 800
"""Characters of a tool's arguments or result that are shown."""
PHASES = ("started", "completed", "failed")


class TokenUsage(NamedTuple):
    input: int
    output: int
    cached: int


class ToolCall(NamedTuple):
    id: str
    name: str
    phase: str
    arguments: str = ""
    """A JSON object; empty if the agent has not sent any."""
    result: str | None = None
    error: str | None = None


def payloads(name: str, metadata: JSONObject | None, parts: list[Part]) -> Iterator[JSONObject]:
    """Yield the payloads of one extension in a message or an artifact."""
    found = (metadata or {}).get(URI + name)
    if isinstance(found, dict):
        yield found
    for part in parts:
        if _mark(part) == name and isinstance(data := data_of(part), dict):
            yield _unwrapped(data)


def plain(parts: list[Part]) -> list[Part]:
    """Return the parts that are content, without those that carry an extension's payload."""
    return [part for part in parts if not _mark(part)]


def usage_of(metadata: JSONObject | None, parts: list[Part]) -> TokenUsage | None:
    for found in payloads(COST, metadata, parts):
        usage = found.get("usage")
        if isinstance(usage, dict):
            names = ("input_tokens", "output_tokens", "cache_read_input_tokens")
            return TokenUsage(*(_count(usage.get(name)) for name in names))
    return None


def usage_artifact(tokens: TokenUsage, cost_usd: float | None = None) -> Artifact:
    """Make an artifact with the payload of cost-v1 in its metadata, and in a part, where older clients look for it."""
    payload: JSONObject = {
        "usage": {
            "input_tokens": tokens.input,
            "output_tokens": tokens.output,
            "cache_read_input_tokens": tokens.cached,
        }
    }
    if cost_usd is not None:
        payload["costUsd"] = cost_usd
    part = Part(data=payload, metadata={"mimeType": URI + COST})
    return Artifact(artifact_id=COST, parts=[part], metadata={URI + COST: payload}, extensions=[URI + COST])


def tool_calls_of(metadata: JSONObject | None, parts: list[Part]) -> list[ToolCall]:
    found = []
    for payload in payloads(TOOL_CALL, metadata, parts):
        call, phase = payload.get("toolCallId"), payload.get("phase")
        if isinstance(call, str) and call and phase in PHASES:
            found.append(
                ToolCall(
                    call[:PREVIEW],
                    _preview(payload.get("name")) or "tool",
                    phase,
                    _arguments(payload.get("args")),
                    _preview(payload.get("result")),
                    _preview(payload.get("error")),
                )
            )
    return found


def merged(before: ToolCall | None, now: ToolCall) -> ToolCall:
    """Combine two events of a call. `started` may come twice, and the last event need not repeat the arguments."""
    if before is None:
        return now
    if before.phase != "started":
        return before
    name = now.name if now.name != "tool" else before.name
    return now._replace(name=name, arguments=now.arguments or before.arguments)


def question_of(metadata: JSONObject | None, parts: list[Part]) -> str:
    """Return the question in a form or an approval that came without text; empty if there is none."""
    for found in payloads(HITL, metadata, parts):
        words = [found.get(name) for name in ("question", "title", "description", "detail")]
        return "\n".join(word for word in words if isinstance(word, str) and word)
    return ""


def _mark(part: Part) -> str:
    """Return the name of the extension that a part belongs to; empty for content."""
    if part.data is UNSET:
        return ""
    kind = (part.metadata or {}).get("mimeType") or part.media_type
    if not isinstance(kind, str):
        return ""
    if kind.startswith(URI):
        return kind.removeprefix(URI)
    name = kind.removeprefix("application/vnd.protolabs.")
    return name.removesuffix("+json") if name != kind else ""


def _unwrapped(data: JSONObject) -> JSONObject:
    """Return the payload, which the second form has in `content.value`."""
    content = data.get("content", data)
    value = content.get("value") if isinstance(content, dict) else None
    return value if isinstance(value, dict) else data


def _count(value: object) -> int:
    """Return a number of tokens, which may be a double in JSON; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return max(0, int(value))


def _arguments(value: Any) -> str:
    """Return the arguments as a JSON object, which clients parse. Other text, and long text, is wrapped in one."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else encode(value).decode()
    try:
        is_object = isinstance(decoder(object)(text.encode()), dict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        is_object = False
    return text if is_object and len(text) <= PREVIEW else encode({"preview": text[:PREVIEW]}).decode()


def _preview(value: Any) -> str | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else encode(value).decode())[:PREVIEW]
