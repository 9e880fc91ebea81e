"""Responses: an agent's turn as a response object, or as typed events."""

from __future__ import annotations

from typing import Any

from roost.doors.openai.errors import error_of, failure_of
from roost.doors.openai.exchange import Exchange
from roost.doors.openai.turn import ANSWER, TOOL_CALL
from roost.doors.openai.turn_reader import MESSAGE, Piece
from roost.extensions.data import TokenUsage, ToolCall
from roost.protocol.codec import encode
from roost.protocol.errors import A2AError
from roost.protocol.types import TaskState

STATUSES = {
    TaskState.SUBMITTED: "queued",
    TaskState.WORKING: "in_progress",
    TaskState.FAILED: "failed",
    TaskState.REJECTED: "failed",
    TaskState.CANCELED: "cancelled",
}
"""The statuses of responses by state. All other states are `completed`, where the answer may be a question."""
PHASES = {"started": "in_progress", "completed": "completed", "failed": "failed"}

Object = dict[str, Any]


def response(exchange: Exchange) -> Object:
    reader = exchange.reader
    status = STATUSES.get(reader.state, "completed")
    error = None
    if reader.settled and not reader.answered:
        failure = failure_of(reader)
        rejected = reader.state is TaskState.REJECTED
        error = {"code": "invalid_prompt" if rejected else "server_error", "message": failure["message"]}
    given = {key: value for key, value in (reader.task.metadata or {}).items() if isinstance(value, str)}
    return {
        "id": exchange.place.response,
        "object": "response",
        "created_at": reader.created,
        "status": status,
        "error": error,
        "incomplete_details": None,
        "instructions": None,
        "model": exchange.place.agent,
        "output": output(exchange),
        "parallel_tool_calls": False,
        "conversation": {"id": reader.task.context_id},
        "store": True,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": shown_usage(reader.usage),
        "metadata": {**given, **exchange.metadata()},
    }


def output(exchange: Exchange) -> list[Object]:
    """Return the items in the order in which they began. There is always a message; if it has not begun, it is last."""
    reader, place = exchange.reader, exchange.place
    status = "completed" if reader.answered else "incomplete" if reader.settled else "in_progress"
    message = message_item(exchange, [text_part(reader.text())], status)
    found = [message if key is MESSAGE else call_item(place.agent, reader.calls[key]) for key in reader.order]
    return [*found, message] if MESSAGE not in reader.order and reader.answered else found


def message_item(exchange: Exchange, content: list[Object], status: str) -> Object:
    return {"id": _message_id(exchange), "type": "message", "role": "assistant", "status": status, "content": content}


def text_part(text: str) -> Object:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(agent: str, call: ToolCall) -> Object:
    """Describe a tool call. The tool is the agent's own, so it is shown as one that the server calls."""
    return {
        "id": _call_id(call),
        "type": "mcp_call",
        "server_label": agent,
        "name": call.name,
        "arguments": call.arguments or "{}",
        "output": call.result,
        "error": None if call.error is None else _tool_error(call.error),
        "status": PHASES[call.phase],
    }


class ResponseEvents:
    """Writes the typed events. `after` is the number of the last event that the client has."""

    def __init__(self, exchange: Exchange, after: int = -1) -> None:
        self.exchange = exchange
        self.after = after
        self.number = 0
        self.spoke = False
        self.calls: dict[str, bool] = {}
        """Tool calls that have begun, and whether their arguments were sent."""

    def opening(self) -> bytes:
        first = self._event("response.created", response=response(self.exchange))
        return first + self._event("response.in_progress", response=response(self.exchange))

    def piece(self, piece: Piece) -> bytes:
        if piece.call is not None:
            return self._call(piece.call)
        return self._begin_message() + self._delta(piece.text)

    def closing(self) -> bytes:
        reader = self.exchange.reader
        if not reader.answered:
            return self._event("response.failed", response=response(self.exchange))
        text = reader.text()
        last = self._begin_message()
        if not reader.spoke and text:
            last += self._delta(text)
        at, content = self._at(MESSAGE), {"content_index": 0}
        last += self._event("response.output_text.done", **at, **content, text=text, logprobs=[])
        last += self._event("response.content_part.done", **at, **content, part=text_part(text))
        item = message_item(self.exchange, [text_part(text)], "completed")
        last += self._event("response.output_item.done", output_index=at["output_index"], item=item)
        return last + self._event("response.completed", response=response(self.exchange))

    def broken(self, error: A2AError) -> bytes:
        said = error_of(error)
        return self._event("error", code=said["code"], message=said["message"], param=said["param"])

    def _begin_message(self) -> bytes:
        if self.spoke:
            return b""
        self.spoke = True
        if MESSAGE not in self.exchange.reader.order:
            self.exchange.reader.order.append(MESSAGE)
        at = self._at(MESSAGE)
        item = message_item(self.exchange, [], "in_progress")
        begun = self._event("response.output_item.added", output_index=at["output_index"], item=item)
        return begun + self._event("response.content_part.added", **at, content_index=0, part=text_part(""))

    def _delta(self, text: str) -> bytes:
        return self._event("response.output_text.delta", **self._at(MESSAGE), content_index=0, delta=text, logprobs=[])

    def _call(self, call: ToolCall) -> bytes:
        at, item = self._at(call.id), call_item(self.exchange.place.agent, call)
        index, found = at["output_index"], b""
        if call.id not in self.calls:
            self.calls[call.id] = False
            begun = {**item, "arguments": "", "output": None, "error": None, "status": "in_progress"}
            found += self._event("response.output_item.added", output_index=index, item=begun)
            found += self._event("response.mcp_call.in_progress", **at)
        ended = call.phase != "started"
        if (call.arguments or ended) and not self.calls[call.id]:
            self.calls[call.id] = True
            found += self._event("response.mcp_call_arguments.delta", **at, delta=item["arguments"])
            found += self._event("response.mcp_call_arguments.done", **at, arguments=item["arguments"])
        if ended:
            found += self._event(f"response.mcp_call.{call.phase}", **at)
            found += self._event("response.output_item.done", output_index=index, item=item)
        return found

    def _at(self, key: str) -> Object:
        reader = self.exchange.reader
        item = _message_id(self.exchange) if key is MESSAGE else _call_id(reader.calls[key])
        return {"item_id": item, "output_index": reader.order.index(key)}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self.number
        self.number += 1
        if number <= self.after:
            return b""
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, "sequence_number": number, **fields}))


def shown_usage(usage: TokenUsage | None) -> Object | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }


def _tool_error(text: str) -> Object:
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}


def _message_id(exchange: Exchange) -> str:
    return f"{ANSWER}{exchange.place.task}_{exchange.place.seq}"


def _call_id(call: ToolCall) -> str:
    return f"{TOOL_CALL}{call.id}"
